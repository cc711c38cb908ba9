// Read the outbound messages of an account, and put them into the order of their sessions.
//
// The stream delivers each message at least once. The reader drops repeats by id, waits for missing
// numbers of a session, and acknowledges a message once the platform has it.

import type { Connection } from "../connection.js";
import type { OutboundMessage } from "../contract.js";
import { DecodeError } from "../errors.js";
import { described } from "../logs.js";
import { type Delivered, Pull, PullError } from "../pull.js";
import { outboundDurable } from "../subjects.js";
import { backoff, Flag, now, pause } from "../timing.js";
import { decode } from "../wire.js";
import { ChatQueues, setBackMs } from "./chat_queues.js";
import type { Entry, MessageSender } from "./message_sender.js";
import { SessionOrder } from "./session_order.js";

const GAP_PATIENCE_MS = 5000;
// Messages in flight when a connection breaks return only after `ack_wait`, so few are in flight.
const AT_ONCE = 1;
// While the server keeps messages of this process: it delivers those that return before newer ones,
// and a busy machine that reads them one by one would get no further than to them.
const AT_ONCE_BESIDE_RETURNS = 16;
const PULL_FOR_MS = 1000;
const SHORTEST_PULL_MS = 50;
const SET_BACK_FOR_MS = 30_000;
const LOOK_FOR_MS = 2000;
const SETTLE_MARGIN_MS = 1000;
// Messages in memory; beyond that, the server keeps the others.
const MOST_HELD = 4096;

interface ConsumerState {
  num_ack_pending: number;
  delivered: { consumer_seq: number; stream_seq: number };
  config: { ack_wait?: number };
}

/**
 * Messages that the server gave to a reader that will never acknowledge them: a process that died,
 * or a lost connection of this one. They come again after `ack_wait`, later than newer messages and
 * in any order: one that the server took out for a request that was over goes to the end of those
 * that wait.
 */
interface Orphans {
  /** Position of the newest of them in the stream. */
  through: number;
  /** How many have not arrived yet. */
  count: number;
  until: number;
}

const NO_ORPHANS: Orphans = { through: 0, count: 0, until: 0 };

export class OutboundReader {
  readonly #durable: string;
  readonly #order = new SessionOrder<Entry>();
  readonly #queues: ChatQueues;
  readonly #failing = new AbortController();
  readonly #ending: AbortSignal;
  #orphans = NO_ORPHANS;
  // Longest time until the server delivers an unacknowledged message again.
  #redeliveredWithin = 0;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #generationSeen = -1;
  // Number of the last delivery, and how many since the last look went to other readers.
  #lastNumber: number | undefined;
  #missed = 0;
  // Until when the server keeps messages that this process cannot decode, by their positions.
  readonly #notUnderstood = new Map<number, number>();

  constructor(
    private readonly connection: Connection,
    sender: MessageSender,
    private readonly platform: string,
    private readonly account: string,
    ending: AbortSignal,
    showPause: (message: OutboundMessage, signal: AbortSignal) => void,
  ) {
    this.#durable = outboundDurable(platform, account);
    this.#ending = AbortSignal.any([ending, this.#failing.signal]);
    const fail = () => this.#failing.abort();
    this.#queues = new ChatQueues(connection, sender, this.#ending, fail, showPause);
  }

