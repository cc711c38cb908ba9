// Let a single process at a time deliver for an account.
//
// The lease is the only message of its subject in a stream. The server stores another one only if
// the process names the sequence of the last message, so two processes never both take it. It
// removes a message that is not renewed.

import { headers } from "@nats-io/transport-node";
import { type Connection, processName } from "../connection.js";
import type { Deliverer } from "../contract.js";
import { ConnectionClosedError } from "../errors.js";
import { deliverer } from "../subjects.js";
import { Flag, now, pause } from "../timing.js";
import { encode, publishOnce, StreamError, stamp } from "../wire.js";

const LEASE_MS = 5000;
const RENEW_AFTER_MS = LEASE_MS / 4;
// The holder ends before the server, so that no other process begins earlier.
const HELD_FOR_MS = LEASE_MS - 1000;
const TRY_AGAIN_MS = 500;
const ANSWER_WITHIN_MS = 1000;
const WRONG_LAST = 10071;

/** This process does not go on with a delivery; another one may. */
export class DeliveryEnded extends Error {}

export class DeliveryLease {
  readonly #subject: string;
  // Of our message in the stream; 0 if we have none.
  #sequence = 0;
  #until = 0;
  #isUnconfirmed = false;
  #users = 0;
  #keeping: { stop: AbortController; done: Promise<void> } | undefined;
  #failure: unknown;
  readonly #changed = new Flag();

  constructor(
    private readonly connection: Connection,
    private readonly platform: string,
    private readonly account: string,
  ) {
    this.#subject = deliverer(platform, account);
  }

  /** Whether only this process may send now. */
  get isHeld(): boolean {
    return this.#sequence > 0 && now() < this.#until;
  }

  /** Whether another process may have sent messages since this one took the lease. */
  get isLost(): boolean {
    return this.#sequence === 0;
  }

  /**
   * Do some work whenever this process holds the lease, until `stopping` or the work ends by itself.
   *
   * The signal of the work is aborted when the lease is lost, and when the process is to stop.
   */
  async run(work: (signal: AbortSignal) => Promise<void>, stopping: AbortSignal): Promise<void> {
    this.#users += 1;
    this.#keeping ??= this.#begin();
    try {
      while (!stopping.aborted) {
        await this.#untilTrue(() => this.isHeld, stopping);
        if (stopping.aborted) break;
        const ending = new AbortController();
        const watching = this.#untilTrue(() => this.isLost, ending.signal).then(() => "lost");
        const working = work(AbortSignal.any([ending.signal, stopping]));
        try {
          const first = await Promise.race([watching, working]);
          ending.abort();
          await working;
          if (first !== "lost") return;
        } finally {
          ending.abort();
          await Promise.allSettled([watching, working]);
        }
      }
    } finally {
      this.#users -= 1;
      if (this.#users === 0) {
        this.#keeping?.stop.abort();
        await this.#keeping?.done;
        this.#keeping = undefined;
        await this.#giveBack();
      }
    }
  }

  /** Wait until this process may send; throws `DeliveryEnded` if another one may instead. */
  async require(): Promise<void> {
    while (!this.isHeld) {
      if (this.isLost) throw new DeliveryEnded();
      await this.#wait();
    }
  }

  async #untilTrue(holds: () => boolean, signal: AbortSignal): Promise<void> {
    while (!holds() && !signal.aborted) await this.#wait(signal);
  }

  async #wait(signal?: AbortSignal): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    this.#changed.clear();
    await this.#changed.wait(TRY_AGAIN_MS, signal);
  }

  #begin() {
    const stop = new AbortController();
    const done = this.#keep(stop.signal).catch((error) => {
      this.#failure = error;
      this.#changed.set();
    });
    return { stop, done };
  }

  /** Take the lease, renew it, and take it again after a loss. */
  async #keep(stopped: AbortSignal): Promise<void> {
    while (!stopped.aborted) {
      if (!(await this.connection.untilConnected(TRY_AGAIN_MS, stopped))) continue;
      const wasHeld = this.isHeld;
      try {
        await this.#takeOrRenew();
      } catch (error) {
        if (error instanceof ConnectionClosedError) throw error;
        this.connection.requireOpen();
        this.#isUnconfirmed = true;
      }
      if (this.isHeld !== wasHeld) {
        const event = this.isHeld ? "delivery_begun" : "delivery_paused";
        this.connection.log(event, { platform: this.platform, account: this.account });
      }
      this.#changed.set();
      await pause(this.isHeld ? RENEW_AFTER_MS : TRY_AGAIN_MS, stopped);
    }
  }

  async #takeOrRenew(): Promise<void> {
    const askedAt = now();
    try {
      this.#sequence = await this.#publish();
    } catch (error) {
      if (!(error instanceof StreamError) || error.code !== WRONG_LAST) throw error;
      const newest = Number(/wrong last sequence: (\d+)/.exec(error.description)?.[1] ?? 0);
      // If nobody else could take it yet, it is our renewal, whose confirmation got lost.
      const isOurs = this.#isUnconfirmed && this.isHeld && newest > this.#sequence;
      this.#sequence = isOurs ? newest : 0;
      return;
    }
    this.#isUnconfirmed = false;
    this.#until = askedAt + HELD_FOR_MS;
  }

  async #publish(ttl?: string): Promise<number> {
    const message: Deliverer = { ...stamp(), process: processName() };
    const header = headers();
    header.set("Nats-Expected-Last-Subject-Sequence", String(this.#sequence));
    if (ttl !== undefined) header.set("Nats-TTL", ttl);
    const body = encode(message);
    return (await publishOnce(this.connection, this.#subject, body, header, ANSWER_WITHIN_MS))
      .sequence;
  }

  async #giveBack(): Promise<void> {
    if (this.#sequence > 0 && this.connection.isConnected) {
      await this.#publish("1s").catch(() => {});
    }
    this.#sequence = 0;
  }
}
