// Serve the turns of an agent: claim, renew, answer.
//
// One worker at a time holds a turn, for as long as it renews its lease. The attempt and the token
// of a claim fence off all earlier workers.

import type { Subscription } from "@nats-io/transport-node";
import { type Connection, type ConnectionOptions, openConnection } from "./connection.js";
import type { Part, ResultMessage, TranscriptRow, TurnControl, TurnNotice } from "./contract.js";
import {
  AgentUnavailableError,
  ConflictingRequestError,
  ConnectionClosedError,
  DecodeError,
  InvalidAnswerError,
  OversizedMessageError,
  RefusedPublishError,
  RefusedRequestError,
  TurnFailedError,
} from "./errors.js";
import { ClaimClient, type Grant, messageIds } from "./grant.js";
import { Lease } from "./lease.js";
import { LiveOutputs } from "./live_output.js";
import { described } from "./logs.js";
import { type Delivered, Pull, PullError } from "./pull.js";
import { SessionApi } from "./session_api.js";
import * as subjects from "./subjects.js";
import { backoff, Flag, now, pause } from "./timing.js";
import { SessionTitles, type TitleMaker } from "./titles.js";
import { type Answer, Ask, type Handler, Signals, Turn } from "./turn.js";
import { decode, publishStored, stamp } from "./wire.js";

const PULL_FOR_MS = 1000;
const SET_BACK_FOR_MS = 5000;

export interface WorkerOptions {
  agent: string;
  handler: Handler;
  /** How many turns are worked on at once; 1 by default. */
  slots?: number;
  /** The name that the permissions of the connection allow in requests; by default the agent. */
  principal?: string | undefined;
  /** Name by which people find the worker of a turn. */
  name?: string | undefined;
  /** How long a handler may take to end after its signal was aborted; 20 s by default. */
  windDownMs?: number;
  /**
   * How long running turns may go on after `stop`; 8 s by default. Then they are handed back to
   * other workers. Choose less than the time after which the process is killed.
   */
  handBackAfterMs?: number;
  /**
   * Makes the title of a session of one person that has an answer and no title, from the message
   * and its answer; not from messages that disappear.
   */
  titles?: TitleMaker;
}

/** Runs a handler for the turns of one agent, as many at once as it has slots. */
export class TurnWorker {
  readonly #agent: string;
  readonly #handler: Handler;
  readonly #claims: ClaimClient;
  readonly #titles: SessionTitles | undefined;
  readonly #windDownMs: number;
  readonly #handBackAfterMs: number;
  readonly #stopping = new AbortController();
  readonly #wasFreed = new Flag();
  readonly #watched = new Map<string, Set<Signals>>();
  readonly #running = new Map<Signals, Grant>();
  readonly #serving = new Set<Promise<void>>();
  #free: number;
  #handsBack = false;
  #failure: unknown;

  constructor(
    private readonly connection: Connection,
    options: WorkerOptions,
  ) {
    this.#agent = options.agent;
    this.#handler = options.handler;
    this.#free = options.slots ?? 1;
    this.#windDownMs = options.windDownMs ?? 20_000;
    this.#handBackAfterMs = options.handBackAfterMs ?? 8000;
    const principal = options.principal ?? options.agent;
    this.#claims = new ClaimClient(connection, options.agent, principal, options.name);
    if (options.titles !== undefined) {
      const sessions = new SessionApi(connection, { principal, agent: options.agent });
      this.#titles = new SessionTitles(sessions, options.titles, connection.log);
    }
  }

  /** Take no new turn; `run` returns when the running ones are answered or handed back. */
  stop(): void {
    this.#stopping.abort();
  }