  /** Deliver until the end; throws only if the connection is closed for good. */
  async run(): Promise<void> {
    const source = new Pull(this.connection, "OUTBOUND", this.#durable);
    const pauses = backoff();
    let said = "";
    try {
      while (!this.#ending.aborted) {
        try {
          if (!(await this.connection.untilConnected(PULL_FOR_MS, this.#ending))) continue;
          await this.#lookForOrphans(source);
          await this.#read(source);
        } catch (error) {
          if (!(error instanceof PullError)) throw error;
          // The durable does not exist, or the server is not ready yet.
          if (error.message !== said) {
            const advice = "declare the account in chatlane.toml, and run `chatlane admin apply`";
            this.connection.log("outbound_unavailable", {
              platform: this.platform,
              account: this.account,
              error: error.message,
              advice,
            });
          }
          said = error.message;
          await pause(pauses.next().value, this.#ending);
        }
      }
    } finally {
      await source.close();
      await this.#queues.close();
    }
  }

  async #read(source: Pull): Promise<void> {
    if (this.#queues.bodies < MOST_HELD) {
      const deadline = this.#order.nextDeadline() ?? Number.POSITIVE_INFINITY;
      const ms = Math.min(PULL_FOR_MS, Math.max(deadline - now(), SHORTEST_PULL_MS));
      const room = this.#queues.setBack > 0 ? AT_ONCE_BESIDE_RETURNS : AT_ONCE;
      const raw = await source.take(ms, this.#ending, room);
      if (raw !== null) this.#queue(await this.#arrive(raw, source));
    } else {
      await pause(SHORTEST_PULL_MS, this.#ending);
    }
    this.#queue(await this.#overdue(source));
  }

  #queue(entries: Entry[]): void {
    for (const entry of entries) this.#queues.put(entry);
  }

  /** Return the messages that may go to their chat after the arrival of this one. */
  async #arrive(raw: Delivered, source: Pull): Promise<Entry[]> {
    this.#countNumber(raw.consumerSequence);
    let message: OutboundMessage;
    try {
      message = outboundMessage(raw.data);
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      // It may be of a newer release: kept for an adapter that understands it.
      this.connection.log("outbound_not_understood", described(error));
      this.#setAside(raw);
      return [];
    }
    raw.dropData();
    const { platform, account } = message.target;
    if (platform !== this.platform || account !== this.account) {
      // No permission keeps JetStream from storing messages of another account here.
      this.connection.log("outbound_foreign", { session_id: message.session_id });
      this.#noteOrphan(raw);
      raw.term();
      return [];
    }
    const held = this.#queues.held.get(message.id);
    // A message that was decided again under another number is stored twice.
    if (held !== undefined && held.raw.streamSequence === raw.streamSequence) {
      this.#queues.takeCopy(held, message, raw);
      return [];
    }
    const wouldLead = this.#order.wouldLead(message.session_id, message.out_seq);
    if (wouldLead && this.#missed > 0 && !this.#isOrphan(raw)) {
      await this.#countMissed(source, raw);
    }
    return this.#admit(message, raw);
  }

  #admit(message: OutboundMessage, raw: Delivered): Entry[] {
    this.#noteOrphan(raw);
    const entry: Entry = {
      id: message.id,
      sessionId: message.session_id,
      outSeq: message.out_seq,
      message,
      raw,
      wasHanded: raw.deliveries > 1,
      hasPaused: false,
      attempts: 0,
      givenUp: undefined,
      progress: undefined,
      came: new Flag(),
    };
    const patientUntil = Math.max(now() + GAP_PATIENCE_MS, this.#orphans.until);
    const mayLead = this.#orphans.count === 0;
    const { place, ready } = this.#order.admit(entry, entry, patientUntil, mayLead);
    if (place === "repeat") {
      raw.ack();
      return ready;
    }
    if (place === "late" || place === "reused") {
      // Reused: the database of the routers was restored to an earlier time.
      const about = { session_id: entry.sessionId, out_seq: entry.outSeq };
      this.connection.log(place === "late" ? "outbound_late" : "outbound_number_reused", about);
    }
    this.#queues.hold(entry);
    return ready;
  }

  #isOrphan(raw: Delivered): boolean {
    return this.#orphans.count > 0 && raw.streamSequence <= this.#orphans.through;
  }

  /** Record that a message has arrived if it is an orphan. */
  #noteOrphan(raw: Delivered): void {
    if (!this.#isOrphan(raw)) return;
    // A slow machine may need so long for the next one.
    const until = Math.max(this.#orphans.until, now() + SETTLE_MARGIN_MS);
    this.#orphans = { ...this.#orphans, count: this.#orphans.count - 1, until };
  }

  /** Give a message back that may be of a newer release; it stays with the server. */
  #setAside(raw: Delivered): void {
    if (!this.#notUnderstood.delete(raw.streamSequence)) this.#noteOrphan(raw);
    this.#notUnderstood.set(raw.streamSequence, now() + SET_BACK_FOR_MS + SETTLE_MARGIN_MS);
    raw.nak(SET_BACK_FOR_MS);
  }

  /** The server numbers the deliveries of a durable, over all its readers. */
  #countNumber(number: number): void {
    if (this.#lastNumber !== undefined) this.#missed += Math.max(0, number - this.#lastNumber - 1);
    this.#lastNumber = number;
  }

  /** Return the messages that have waited long enough for missing ones before them. */
  async #overdue(source: Pull): Promise<Entry[]> {
    if (now() >= this.#orphans.until) this.#orphans = NO_ORPHANS;
    const passed = this.#orphans.count > 0 ? [] : this.#order.leadUnknown();
    const deadline = this.#order.nextDeadline();
    if (deadline !== undefined && deadline <= now()) {
      // A server of a cluster may give a message to a request of a lost connection. It comes again
      // later than its successors, so the reader looks once more.
      if (this.#lookedAt < deadline) await this.#countOrphans(source).catch(ignorePullError);
      const isGivenUp = this.#orphans.count === 0;
      passed.push(...this.#order.passOverdue(isGivenUp ? now() : now() - this.#redeliveredWithin));
    }
    for (const { sessionId, missing } of passed) {
      if (missing > 0)
        this.connection.log("outbound_gap_passed", { session_id: sessionId, missing });
    }
    return passed.flatMap((gap) => gap.ready);
  }

  /** Count the messages of lost readers after each connect. */
  async #lookForOrphans(source: Pull): Promise<void> {
    const { generation } = this.connection;
    if (generation === this.#generationSeen) return;
    await this.#countOrphans(source);
    this.#generationSeen = generation;
  }

  async #countOrphans(source: Pull): Promise<void> {
    const state = await this.#consumerState();
    this.#lookedAt = now();
    if (state === undefined) return;
    this.#missed = 0;
    this.#lastNumber = state.delivered.consumer_seq;
    const count = this.#countForeign(state, source);
    if (count > 0) this.#expect(count, state.delivered.stream_seq);
  }

  /** Count the unacknowledged messages before this one that the server gave to other requests. */
  async #countMissed(source: Pull, newest: Delivered): Promise<void> {
    let count = this.#orphans.count + this.#missed;
    const state = await this.#consumerState().catch(ignorePullError);
    // Only the second number includes messages that are still in flight to this process.
    if (state !== undefined) count = Math.min(count, this.#countForeign(state, source) - 1);
    this.#missed = 0;
    const known = this.#orphans.count > 0 ? this.#orphans.through : 0;
    if (count > 0) this.#expect(count, Math.max(known, newest.streamSequence - 1));
    else this.#orphans = NO_ORPHANS;
  }

  #expect(count: number, through: number): void {
    this.#orphans = { through, count, until: now() + this.#redeliveredWithin };
    this.connection.log("outbound_orphans_expected", { count });
  }

  /** Return how many unacknowledged messages this process does not know. */
  #countForeign(state: ConsumerState, source: Pull): number {
    const { num_ack_pending: pending, delivered, config } = state;
    if (config.ack_wait !== undefined) this.#queues.ackWaitMs = config.ack_wait / 1e6;
    // Another process may have given messages back for that long.
    this.#redeliveredWithin = setBackMs(this.#queues.ackWaitMs, pending) + SETTLE_MARGIN_MS;
    for (const [sequence, until] of this.#notUnderstood) {
      // Another process has it, or it is gone.
      if (until <= now()) this.#notUnderstood.delete(sequence);
    }
    const mine = new Set(this.#notUnderstood.keys());
    for (const entry of this.#queues.held.values()) mine.add(entry.raw.streamSequence);
    for (const raw of source.arrived) {
      if (raw.consumerSequence <= delivered.consumer_seq) mine.add(raw.streamSequence);
    }
    return pending - mine.size;
  }

  async #consumerState(): Promise<ConsumerState | undefined> {
    const subject = `$JS.API.CONSUMER.INFO.OUTBOUND.${this.#durable}`;
    try {
      const answer = await this.connection.nats.request(subject, "", { timeout: LOOK_FOR_MS });
      const state = answer.json<ConsumerState & { error?: { description?: string } }>();
      if (state.error !== undefined) throw new PullError(state.error.description ?? "no durable");
      return state;
    } catch (error) {
      if (error instanceof PullError) throw error;
      this.connection.requireOpen();
      this.connection.log("outbound_orphans_unknown");
      return undefined;
    }
  }
}

function outboundMessage(body: Uint8Array): OutboundMessage {
  const message = decode<OutboundMessage>(body);
  const { session_id: sessionId, out_seq: outSeq, target } = message as Partial<OutboundMessage>;
  const isPlaced = typeof sessionId === "string" && Number.isInteger(outSeq);
  if (!isPlaced || typeof target?.platform !== "string")
    throw new DecodeError("no place or target");
  return message;
}

function ignorePullError(error: unknown): undefined {
  if (!(error instanceof PullError)) throw error;
}
