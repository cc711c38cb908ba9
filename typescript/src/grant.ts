// A claimed turn, and the requests by which a worker holds it: claim, renew, take.

import { type Connection, processName } from "./connection.js";
import type {
  ClaimReply,
  ClaimRequest,
  RenewReply,
  RenewRequest,
  Source,
  TakeReply,
  TurnMessage,
  TurnTake,
} from "./contract.js";
import {
  InvalidAnswerError,
  RefusedRequestError,
  TransientError,
  UnansweredRequestError,
} from "./errors.js";
import * as subjects from "./subjects.js";
import { backoff, now, pause } from "./timing.js";
import { ask, askUntilAnswered, publishUnstored, stamp } from "./wire.js";

export interface Grant {
  turnId: string;
  sessionId: string;
  attempt: number;
  /** Secret of this attempt; never logged. */
  token: string;
  /** From when the lease counts: before the first request that the service may have received. */
  askedAt: number;
  leaseMs: number;
  source: Source;
  audience: string | undefined;
  messages: TurnMessage[];
  /** Messages that arrived during the turn and that it has taken in. */
  takenIn: TurnMessage[];
  reply: ClaimReply;
}

/** Return the ids of all messages that a turn answers. */
export function messageIds(grant: Grant): string[] {
  const ids = [...grant.messages, ...grant.takenIn].map((message) => message.id);
  return ids.filter((id): id is string => typeof id === "string");
}

// Short at first: if only the answer was lost, the lease runs already. But at least twice as long as
// the last answer took, because copies keep a busy service busier.
const SHORTEST_PATIENCE_MS = 1000;
const LONGEST_PATIENCE_MS = 4000;

export class ClaimClient {
  readonly #claimSubject: string;
  readonly #renewSubject: string;
  #lastTookMs = 0;

  constructor(
    readonly connection: Connection,
    private readonly agent: string,
    private readonly principal: string,
    private readonly worker: string = processName(),
  ) {
    this.#claimSubject = subjects.api(principal, "turn", "claim", agent);
    this.#renewSubject = subjects.api(principal, "turn", "renew", agent);
  }

  /**
   * Request a turn until there is an answer.
   *
   * Each attempt carries the same claim id, and the same id gets the same answer, so that a lost
   * answer costs nothing.
   *
   * @returns The granted turn, another status, or null if stopped before.
   */
  async claim(turnId: string, stopping: AbortSignal): Promise<Grant | ClaimReply["status"] | null> {
    const request: ClaimRequest = {
      ...stamp(),
      turn_id: turnId,
      worker: this.worker,
      tells_begin: true,
    };
    let heardAt: number | undefined;
    const patience = backoff(SHORTEST_PATIENCE_MS, LONGEST_PATIENCE_MS);
    for (const ms of backoff(50, 1000)) {
      const askedAt = now();
      const atLeast = Math.min(2 * this.#lastTookMs, LONGEST_PATIENCE_MS);
      try {
        const within = Math.max(patience.next().value, atLeast);
        const reply = await ask<ClaimReply>(this.connection, this.#claimSubject, request, within);
        this.#lastTookMs = now() - askedAt;
        return this.#outcome(reply, heardAt ?? askedAt);
      } catch (error) {
        if (error instanceof InvalidAnswerError || error instanceof RefusedRequestError) {
          // Count an attempt that an unreadable answer may have granted; otherwise the service
          // would offer the turn for ever.
          this.#tell(this.#claimSubject, { ...request, tells_begin: false });
        }
        if (!(error instanceof TransientError)) throw error;
        if (!(error instanceof UnansweredRequestError && error.reachedNobody)) heardAt ??= askedAt;
      }
      await pause(ms, stopping);
      if (stopping.aborted) break;
    }
    return null;
  }

  /** Request a renewal once; `hasBegun` says whether the loss of the lease counts as an attempt. */
  async renew(grant: Grant, answerWithinMs: number, hasBegun: boolean): Promise<RenewReply> {
    const request = renewal(grant, hasBegun);
    return await ask(this.connection, this.#renewSubject, request, answerWithinMs);
  }

  /** Report that work begins, or that the worker stops, so that a loss counts or does not. */
  tellBegun(grant: Grant, hasBegun: boolean): void {
    this.#tell(this.#renewSubject, renewal(grant, hasBegun));
  }

  /** Request the messages for a running turn that arrived after a place of the transcript. */
  async take(grant: Grant, afterSeq: number, signal: AbortSignal): Promise<TakeReply> {
    const request: TurnTake = {
      ...stamp(),
      turn_id: grant.turnId,
      attempt: grant.attempt,
      token: grant.token,
      after_seq: afterSeq,
    };
    return await this.request("turn", "take", request, signal);
  }

  /** Send a request about the turns or sessions of the agent until there is an answer. */
  async request<T extends { v: 1; id: string; at: string }>(
    noun: string,
    verb: string,
    request: { v: 1; id: string; at: string },
    signal?: AbortSignal,
  ): Promise<T> {
    const subject = subjects.api(this.principal, noun, verb, this.agent);
    return await askUntilAnswered<T>(this.connection, subject, request, { signal });
  }

  /** Send a request whose answer would change nothing; routers read only those with a reply subject. */
  #tell(subject: string, request: ClaimRequest | RenewRequest): void {
    publishUnstored(this.connection, subject, request, this.connection.newInbox());
  }

  #outcome(reply: ClaimReply, askedAt: number): Grant | ClaimReply["status"] {
    if (reply.status !== "claimed") return reply.status;
    const { session_id, attempt, token, lease_ms, source, history, messages } = reply;
    if (
      !session_id ||
      !attempt ||
      !token ||
      !lease_ms ||
      !source ||
      !history ||
      !messages?.length
    ) {
      throw new InvalidAnswerError("a claimed turn lacks a field");
    }
    return {
      turnId: reply.turn_id,
      sessionId: session_id,
      attempt,
      token,
      askedAt,
      leaseMs: lease_ms,
      source,
      audience: reply.audience ?? undefined,
      messages,
      takenIn: [],
      reply,
    };
  }
}

function renewal(grant: Grant, hasBegun: boolean): RenewRequest {
  const { turnId, attempt, token } = grant;
  return { ...stamp(), turn_id: turnId, attempt, token, begun: hasBegun };
}