  /** Serve turns until stopped; throws only if the connection is closed for good. */
  async run(): Promise<void> {
    const controls = this.#listen();
    const outputs = new LiveOutputs(this.connection, this.#agent);
    const notices = new Pull(this.connection, "TURNS", this.#agent);
    const ending = this.#endRunning();
    try {
      for (;;) {
        const notice = await this.#nextNotice(notices);
        if (notice === null) break;
        if (this.#stopping.signal.aborted) {
          // It may be about a turn that this worker has just handed back.
          notice.nak();
          break;
        }
        this.#free -= 1;
        const serving = this.#serve(notice, outputs).finally(() => {
          this.#serving.delete(serving);
          this.#free += 1;
          this.#wasFreed.set();
        });
        this.#serving.add(serving);
      }
    } finally {
      this.stop();
      await notices.close();
      await ending;
      await Promise.all(this.#serving);
      this.#titles?.close();
      outputs.close();
      if (!this.connection.nats.isClosed()) controls.unsubscribe();
    }
    if (this.#failure !== undefined) throw this.#failure;
  }

  #listen(): Subscription {
    return this.connection.nats.subscribe(subjects.control(this.#agent), {
      callback: (error, msg) => {
        if (error !== null) return;
        try {
          const control = decode<TurnControl>(msg.data);
          for (const signals of this.#watched.get(control.turn_id) ?? []) {
            if (control.answered) signals.hasAnswer.set();
            signals.tell(control.cancel, control.steer);
          }
        } catch {
          // It may be of a newer release; the reply to the next renewal decides.
          this.connection.log("control_not_understood");
        }
      },
    });
  }

  /** Return a notice when a slot is free for it, or null when stopping. */
  async #nextNotice(notices: Pull): Promise<Delivered | null> {
    const pauses = backoff();
    const stopping = this.#stopping.signal;
    let said = "";
    while (!stopping.aborted) {
      if (this.#free === 0) {
        this.#wasFreed.clear();
        await this.#wasFreed.wait(undefined, stopping);
        continue;
      }
      try {
        if (!(await this.connection.untilConnected(PULL_FOR_MS, stopping))) continue;
        const notice = await notices.take(PULL_FOR_MS, stopping);
        if (notice !== null) return notice;
      } catch (error) {
        if (!(error instanceof PullError)) throw error;
        // The durable does not exist, or the server is not ready yet.
        const advice =
          "check that chatlane.toml declares the agent, and run `chatlane admin apply`";
        if (error.message !== said) {
          const fields = { agent: this.#agent, error: error.message, advice };
          this.connection.log("notices_unavailable", fields);
        }
        said = error.message;
        await pause(pauses.next().value, stopping);
      }
    }
    return null;
  }

  /** Claim the turn of a notice and work on it; the notice is acknowledged after the claim. */
  async #serve(message: Delivered, outputs: LiveOutputs): Promise<void> {
    try {
      const notice = decode<TurnNotice>(message.data);
      // From before the claim on: the turn may be stopped as soon as it is granted.
      const signals = new Signals();
      const watching = this.#watched.get(notice.turn_id) ?? new Set();
      this.#watched.set(notice.turn_id, watching.add(signals));
      try {
        const grant = await this.#claims.claim(notice.turn_id, this.#stopping.signal);
        if (grant === null) message.nak(SET_BACK_FOR_MS);
        else message.ack();
        if (grant !== null && typeof grant === "object") await this.#work(grant, signals, outputs);
      } finally {
        watching.delete(signals);
        if (watching.size === 0) this.#watched.delete(notice.turn_id);
      }
    } catch (error) {
      if (
        error instanceof DecodeError ||
        error instanceof InvalidAnswerError ||
        error instanceof RefusedRequestError
      ) {
        // The notice may be of a newer release: a worker that understands it gets it.
        this.connection.log("turn_not_understood", described(error));
        message.nak(SET_BACK_FOR_MS);
        return;
      }
      if (!(error instanceof ConnectionClosedError)) {
        this.connection.log("turn_dropped", described(error));
      }
      this.#failure ??= error;
      this.stop();
    }
  }

