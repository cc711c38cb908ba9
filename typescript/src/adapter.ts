// Publish the events of a platform account, and deliver its outbound messages.

import { createHash } from "node:crypto";
import { type Connection, type ConnectionOptions, openConnection } from "./connection.js";
import type {
  ApiReply,
  Cursor,
  InboundEvent,
  OutboundMessage,
  RoomMembers,
  Source,
} from "./contract.js";
import { PARKED_FROM_MS } from "./delivery/chat_queues.js";
import { DeliveryLease } from "./delivery/delivery_lease.js";
import { MessageSender, type SendAll } from "./delivery/message_sender.js";
import { OutboundReader } from "./delivery/outbound_reader.js";
import { type Piece, piecesOf, type TextLimit } from "./delivery/pieces.js";
import { chatOf, RateBudget, type Rates } from "./delivery/rate_budget.js";
import { ProgressFinder, ReceiptWriter } from "./delivery/receipts.js";
import {
  ChatGone,
  RetryAfter,
  RetryLaterError,
  UnansweredRequestError,
  UndeclaredAccountError,
  Undeliverable,
} from "./errors.js";
import { type DraftOptions, type DraftPlatform, Drafts } from "./live/drafts.js";
import { TurnReader } from "./live/turn_reader.js";
import { type ShowTyping, TypingIndicator } from "./live/typing_indicator.js";
import { Locks } from "./locks.js";
import {
  apiForAccount,
  chatToken,
  cursor,
  declaredName,
  inbound,
  outboundDurable,
} from "./subjects.js";
import { backoff, now, pause } from "./timing.js";
import { ask, decode, publishStored, type Stored, stamp } from "./wire.js";

// A receipt that is not confirmed is published again, unless the process is to stop.
const RECEIPT_PATIENCE_MS = 5000;
const GIVE_UP_AFTER_MS = 24 * 3600 * 1000;
const CURSOR_PATIENCE_MS = 30_000;
const LOOK_FOR_MS = 2000;
// Error code of JetStream: the stream exists, and has no such consumer.
const NO_CONSUMER = 10014;

/**
 * Sends a piece to the platform, and returns the platform's id of it.
 *
 * It throws `RetryAfter`, `ChatGone` or `Undeliverable` if the platform says so. After any other
 * error the client tries again, while other chats go on.
 */
export type SendPiece = (piece: Piece) => Promise<string | undefined>;

export interface AdapterOptions {
  /** Declared names of the platform and of the account. */
  platform: string;
  account: string;
  /** Rates that the platform allows. */
  rates?: Rates;
  /** Age at which a message that still fails is given up; 24 h by default. */
  giveUpAfterMs?: number;
}

export interface DeliveryOptions {
  /** The longest text of a message on the platform. */
  limit?: TextLimit;
  /** Whether the platform has buttons; without, they become numbered lines of the text. */
  hasButtons?: boolean;
}

/** Publishes and delivers for one account of one platform. */
export class AdapterClient {
  readonly platform: string;
  readonly account: string;
  readonly #budget: RateBudget;
  readonly #giveUpAfterMs: number;
  readonly #lease: DeliveryLease;
  readonly #stopping = new AbortController();
  readonly #chats = new Locks();
  // By chat token, while a message to the chat is sent and reported.
  readonly #sending = new Locks();
  #drafts: Drafts | undefined;
  #typing: TypingIndicator | undefined;
  #declared: Promise<void> | undefined;
  // While the log is full: how long the next sender is asked to wait.
  #waits: Generator<number, never> | undefined;

  constructor(
    readonly connection: Connection,
    options: AdapterOptions,
  ) {
    this.platform = declaredName(options.platform);
    this.account = declaredName(options.account);
    this.#budget = new RateBudget(options.rates);
    this.#giveUpAfterMs = options.giveUpAfterMs ?? GIVE_UP_AFTER_MS;
    this.#lease = new DeliveryLease(connection, this.platform, this.account);
  }

  /** Whether this process, and no other, sends the messages of the account now. */
  get isDelivering(): boolean {
    return this.#lease.isHeld;
  }

  /** Aborted once the adapter is to stop. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  /** End `deliver`, `deliverPieces` and `runLeased` once the running calls have returned. */
  stop(): void {
    this.#stopping.abort();
  }

  /** Return an event of this account, made now, with a new id. */
  event(fields: Omit<InboundEvent, "v" | "id" | "at" | "platform" | "account">): InboundEvent {
    return { ...stamp(), platform: this.platform, account: this.account, ...fields };
  }

