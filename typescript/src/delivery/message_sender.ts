// Send the messages of an account, and report what becomes of them.

import type { Connection } from "../connection.js";
import type { DeliveryFailure, DeliveryState, OutboundMessage } from "../contract.js";
import { ChatGone, RetryAfter, Undeliverable } from "../errors.js";
import type { Locks } from "../locks.js";
import { described } from "../logs.js";
import type { Delivered } from "../pull.js";
import { backoff, type Flag, now, pause } from "../timing.js";
import { DeliveryEnded } from "./delivery_lease.js";
import { chatOf, type RateBudget } from "./rate_budget.js";
import {
  newProgress,
  type Progress,
  type ProgressFinder,
  type ReceiptWriter,
  receiptOf,
} from "./receipts.js";

// A message that takes longer is reported as handed to the adapter.
const REPORTED_AFTER_MS = 1000;
// Further tries that fail the same way are reported this seldom.
const REPORTED_EVERY_MS = 60_000;
// A handler that failed less often is tried again, however old the message is.
const LEAST_ATTEMPTS = 5;
const LONGEST_REASON = 200;
// Failures that pass within this many attempts are not reported.
const QUIET_ATTEMPTS = 2;

/** A message in delivery. */
export interface Entry {
  id: string;
  sessionId: string;
  outSeq: number;
  /** Undefined while the server keeps the message, because its chat has to wait. */
  message: OutboundMessage | undefined;
  /** The newest copy, which is the one to acknowledge. */
  raw: Delivered;
  /** Whether the server gave the message to a process before. */
  wasHanded: boolean;
  hasPaused: boolean;
  attempts: number;
  givenUp: DeliveryFailure | undefined;
  progress: Progress | undefined;
  /** Set when the server has delivered the message again. */
  came: Flag;
}

/** The last token of the subject of a message. */
export function tokenOf(entry: Entry): string {
  return entry.raw.subject.slice(entry.raw.subject.lastIndexOf(".") + 1);
}

export type Outcome =
  | { kind: "delivered" }
  | { kind: "stopped" }
  | { kind: "retry"; ms: number; failure: DeliveryFailure }
  | { kind: "given_up"; failure: DeliveryFailure; isChatGone: boolean };

/** Sends a message, and reports after each piece but the last. */
export type SendAll = (
  message: OutboundMessage,
  progress: Progress,
  report: () => Promise<void>,
) => Promise<void>;

export class MessageSender {
  readonly #beganAt = Date.now();
  // Chats in which the message that an earlier process may have been sending is found.
  readonly #continued = new Set<string>();

  constructor(
    private readonly connection: Connection,
    private readonly send: SendAll,
    private readonly receipts: ReceiptWriter,
    private readonly finder: ProgressFinder,
    private readonly budget: RateBudget,
    private readonly sending: Locks,
    private readonly giveUpAfterMs: number,
  ) {}

