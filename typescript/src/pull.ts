// Fetch messages from a durable, never more than there is room for.
//
// The consumer of the nats.js packages asks for many messages ahead. A process that hangs would keep
// those from all others until `ack_wait` is over. So a request here is for one message, and for twice
// as many as the last one only while there is room and they arrive fast.

import type { Msg, Subscription } from "@nats-io/transport-node";
import type { Connection } from "./connection.js";
import { Flag, now } from "./timing.js";

// A request that is outstanding when the server restarts is lost, so none lasts longer.
const ASKED_FOR_MS = 1000;
// The server says that a request is over; if that gets lost, it is over after this time.
const SAID_WITHIN_MS = 250;
// A request that was filled within this time had more messages behind it.
const SOON_MS = 50;
// No message in time.
const OVER = new Set([404, 408]);
const NO_DATA = new Uint8Array();

/** The durable does not answer as it should. */
export class PullError extends Error {
  override name = "PullError";
}

/** A message of a stream, to be acknowledged. */
export class Delivered {
  /** Position in the stream. */
  readonly streamSequence: number;
  /** Number of this delivery, over all requests. */
  readonly consumerSequence: number;
  /** How often the message was delivered, from 1. */
  readonly deliveries: number;
  /** When the message was stored, by the clock of the server; milliseconds since 1970. */
  readonly storedAt: number;
  readonly subject: string;
  readonly #reply: string | undefined;
  #data: Uint8Array;

  constructor(
    private readonly connection: Connection,
    msg: Msg,
  ) {
    this.subject = msg.subject;
    this.#reply = msg.reply;
    this.#data = msg.data;
    // $JS.ACK.<stream>.<durable>.<...>, or the same with domain and account before the stream.
    const tokens = msg.reply?.split(".") ?? [];
    const first = tokens.length > 9 ? 6 : 4;
    const [deliveries, stream, consumer, at] = tokens.slice(first, first + 4).map(Number);
    this.deliveries = deliveries ?? 1;
    this.streamSequence = stream ?? 0;
    this.consumerSequence = consumer ?? 0;
    this.storedAt = (at ?? 0) / 1e6;
  }

  get data(): Uint8Array {
    return this.#data;
  }

  /** Free the memory of the body; the message can still be acknowledged. */
  dropData(): void {
    this.#data = NO_DATA;
  }

  ack(): void {
    this.#settle("+ACK");
  }

  /** Have the message delivered again, at once or later; may be called again to change the time. */
  nak(delayMs?: number): void {
    const delay = delayMs === undefined ? "" : ` {"delay": ${Math.round(delayMs * 1e6)}}`;
    this.#settle(`-NAK${delay}`);
  }

  /** Never have the message delivered again. */
  term(): void {
    this.#settle("+TERM");
  }

  /** What gets lost here costs nothing: the server delivers the message again after `ack_wait`. */
  #settle(word: string): void {
    if (this.#reply && this.connection.isConnected) {
      this.connection.nats.publish(this.#reply, word);
    }
  }
}

export class Pull {
  readonly #subject: string;
  readonly #inbox: string;
  readonly #subscription: Subscription;
  readonly #came = new Flag();
  readonly #arrived: Delivered[] = [];
  #failure: PullError | undefined;
  #number = 0;
  #size = 1;
  #outstanding = 0;
  #askedAt = 0;
  #overAt = 0;
  #generation = -1;

  constructor(
    private readonly connection: Connection,
    stream: string,
    durable: string,
  ) {
    this.#subject = `$JS.API.CONSUMER.MSG.NEXT.${stream}.${durable}`;
    this.#inbox = connection.newInbox();
    this.#subscription = connection.nats.subscribe(`${this.#inbox}.*`, {
      callback: (error, msg) => {
        if (error === null) this.#receive(msg);
      },
    });
  }

  /** Messages that arrived and were not taken. */
  get arrived(): readonly Delivered[] {
    return this.#arrived;
  }

  /** Return the next message, or null if none comes in time; `room` is for how many there is room. */
  async take(ms: number, signal?: AbortSignal, room = 1): Promise<Delivered | null> {
    const until = now() + ms;
    for (;;) {
      const first = this.#arrived.shift();
      if (first !== undefined) return first;
      if (this.#failure !== undefined) {
        const failure = this.#failure;
        this.#failure = undefined;
        throw failure;
      }
      if (now() >= until || signal?.aborted) return null;
      if (!this.#isOpen) this.#ask(room);
      this.#came.clear();
      await this.#came.wait(Math.min(until, this.#overAt) - now(), signal);
    }
  }

  /** Return messages that were asked for and not taken to other readers. */
  async close(): Promise<void> {
    while (this.#isOpen && this.connection.isConnected) {
      this.#came.clear();
      await this.#came.wait(this.#overAt - now());
    }
    for (const delivered of this.#arrived.splice(0)) delivered.nak();
    if (!this.connection.nats.isClosed()) this.#subscription.unsubscribe();
  }

  get #isOpen(): boolean {
    const isSame = this.#generation === this.connection.generation;
    return this.#outstanding > 0 && isSame && now() < this.#overAt;
  }

  #ask(room: number): void {
    this.#generation = this.connection.generation;
    this.#number += 1;
    this.#size = Math.min(room, this.#size);
    this.#outstanding = this.#size;
    this.#askedAt = now();
    this.#overAt = this.#askedAt + ASKED_FOR_MS + SAID_WITHIN_MS;
    const body = JSON.stringify({ batch: this.#size, expires: ASKED_FOR_MS * 1e6 });
    this.connection.nats.publish(this.#subject, body, { reply: `${this.#inbox}.${this.#number}` });
  }

  #receive(msg: Msg): void {
    const status = msg.headers?.code ?? 0;
    if (status === 0) {
      this.#arrived.push(new Delivered(this.connection, msg));
      this.#outstanding -= 1;
      if (this.#outstanding === 0) {
        this.#size = now() - this.#askedAt < SOON_MS ? 2 * this.#size : 1;
      }
    } else if (msg.subject === `${this.#inbox}.${this.#number}`) {
      this.#outstanding = 0;
      this.#size = 1;
      if (!OVER.has(status)) {
        this.#failure = new PullError(`${status} ${msg.headers?.description ?? ""}`.trim());
      }
    }
    this.#came.set();
  }
}