  /**
   * Publish an event and return once it is stored.
   *
   * Events of one chat are published one at a time, in the order of the calls. Throws
   * `RetryLaterError` if the log is full, unless `waitsForRoom` is set: keep the event and publish
   * it again before the next event of its chat.
   */
  async publish(
    event: InboundEvent,
    options: { giveUpAfterMs?: number; waitsForRoom?: boolean } = {},
  ): Promise<Stored> {
    if (event.platform !== this.platform || event.account !== this.account) {
      throw new RangeError("the event is of another account");
    }
    await this.#requireDeclared();
    const token = chatToken(event);
    const subject = inbound(this.platform, this.account, token);
    const publish = () =>
      this.#chats.run(subject, async () => {
        for (;;) {
          try {
            return await this.#publish(subject, event, options.giveUpAfterMs);
          } catch (error) {
            if (!(error instanceof RetryLaterError) || !options.waitsForRoom) throw error;
            await pause(error.afterMs);
          }
        }
      });
    // The platform may show a message of the agent as one of staff before it has returned its id.
    // The receipt then comes first, so the service recognises the copy.
    return event.sender?.is_staff ? await this.#sending.run(token, publish) : await publish();
  }

  async #publish(subject: string, event: InboundEvent, giveUpAfterMs?: number): Promise<Stored> {
    // An id that an adapter derives from another id may repeat for another event. The log would
    // drop it, so the id includes a hash of what the event says.
    const { at: _, ...content } = event;
    const digest = createHash("sha256").update(subject).update(JSON.stringify(content));
    const messageId = `${event.id}:${digest.digest("hex").slice(0, 16)}`;
    try {
      const options = { messageId, giveUpAfterMs, waitsForRoom: false };
      const stored = await publishStored(this.connection, subject, event, options);
      this.#waits = undefined;
      return stored;
    } catch (error) {
      if (error instanceof RetryLaterError) {
        this.#waits ??= backoff(1000, 30_000);
        error.afterMs = this.#waits.next().value;
      }
      throw error;
    }
  }

  /** Throw if no durable exists for the account; looks once, with the first event. */
  async #requireDeclared(): Promise<void> {
    this.#declared ??= this.#look();
    await this.#declared.catch((error) => {
      this.#declared = undefined;
      throw error;
    });
  }

  async #look(): Promise<void> {
    const durable = outboundDurable(this.platform, this.account);
    const subject = `$JS.API.CONSUMER.INFO.OUTBOUND.${durable}`;
    const answer = await this.connection.nats
      .request(subject, "", { timeout: LOOK_FOR_MS })
      // A server that does not answer says nothing about the account.
      .catch(() => undefined);
    const error = answer?.json<{ error?: { err_code: number } }>().error;
    if (error?.err_code === NO_CONSUMER) {
      const name = `${this.platform}/${this.account}`;
      throw new UndeclaredAccountError(`chatlane.toml does not declare ${name}`);
    }
  }

  /**
   * Pass each outbound message to a handler in pieces, until stopped.
   *
   * Messages of one chat are delivered one at a time and in order; chats do not wait for each other.
   * The service keeps the progress: after a restart, the delivery goes on with the missing piece.
   */
  async deliverPieces(handler: SendPiece, options: DeliveryOptions = {}): Promise<void> {
    await this.#deliver(async (message, progress, report) => {
      const pieces = piecesOf(message, options.limit, options.hasButtons);
      progress.pieces = pieces.length;
      const replaced = progress.sent === 0 ? message.draft : undefined;
      for (const piece of pieces.slice(progress.sent)) {
        await this.#untilFree(message);
        let edits = progress.editedIds[piece.number] || undefined;
        const draft = piece.number === 0 && replaced != null ? String(replaced) : undefined;
        if (piece.attachments.length === 0) edits ??= draft;
        const { mayBeSent } = progress;
        let id: string | undefined;
        try {
          id = await handler({ ...piece, mayBeSent, edits });
        } catch (error) {
          const isDraft = edits !== undefined && edits === draft;
          if (!(error instanceof Undeliverable) || error instanceof ChatGone || !isDraft)
            throw error;
          // The draft may have been deleted.
          await this.#untilFree(message);
          edits = undefined;
          id = await handler({ ...piece, mayBeSent });
        }
        progress.messageIds.push(id ?? edits ?? "");
        progress.sent += 1;
        progress.mayBeSent = false;
        if (progress.sent < pieces.length) await report();
      }
    });
  }

  /** Pass each outbound message as a whole to a handler, which returns the platform's ids of it. */
  async deliver(handler: (message: OutboundMessage) => Promise<string | string[] | undefined>) {
    await this.#deliver(async (message, progress) => {
      await this.#untilFree(message);
      const ids = await handler(message);
      progress.messageIds = ids === undefined ? [] : [ids].flat();
      // A handler without ids has sent one message.
      progress.sent = Math.max(1, progress.messageIds.length);
      progress.pieces = progress.sent;
    });
  }

  /**
   * Run work in the process that holds the lease of the account, until stopped.
   *
   * For platforms that let a single process receive. The signal is aborted when the lease is lost
   * and when the adapter is to stop; the work begins again when this process takes the lease.
   */
  async runLeased(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    await this.#lease.run(async (signal) => {
      try {
        await work(signal);
      } catch (error) {
        // What the signal ended.
        if (!signal.aborted) throw error;
      }
    }, this.stopping);
  }

  /**
   * Report all members of a room, who may read its shared conversations if the settings say so.
   *
   * Report a room after each change, and again before the report ends. The ids are those of events;
   * a room has at most 5,000 members. `readAt` is a time before the members were read from the
   * platform: a report with an earlier one than the kept report changes nothing, and throws
   * `StaleRequestError`. The service keeps a report until `until`, for at most two hours. After
   * `UnansweredRequestError`, send a report with newer members.
   */
  async reportMembers(
    chatId: string,
    members: readonly string[],
    options: { readAt: Date; until: Date; scope?: string },
  ): Promise<void> {
    const { platform, account } = this;
    const request: RoomMembers = {
      ...stamp(),
      at: options.readAt.toISOString(),
      platform,
      account,
      scope: options.scope ?? null,
      chat_id: chatId,
      members: [...members],
      until: options.until.toISOString(),
    };
    const principal = this.connection.principal ?? "adapter";
    const subject = apiForAccount(principal, "room", "members", platform, account);
    await ask<ApiReply>(this.connection, subject, request);
  }

  /** Return how far an earlier process has read the platform; undefined if nothing was saved. */
  async loadCursor(name: string): Promise<string | undefined> {
    const subject = cursor(this.platform, this.account, name);
    const until = now() + CURSOR_PATIENCE_MS;
    for (const ms of backoff()) {
      if (await this.connection.untilConnected(until - now())) {
        const get = `$JS.API.DIRECT.GET.CURSORS.${subject}`;
        const answer = await this.connection.nats
          .request(get, "", { timeout: LOOK_FOR_MS })
          .catch(() => undefined);
        const status = answer?.headers?.code ?? 0;
        if (status === 404) return undefined;
        // Another status is one of a replica that is not up to date.
        if (answer !== undefined && status === 0) return decode<Cursor>(answer.data).value;
      }
      if (now() + ms > until) break;
      await pause(ms);
    }
    // An adapter that went on without its cursor would lose messages.
    throw new UnansweredRequestError("cursor", false);
  }

  /** Store how far the platform was read; call it after `publish` has returned for all before. */
  async saveCursor(name: string, value: string): Promise<void> {
    const subject = cursor(this.platform, this.account, name);
    const message: Cursor = { ...stamp(), value };
    const options = { giveUpAfterMs: CURSOR_PATIENCE_MS, waitsForRoom: false };
    await publishStored(this.connection, subject, message, options);
  }

  /** Repeat a typing state in each chat whose answer is being written, until stopped. */
  async showTyping(show: ShowTyping, options: { intervalMs?: number } = {}): Promise<void> {
    await this.#lease.run(async (signal) => {
      const reader = await this.#openReader(false);
      const { connection } = this;
      this.#typing = new TypingIndicator(connection, show, this.#budget, options.intervalMs);
      try {
        await this.#typing.run(reader, signal);
      } finally {
        reader.close();
      }
    }, this.stopping);
  }

  /**
   * Show answers in their chats while they are written, until stopped.
   *
   * The answer takes the place of its draft: `edits` of a piece, and `draft` of a whole message, is
   * the message that shows the answer so far. The handler edits it instead of sending another one.
   */
  async showDrafts(platform: DraftPlatform, options: DraftOptions = {}): Promise<void> {
    await this.#lease.run(async (signal) => {
      const report = this.#reportDraft.bind(this);
      const { log } = this.connection;
      const drafts = new Drafts({ ...options, platform, budget: this.#budget, log, report });
      const reader = await this.#openReader(true);
      this.#drafts = drafts;
      try {
        while (!signal.aborted) {
          for (const update of await reader.take(undefined, signal)) drafts.update(update);
        }
      } finally {
        reader.close();
        await drafts.close();
      }
    }, this.stopping);
  }

  /** Return the updates of the turns that answer chats of the account, from now on. */
  async watch(): Promise<TurnReader> {
    return await this.#openReader(true);
  }

  async #openReader(withPieces: boolean): Promise<TurnReader> {
    const { platform, account } = this;
    return await new TurnReader(this.connection, [{ platform, account }], { withPieces }).open();
  }

  async #reportDraft(turnId: string, target: Source, messageId: string): Promise<void> {
    const { scope, profile, chat, thread_id, sender } = target;
    const address = Object.entries({ scope, profile, chat, thread_id, sender });
    const present = Object.fromEntries(address.filter(([, value]) => value != null));
    const about = { kind: "receipt" as const, message_id: messageId, draft_of: turnId };
    await this.publish(this.event({ ...present, ...about }));
  }

  /** Deliver whenever this process holds the lease, until stopped. */
  async #deliver(send: SendAll): Promise<void> {
    await this.#lease.run(async (ending) => {
      const publish = (event: InboundEvent) =>
        this.publish(event, { giveUpAfterMs: RECEIPT_PATIENCE_MS });
      const receipts = new ReceiptWriter(this.connection, publish, ending);
      const finder = new ProgressFinder(this.connection, this.platform, this.account, ending);
      const sendWithDraft: SendAll = async (message, progress, report) => {
        const replacing = (await this.#drafts?.replacing(message)) ?? message;
        await send(replacing, progress, report);
        if (message.turn_id != null && !message.is_interim) this.#typing?.end(message.turn_id);
        this.#drafts?.noteSent(message);
      };
      const showPause = (message: OutboundMessage, signal: AbortSignal) => {
        void this.#typing?.repeat(message.target, signal);
      };
      const sender = new MessageSender(
        this.connection,
        sendWithDraft,
        receipts,
        finder,
        this.#budget,
        this.#sending,
        this.#giveUpAfterMs,
      );
      const { platform, account } = this;
      const reader = new OutboundReader(
        this.connection,
        sender,
        platform,
        account,
        ending,
        showPause,
      );
      await Promise.all([reader.run(), receipts.run()]);
    }, this.stopping);
  }

  async #untilFree(message: OutboundMessage): Promise<void> {
    const chat = chatOf(message.target);
    const paused = this.#budget.pausedFor(chat);
    // The chat gives its messages back meanwhile, and a stop does not wait for it.
    if (paused > PARKED_FROM_MS) throw new RetryAfter(paused / 1000);
    await this.#budget.wait(chat);
    await this.#lease.require();
  }
}