  /** Try once, report the outcome, and return what to do with the message. */
  async attempt(entry: Entry, message: OutboundMessage): Promise<Outcome> {
    const progress = await this.#progressOf(entry, message);
    if (progress.isFinal) return { kind: "delivered" };
    return await this.sending.run(tokenOf(entry), async () => {
      const { givenUp } = entry;
      const outcome: Outcome =
        givenUp === undefined
          ? await this.#try(entry, message, progress)
          : { kind: "given_up", failure: givenUp, isChatGone: false };
      return (await this.#tell(entry, message, outcome)) ? outcome : { kind: "stopped" };
    });
  }

  async #try(entry: Entry, message: OutboundMessage, progress: Progress): Promise<Outcome> {
    const about = { session_id: entry.sessionId, out_seq: entry.outSeq };
    entry.attempts += 1;
    const sent = new AbortController();
    const reporting = this.#reportHanded(entry, message, sent.signal).catch(() => {});
    try {
      await this.send(message, progress, async () => {
        if (!(await this.#report(entry, message, "handed"))) throw new DeliveryEnded();
      });
      return { kind: "delivered" };
    } catch (error) {
      if (error instanceof DeliveryEnded) return { kind: "stopped" };
      if (error instanceof Undeliverable) {
        const reason = error.message.slice(0, LONGEST_REASON);
        this.connection.log("outbound_dropped", { ...about, reason });
        return {
          kind: "given_up",
          failure: error.failure,
          isChatGone: error instanceof ChatGone,
        };
      }
      if (error instanceof RetryAfter) {
        this.budget.pauseAfter(error, chatOf(message.target));
        this.connection.log("outbound_rate_limited", about);
        return this.#again(entry, error.seconds * 1000, "rate_limited");
      }
      this.connection.log("outbound_delivery_failed", { ...about, ...described(error) });
      // The platform may have the piece although its answer was lost.
      progress.mayBeSent = true;
      return this.#again(entry, pauseAfter(entry.attempts), "unknown");
    } finally {
      sent.abort();
      await reporting;
    }
  }

  #again(entry: Entry, ms: number, failure: DeliveryFailure): Outcome {
    const isOld = Date.now() - entry.raw.storedAt >= this.giveUpAfterMs;
    if (!isOld || entry.attempts < LEAST_ATTEMPTS) return { kind: "retry", ms, failure };
    const about = { session_id: entry.sessionId, out_seq: entry.outSeq };
    this.connection.log("outbound_given_up", about);
    return { kind: "given_up", failure, isChatGone: false };
  }

  /** Report an outcome; false if the process ends before the report is stored. */
  async #tell(entry: Entry, message: OutboundMessage, outcome: Outcome): Promise<boolean> {
    switch (outcome.kind) {
      case "delivered":
        return await this.#report(entry, message, "delivered");
      case "given_up":
        return await this.#report(entry, message, "failed", outcome.failure);
      case "retry":
        if (outcome.failure === "unknown" && entry.attempts <= QUIET_ATTEMPTS) return true;
        return await this.#report(entry, message, "failed", outcome.failure, outcome.ms);
      case "stopped":
        return false;
    }
  }

  async #progressOf(entry: Entry, message: OutboundMessage): Promise<Progress> {
    if (entry.progress !== undefined) return entry.progress;
    const chat = tokenOf(entry);
    const isEarlier = entry.raw.storedAt < this.#beganAt;
    // A server that was killed forgets which messages it has given to a process.
    const found = entry.wasHanded || isEarlier ? await this.finder.find(entry, chat) : undefined;
    const progress = found ?? newProgress();
    entry.progress = progress;
    if (progress.isFinal) return progress;
    // A process sends one message of a chat at a time, and reports it before the next.
    const isFirst = isEarlier && !this.#continued.has(chat);
    progress.mayBeSent = entry.wasHanded || isFirst;
    if (isFirst) this.#continued.add(chat);
    const { edits } = message;
    if (edits != null) {
      const edited = { id: edits, sessionId: entry.sessionId };
      progress.editedIds = (await this.finder.find(edited, chat))?.messageIds ?? [];
    }
    if (found !== undefined) await this.#report(entry, message, "unknown");
    return progress;
  }

  async #reportHanded(entry: Entry, message: OutboundMessage, sent: AbortSignal): Promise<void> {
    await pause(REPORTED_AFTER_MS, sent);
    if (!sent.aborted) await this.#report(entry, message, "handed");
  }

  /** Store a receipt, unless the last one says the same; false if the process ends. */
  async #report(
    entry: Entry,
    message: OutboundMessage,
    state: DeliveryState,
    failure?: DeliveryFailure,
    retryInMs?: number,
  ): Promise<boolean> {
    const progress = entry.progress ?? newProgress();
    const key = `${state} ${failure} ${progress.sent}`;
    const mayRepeat = state !== "failed" || retryInMs !== undefined;
    const isKnown = progress.reported === key && mayRepeat;
    if (isKnown && now() - progress.reportedAt < REPORTED_EVERY_MS) return true;
    progress.reported = key;
    progress.reportedAt = now();
    return await this.receipts.write(receiptOf(message, progress, state, failure, retryInMs));
  }
}

function pauseAfter(attempts: number): number {
  const pauses = backoff(200, 30_000);
  let ms = pauses.next().value;
  for (let attempt = 1; attempt < Math.min(attempts, 10); attempt += 1) ms = pauses.next().value;
  return ms;
}
