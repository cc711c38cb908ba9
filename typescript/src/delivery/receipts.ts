// Report to the service what becomes of outbound messages, and ask what it knows of them.

import type { Connection } from "../connection.js";
import type {
  DeliveryFailure,
  DeliveryFind,
  DeliveryReply,
  DeliveryState,
  InboundEvent,
  OutboundMessage,
} from "../contract.js";
import {
  ChatlaneError,
  ConnectionClosedError,
  PermanentError,
  RetryLaterError,
  UnconfirmedPublishError,
} from "../errors.js";
import { described } from "../logs.js";
import { apiForAccount } from "../subjects.js";
import { backoff, Flag, now, pause } from "../timing.js";
import { ask, stamp } from "../wire.js";

const MAX_PIECES = 500;
// Receipts that a full log refuses are kept in memory, so that deliveries go on.
const MOST_KEPT = 10_000;
const FULL_LOG_RETRY_MS = 1000;
// A service that does not answer is asked for so long, and then once for each message.
const PATIENCE_MS = 20_000;
const SILENT_FOR_MS = 300_000;

/** How far the delivery of a message has come. */
export interface Progress {
  /** How many pieces the platform has, and its ids of them; an empty id keeps a place. */
  sent: number;
  messageIds: string[];
  pieces: number | undefined;
  /** Whether the service knows the message as delivered or given up. */
  isFinal: boolean;
  /** Whether an earlier attempt may have sent the next piece. */
  mayBeSent: boolean;
  /** The platform's ids of the messages that this one replaces. */
  editedIds: string[];
  /** The last receipt, and when it was written. */
  reported: string;
  reportedAt: number;
}

export function newProgress(fields: Partial<Progress> = {}): Progress {
  return {
    sent: 0,
    messageIds: [],
    pieces: undefined,
    isFinal: false,
    mayBeSent: false,
    editedIds: [],
    reported: "",
    reportedAt: Number.NEGATIVE_INFINITY,
    ...fields,
  };
}

/** Return the event that reports the delivery of a message, in the chat of the message. */
export function receiptOf(
  message: OutboundMessage,
  progress: Progress,
  state: DeliveryState,
  failure?: DeliveryFailure,
  retryInMs?: number,
): InboundEvent {
  const { platform, account, scope, profile, chat, thread_id, sender } = message.target;
  const ids = progress.messageIds.slice(0, MAX_PIECES);
  const retryAt = retryInMs === undefined ? undefined : new Date(Date.now() + retryInMs);
  return {
    ...stamp(),
    kind: "receipt",
    platform,
    account,
    ...present({ scope, profile, chat, thread_id, sender }),
    delivered: message.id,
    ...present({ message_id: ids.find((id) => id !== "") }),
    receipt: {
      session_id: message.session_id,
      state,
      sent: progress.sent,
      message_ids: ids.some((id) => id !== "") ? ids : [],
      ...present({ pieces: progress.pieces, failure, retry_at: retryAt?.toISOString() }),
    },
  };
}

/** Return the fields that have a value. */
function present<T extends object>(fields: T): Partial<{ [K in keyof T]: NonNullable<T[K]> }> {
  const entries = Object.entries(fields).filter(([, value]) => value != null);
  return Object.fromEntries(entries) as Partial<{ [K in keyof T]: NonNullable<T[K]> }>;
}

/** Publishes receipts in order; those that a full log refuses follow once it has room. */
export class ReceiptWriter {
  readonly #kept: InboundEvent[] = [];
  readonly #someKept = new Flag();

  constructor(
    private readonly connection: Connection,
    private readonly publish: (event: InboundEvent) => Promise<unknown>,
    private readonly stopping: AbortSignal,
  ) {}

  /** Return true once a receipt is stored or kept; false if the process is to stop before. */
  async write(receipt: InboundEvent): Promise<boolean> {
    while (this.#kept.length === 0) {
      try {
        await this.publish(receipt);
        return true;
      } catch (error) {
        if (error instanceof RetryLaterError) break;
        if (error instanceof UnconfirmedPublishError) {
          if (this.stopping.aborted) return false;
        } else {
          this.#refuse(error);
          return true;
        }
      }
    }
    if (this.#kept.length >= MOST_KEPT) {
      this.connection.log("receipt_dropped", { message_id: receipt.delivered });
      return true;
    }
    this.#kept.push(receipt);
    this.#someKept.set();
    return true;
  }

  /** Publish kept receipts until stopped. */
  async run(): Promise<void> {
    while (!this.stopping.aborted) {
      const [first] = this.#kept;
      if (first === undefined) {
        this.#someKept.clear();
        await this.#someKept.wait(undefined, this.stopping);
        continue;
      }
      try {
        await this.publish(first);
      } catch (error) {
        if (error instanceof RetryLaterError || error instanceof UnconfirmedPublishError) {
          await pause(FULL_LOG_RETRY_MS, this.stopping);
          continue;
        }
        this.#refuse(error);
      }
      this.#kept.shift();
    }
  }

  #refuse(error: unknown): void {
    if (error instanceof ConnectionClosedError || !(error instanceof PermanentError)) throw error;
    this.connection.log("receipt_refused", described(error));
  }
}

/** Asks the service what earlier processes have delivered. */
export class ProgressFinder {
  readonly #subject: string;
  #silentUntil = 0;

  constructor(
    private readonly connection: Connection,
    private readonly platform: string,
    private readonly account: string,
    private readonly stopping: AbortSignal,
  ) {
    const principal = connection.principal ?? "adapter";
    this.#subject = apiForAccount(principal, "delivery", "find", platform, account);
  }

  /** Return the progress of a message; undefined if the service does not answer or know it. */
  async find(
    message: { id: string; sessionId: string },
    chat: string,
  ): Promise<Progress | undefined> {
    const until = now() < this.#silentUntil ? now() : now() + PATIENCE_MS;
    for (const ms of backoff()) {
      try {
        const request: DeliveryFind = {
          ...stamp(),
          session_id: message.sessionId,
          message_id: message.id,
          platform: this.platform,
          account: this.account,
          chat,
        };
        const reply = await ask<DeliveryReply>(this.connection, this.#subject, request);
        this.#silentUntil = 0;
        // Until it is settled, receipts are on their way to the service.
        if (reply.is_settled || now() >= until) return progressIn(reply);
      } catch (error) {
        if (error instanceof ConnectionClosedError || !(error instanceof ChatlaneError))
          throw error;
        if (now() >= until) {
          this.connection.log("delivery_progress_unknown", described(error));
          this.#silentUntil = now() + SILENT_FOR_MS;
          return undefined;
        }
      }
      await pause(ms, this.stopping);
      if (this.stopping.aborted) return undefined;
    }
    return undefined;
  }
}

function progressIn(reply: DeliveryReply): Progress | undefined {
  const view = reply.deliveries?.[0];
  if (view === undefined) return undefined;
  const isGivenUp = view.state === "failed" && view.retry_at == null;
  return newProgress({
    sent: view.sent ?? 0,
    pieces: view.pieces ?? undefined,
    messageIds: (view.message_ids ?? []).map(String),
    isFinal: isGivenUp || view.state === "delivered",
  });
}