/**
 * Open a connection, deliver and receive until SIGTERM or SIGINT, and close the connection.
 *
 * Messages in hand are finished first. `receive` runs in the process that holds the lease; webhooks,
 * which each process takes, call `publish` on an adapter of theirs.
 */
export async function runAdapter(
  options: ConnectionOptions &
    AdapterOptions &
    DeliveryOptions & {
      send: SendPiece;
      receive?: (adapter: AdapterClient, signal: AbortSignal) => Promise<void>;
      /** Shows for some seconds that an answer is being written. */
      showTyping?: ShowTyping;
      /** Shows answers while they are written. */
      drafts?: DraftPlatform;
    },
): Promise<void> {
  const { platform, account, receive, showTyping, drafts } = options;
  const name = `${platform} ${account} adapter`;
  const connection = await openConnection({ name, ...options });
  const adapter = new AdapterClient(connection, options);
  const stop = () => adapter.stop();
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  try {
    const parts = [adapter.deliverPieces(options.send, options)];
    if (showTyping) parts.push(adapter.showTyping(showTyping));
    if (drafts) parts.push(adapter.showDrafts(drafts, options.limit && { limit: options.limit }));
    if (receive) parts.push(adapter.runLeased((signal) => receive(adapter, signal)));
    // If a part fails, all end, after what they have in hand.
    for (const part of parts) part.catch(stop);
    await Promise.allSettled(parts);
    await Promise.all(parts);
  } finally {
    process.off("SIGTERM", stop);
    process.off("SIGINT", stop);
    await connection.close();
  }
}