  /** Run the handler while the lease is held, and publish its result. */
  async #work(grant: Grant, signals: Signals, outputs: LiveOutputs): Promise<void> {
    const lease = new Lease(grant.askedAt, grant.leaseMs, async (ms, hasBegun) => {
      const begun = hasBegun && !this.#stopping.signal.aborted;
      const reply = await this.#claims.renew(grant, ms, begun);
      signals.tell(reply.cancel, reply.steer);
      return reply;
    });
    if (!(await lease.secure())) {
      this.connection.log("turn_lost", about(grant, "answered too late"));
      return;
    }
    // A worker that had to renew before it began must report the beginning.
    if (grant.attempt > 1 || lease.wasRenewed) this.#claims.tellBegun(grant, true);
    // The claim was unanswered when the other turns were handed back.
    if (this.#handsBack) signals.handBack();
    this.#running.set(signals, grant);
    try {
      const answering = this.#answer(grant, signals, outputs);
      const losing = lease.keep();
      const first = await Promise.race([answering, losing]);
      if (first === PARKED) {
        // The attempt has ended with its question.
      } else if (first !== null && typeof first === "object") {
        // The lease is renewed until the result is stored.
        await this.#publish(grant, first);
        if (first.outcome === "ok") this.#askForTitle(grant, first);
      } else {
        this.connection.log("turn_lost", about(grant, first ?? "unknown"));
        signals.lose();
        await answering;
      }
    } catch (error) {
      signals.lose();
      throw error;
    } finally {
      lease.end();
      this.#running.delete(signals);
    }
  }

