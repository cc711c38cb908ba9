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
import { backoff, now, pause } from "../timing.js";
import { decode } from "../wire.js";
import { ChatQueues } from "./chat_queues.js";
import type { Entry, MessageSender } from "./message_sender.js";
import { SessionOrder } from "./session_order.js";

const GAP_PATIENCE_MS = 5000;
const PULL_FOR_MS = 1000;
const SHORTEST_PULL_MS = 50;
const SET_BACK_FOR_MS = 30_000;
const LOOK_FOR_MS = 2000;
const SETTLE_MARGIN_MS = 1000;
// However many messages wait, the server delivers only so many of them again in a second.
const RETURNS_PER_SECOND = 500;
const LONGEST_SET_BACK_MS = 60_000;
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
          await this.#lookForOrphans();
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
    if (this.#queues.held.size < MOST_HELD) {
      const deadline = this.#order.nextDeadline() ?? Number.POSITIVE_INFINITY;
      const ms = Math.min(PULL_FOR_MS, Math.max(deadline - now(), SHORTEST_PULL_MS));
      const raw = await source.take(ms, this.#ending);
      if (raw !== null) this.#queue(await this.#arrive(raw));
    } else {
      await pause(SHORTEST_PULL_MS, this.#ending);
    }
    this.#queue(await this.#overdue());
  }

  #queue(entries: Entry[]): void {
    for (const entry of entries) this.#queues.put(entry);
  }

  /** Return the messages that may go to their chat after the arrival of this one. */
  async #arrive(raw: Delivered): Promise<Entry[]> {
    this.#countNumber(raw.consumerSequence);
    let message: OutboundMessage;
    try {
      message = decode<OutboundMessage>(raw.data);
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      // It may be of a newer release: kept for an adapter that understands it.
      this.connection.log("outbound_not_understood", described(error));
      raw.nak(SET_BACK_FOR_MS);
      return [];
    }
    const { platform, account } = message.target;
    if (platform !== this.platform || account !== this.account) {
      // No permission keeps JetStream from storing messages of another account here.
      this.connection.log("outbound_foreign", { session_id: message.session_id });
      raw.term();
      return [];
    }
    const held = this.#queues.held.get(message.id);
    // A message that was decided again under another number is stored twice.
    if (held !== undefined && held.raw.streamSequence === raw.streamSequence) {
      held.raw = raw;
      return [];
    }
    const isOrphan = this.#isOrphan(raw);
    if (
      this.#order.wouldLead(message.session_id, message.out_seq) &&
      this.#missed > 0 &&
      !isOrphan
    ) {
      await this.#look(raw);
    }
    return this.#admit(message, raw);
  }

  #admit(message: OutboundMessage, raw: Delivered): Entry[] {
    if (this.#isOrphan(raw)) {
      // A slow machine may need so long for the next one.
      const until = Math.max(this.#orphans.until, now() + SETTLE_MARGIN_MS);
      this.#orphans = { ...this.#orphans, count: this.#orphans.count - 1, until };
    }
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
    this.#queues.held.set(entry.id, entry);
    return ready;
  }

  #isOrphan(raw: Delivered): boolean {
    return this.#orphans.count > 0 && raw.streamSequence <= this.#orphans.through;
  }

  /** The server numbers the deliveries of a durable, over all its readers. */
  #countNumber(number: number): void {
    if (this.#lastNumber !== undefined) this.#missed += Math.max(0, number - this.#lastNumber - 1);
    this.#lastNumber = number;
  }

  /** Return the messages that have waited long enough for missing ones before them. */
  async #overdue(): Promise<Entry[]> {
    if (now() >= this.#orphans.until) this.#orphans = NO_ORPHANS;
    const passed = this.#orphans.count > 0 ? [] : this.#order.leadUnknown();
    const deadline = this.#order.nextDeadline();
    if (deadline !== undefined && deadline <= now()) {
      // A server of a cluster may give a message to a request of a lost connection. It comes again
      // later than its successors, so the reader looks once more.
      if (this.#lookedAt < deadline) await this.#look();
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
  async #lookForOrphans(): Promise<void> {
    const { generation } = this.connection;
    if (generation === this.#generationSeen) return;
    await this.#look();
    this.#generationSeen = generation;
  }

  /** Count the unacknowledged messages that this process does not have. */
  async #look(newest?: Delivered): Promise<void> {
    const state = await this.#consumerState();
    if (state === undefined) return;
    this.#lookedAt = now();
    this.#missed = 0;
    if (newest === undefined) this.#lastNumber = state.delivered.consumer_seq;
    const ackWaitMs = (state.config.ack_wait ?? 5e9) / 1e6;
    // Another process may have given messages back for that long.
    const longest = Math.max(ackWaitMs, (state.num_ack_pending / RETURNS_PER_SECOND) * 1000);
    this.#redeliveredWithin = Math.min(longest, LONGEST_SET_BACK_MS) + SETTLE_MARGIN_MS;
    const mine = this.#queues.held.size + (newest === undefined ? 0 : 1);
    const count = state.num_ack_pending - mine;
    if (count <= 0) {
      this.#orphans = NO_ORPHANS;
      return;
    }
    const through = newest === undefined ? state.delivered.stream_seq : newest.streamSequence - 1;
    this.#orphans = {
      through: Math.max(this.#orphans.through, through),
      count,
      until: now() + this.#redeliveredWithin,
    };
    this.connection.log("outbound_orphans_expected", { count });
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
