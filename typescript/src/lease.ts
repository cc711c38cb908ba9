// Keep a lease on a turn, timed by the clock of the worker from before its request.
//
// The service counts the lease from the arrival of a request, so it ends first for the worker.

import type { RenewReply } from "./contract.js";
import { InvalidAnswerError, RefusedRequestError, TransientError } from "./errors.js";
import { backoff, now, pause } from "./timing.js";

/** Requests a renewal once; waits for its answer at most for so many milliseconds. */
export type Renew = (answerWithinMs: number, hasBegun: boolean) => Promise<RenewReply>;

const ANSWER_WITHIN_MS = 2000;

export class Lease {
  wasRenewed = false;
  #length = 0;
  #renewAt = 0;
  #endsAt = 0;
  readonly #over = new AbortController();

  constructor(
    askedAt: number,
    lengthMs: number,
    private readonly renew: Renew,
  ) {
    this.#begin(askedAt, lengthMs);
  }

  /**
   * Return whether the worker holds the lease.
   *
   * A claim that took many attempts may have expired by the count of the worker, although the
   * service granted it just now. It is renewed then.
   */
  async secure(): Promise<boolean> {
    if (now() < this.#renewAt) return true;
    return (await this.#renewUntil(now() + this.#length, false)) === "renewed";
  }

  /** Renew after each third of the lease; return why it is lost, or null once `end` was called. */
  async keep(): Promise<string | null> {
    for (;;) {
      await pause(this.#renewAt - now(), this.#over.signal);
      if (this.#over.signal.aborted) return null;
      const status = await this.#renewUntil(this.#endsAt, true);
      if (this.#over.signal.aborted) return null;
      if (status !== "renewed") return status ?? "expired";
    }
  }

  end(): void {
    this.#over.abort();
  }

  #begin(askedAt: number, lengthMs: number): void {
    this.#length = lengthMs;
    this.#renewAt = askedAt + lengthMs / 3;
    this.#endsAt = askedAt + lengthMs;
  }

  /** Renew until there is an answer; null if none comes in time. */
  async #renewUntil(until: number, hasBegun: boolean): Promise<RenewReply["status"] | null> {
    for (const ms of backoff(50, Math.min(2000, this.#length / 6))) {
      const askedAt = now();
      if (askedAt >= until || this.#over.signal.aborted) return null;
      const patience = Math.min(until - askedAt, this.#length / 3, ANSWER_WITHIN_MS);
      const reply = await this.#tryRenew(patience, hasBegun);
      if (reply !== null) {
        if (reply.status === "renewed") {
          this.wasRenewed = true;
          this.#begin(askedAt, reply.lease_ms ?? 0);
        }
        // A turn that is to end gets no renewal: only the time that is left remains.
        if (reply.cancel) this.#renewAt = this.#endsAt;
        return reply.status;
      }
      await pause(Math.min(ms, until - now()), this.#over.signal);
    }
    return null;
  }

  async #tryRenew(ms: number, hasBegun: boolean): Promise<RenewReply | null> {
    try {
      return await this.renew(ms, hasBegun);
    } catch (error) {
      const passes =
        error instanceof TransientError ||
        error instanceof InvalidAnswerError ||
        error instanceof RefusedRequestError;
      if (!passes) throw error;
      return null;
    }
  }
}