  #askForTitle(grant: Grant, result: ResultMessage): void {
    // A title outlives a message that disappears, and in a session of several people it could be
    // set after the erasure of the person whose words it has.
    const isKept = grant.messages.every((message) => message.expires_at == null);
    if (grant.audience === "shared" || !isKept) return;
    const question = grant.messages.flatMap((message) => message.text || []).join("\n");
    const answer = (result.parts ?? []).flatMap((part) => part.text || []).join("\n");
    this.#titles?.noteAnswer(grant.sessionId, question, answer);
  }

  /** Return the answer of the handler as a result, which may be a failure. */
  async #answer(
    grant: Grant,
    signals: Signals,
    outputs: LiveOutputs,
  ): Promise<ResultMessage | typeof PARKED> {
    const output = outputs.open(grant);
    const turn = new Turn(this.#agent, grant, signals, this.#claims, output);
    const settled = new AbortController();
    const working = (async () => await this.#handler(turn))();
    try {
      const answer = await Promise.race([working, this.#tooLate(signals.signal, settled.signal)]);
      if (answer === TOO_LATE) {
        this.connection.log("handler_left", about(grant, "it did not end in time"));
        return unanswered(grant, signals);
      }
      if (signals.isStopping && signals.cancelReason === undefined) {
        // What the handler returned may be a part of the answer only.
        const isReply = typeof answer === "object" && !(answer instanceof Ask);
        const rows = isReply ? answer?.transcript : [];
        return handedBack(grant, "stopping", "the worker stops", rows);
      }
      return answer instanceof Ask ? await this.#park(grant, turn, answer) : success(grant, answer);
    } catch (error) {
      if (signals.signal.aborted && isAbort(error)) return unanswered(grant, signals);
      return this.#raised(grant, error);
    } finally {
      settled.abort();
      // A handler that was left may still fail.
      working.catch(() => {});
      outputs.end(grant, output);
    }
  }

  /** End the attempt with a question; return a result only if the turn is not parked. */
  async #park(grant: Grant, turn: Turn, ask: Ask): Promise<ResultMessage | typeof PARKED> {
    try {
      if (await turn.park(ask)) return PARKED;
      return failure(grant, "the router is of a release that parks no turns", true);
    } catch (error) {
      // The turn is to end, or the result of this attempt changes nothing.
      if (error instanceof ConflictingRequestError) return success(grant, null);
      if (!(error instanceof RefusedRequestError)) throw error;
      this.connection.log("turn_failed", { ...about(grant, "invalid question") });
      return failure(grant, "invalid question", false);
    }
  }

  /** Return once a handler has had its time to end. */
  async #tooLate(ended: AbortSignal, settled: AbortSignal): Promise<typeof TOO_LATE> {
    await until(ended, settled);
    await pause(this.#windDownMs, settled);
    return TOO_LATE;
  }

  #raised(grant: Grant, error: unknown): ResultMessage {
    if (error instanceof TurnFailedError) {
      return failure(grant, error.message, error.retry, error.transcript);
    }
    if (error instanceof AgentUnavailableError) {
      const { message, transcript, againInMs } = error;
      return handedBack(grant, "unavailable", message, transcript, againInMs);
    }
    const reason = error instanceof Error ? error.name : typeof error;
    this.connection.log("turn_failed", { ...about(grant, reason), ...described(error) });
    // Without the text of the error, which may quote messages.
    return failure(grant, reason, true);
  }

  async #publish(grant: Grant, result: ResultMessage): Promise<void> {
    const subject = subjects.result(this.#agent, grant.sessionId);
    try {
      await publishStored(this.connection, subject, result);
    } catch (error) {
      if (!(error instanceof OversizedMessageError || error instanceof RefusedPublishError)) {
        throw error;
      }
      this.connection.log("turn_failed", about(grant, error.name));
      await publishStored(this.connection, subject, failure(grant, error.name, false));
    }
  }

  /** After `stop`, let the loss of a running turn not count, and hand back what takes long. */
  async #endRunning(): Promise<void> {
    await until(this.#stopping.signal);
    if (this.connection.nats.isClosed()) return;
    for (const grant of this.#running.values()) this.#claims.tellBegun(grant, false);
    const endsAt = now() + this.#handBackAfterMs;
    while (this.#serving.size > 0 && now() < endsAt) {
      this.#wasFreed.clear();
      await this.#wasFreed.wait(endsAt - now());
    }
    this.#handsBack = true;
    for (const signals of this.#running.keys()) signals.handBack();
  }
}

/**
 * Open a connection, serve turns until SIGTERM or SIGINT, and close the connection.
 *
 * The running turns are finished or handed back first.
 */
export async function runWorker(options: WorkerOptions & ConnectionOptions): Promise<void> {
  const { agent, principal = agent } = options;
  const connection = await openConnection({ name: `${agent} worker`, ...options, principal });
  const worker = new TurnWorker(connection, { ...options, name: undefined, principal });
  const stop = () => worker.stop();
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  try {
    await worker.run();
  } finally {
    process.off("SIGTERM", stop);
    process.off("SIGINT", stop);
    await connection.close();
  }
}

const TOO_LATE = Symbol("too late");
const PARKED = Symbol("parked");

/** Return once any of the signals is aborted. */
async function until(...signals: AbortSignal[]): Promise<void> {
  const any = AbortSignal.any(signals);
  if (any.aborted) return;
  await new Promise((resolve) => any.addEventListener("abort", resolve, { once: true }));
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}

function about(grant: Grant, reason: string): Record<string, unknown> {
  const { turnId, sessionId, attempt } = grant;
  return { turn_id: turnId, session_id: sessionId, attempt, reason };
}

function base(grant: Grant): ResultMessage {
  return {
    ...stamp(),
    session_id: grant.sessionId,
    turn_id: grant.turnId,
    attempt: grant.attempt,
    token: grant.token,
    message_ids: messageIds(grant),
  };
}

function success(grant: Grant, answer: Exclude<Answer, Ask>): ResultMessage {
  const reply = typeof answer === "string" ? { parts: [answer] } : (answer ?? {});
  const parts = (reply.parts ?? []).map((part): Part => {
    return typeof part === "string" ? { text: part } : part;
  });
  return {
    ...base(grant),
    outcome: parts.length > 0 ? "ok" : "no_reply",
    parts,
    transcript: reply.transcript ?? [],
    usage: reply.usage ?? {},
    costs: reply.costs ?? {},
    gauges: reply.gauges ?? {},
    carry_over: reply.carryOver ?? null,
  };
}

/** Return the result of a turn whose handler has no answer because the turn is to end. */
function unanswered(grant: Grant, signals: Signals): ResultMessage {
  if (signals.cancelReason !== undefined) return success(grant, null);
  if (signals.isStopping) return handedBack(grant, "stopping", "the worker stops");
  return failure(grant, "AbortError", true);
}

function failure(
  grant: Grant,
  error: string,
  retry: boolean,
  transcript: TranscriptRow[] = [],
): ResultMessage {
  return { ...base(grant), outcome: "failed", retry, error, transcript };
}

function handedBack(
  grant: Grant,
  why: "unavailable" | "stopping",
  error: string,
  transcript: TranscriptRow[] = [],
  againInMs?: number,
): ResultMessage {
  const again = againInMs === undefined ? null : Math.max(0, Math.round(againInMs));
  return { ...failure(grant, error, true, transcript), hand_back: why, again_in_ms: again };
}
