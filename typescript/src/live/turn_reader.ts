// Follow live turns: events of the service, and the pieces of workers without gaps.

import type { Subscription } from "@nats-io/transport-node";
import type { Connection } from "../connection.js";
import type {
  TurnAnswered,
  TurnAsked,
  TurnEnded,
  TurnFollow,
  TurnPiece,
  TurnRecap,
  TurnStarted,
  TurnWaiting,
} from "../contract.js";
import { DecodeError } from "../errors.js";
import * as subjects from "../subjects.js";
import { Flag, now } from "../timing.js";
import { decode, publishUnstored, stamp } from "../wire.js";

/**
 * Something that happens in a live turn.
 *
 * Pieces of an attempt come in order and without gaps. After a loss there is a recap instead, which
 * takes the place of all pieces before it. The stored answer alone is the truth.
 */
export type TurnUpdate =
  | ({ type: "started" } & TurnStarted)
  | ({ type: "piece" } & TurnPiece)
  | ({ type: "recap" } & TurnRecap)
  | ({ type: "asked" } & TurnAsked)
  | ({ type: "answered" } & TurnAnswered)
  | ({ type: "waiting" } & TurnWaiting)
  | ({ type: "ended" } & TurnEnded);

type Started = Extract<TurnUpdate, { type: "started" }>;
type Piece = Extract<TurnUpdate, { type: "piece" }>;

// A reader that is slower than this loses pieces, and gets a recap instead.
const MOST_PIECES = 1000;
// Events are few and small; beyond this many the reader has stopped to read.
const MOST_EVENTS = 10_000;
const MOST_TURNS = 10_000;
const MOST_EARLY = 1000;
const LOOK_AGAIN_MS = 1000;
// Longer than a worker waits between two recaps.
const ASK_AGAIN_MS = 2000;
const EVENTS: readonly string[] = ["started", "asked", "answered", "waiting", "ended"];
const AGENT_TOKEN = 3;
const VERB_TOKEN = 4;

/** How far the pieces of a turn have been passed on. */
interface Progress {
  agent: string;
  attempt: number;
  /** Index of the next piece; undefined until a recap comes. */
  nextIndex: number | undefined;
  askedAt: number;
  isOver: boolean;
}

/** Reads the live turns on some paths. Updates that come while the connection is down are lost. */
export class TurnReader implements AsyncIterable<TurnUpdate> {
  readonly #subscriptions: Subscription[] = [];
  readonly #arrived = new Flag();
  readonly #turns = new Map<string, Progress>();
  // Subjects of pieces that came before the start of their turn.
  readonly #early = new Map<string, string>();
  #waiting: Array<{ subject: string; update: TurnUpdate }> = [];
  #waitingPieces = 0;

  /**
   * Create the reader; `open` subscribes.
   *
   * @param agent The agent of the session, if the paths name one session. Without it, pieces are
   *   passed on only after the start of their turn, which names the agent: the workers of another
   *   agent could forge them otherwise.
   */
  constructor(
    private readonly connection: Connection,
    private readonly paths: subjects.LivePath[],
    private readonly options: { agent?: string; withPieces?: boolean } = {},
  ) {}

  /** Subscribe; updates count from now on. */
  async open(): Promise<this> {
    const { withPieces = true } = this.options;
    for (const path of this.paths) {
      // One subscription for all events keeps them in order.
      this.#subscribe(subjects.turnEvent("*", path));
      if (!withPieces) continue;
      this.#subscribe(subjects.piece("*", path), "piece");
      this.#subscribe(subjects.recap("*", path), "recap");
    }
    // Once the server has answered, it passes on what any client publishes.
    await this.connection.nats.flush().catch(() => {});
    return this;
  }

  close(): void {
    for (const subscription of this.#subscriptions) {
      if (!this.connection.nats.isClosed()) subscription.unsubscribe();
    }
  }

  /** Ask for a recap of the turn that a session runs now. */
  askForRecap(sessionId: string): void {
    const { agent } = this.options;
    if (agent === undefined) return;
    for (const path of this.paths) {
      const isWhole = path.platform && path.account && path.audience && path.sessionId;
      if (isWhole) this.#ask(subjects.follow(agent, path), sessionId);
    }
  }

  /** Yield the updates until the caller stops; then the reader is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<TurnUpdate, void> {
    try {
      for (;;) yield* await this.take();
    } finally {
      this.close();
    }
  }

  /** Return the updates that have come; wait for one, but no longer than `ms`. */
  async take(ms = LOOK_AGAIN_MS, signal?: AbortSignal): Promise<TurnUpdate[]> {
    if (!(await this.connection.untilConnected(ms, signal))) return [];
    if (this.#waiting.length === 0) {
      this.#arrived.clear();
      await this.#arrived.wait(ms, signal);
    }
    const arrived = this.#waiting;
    this.#waiting = [];
    this.#waitingPieces = 0;
    return arrived
      .filter(({ subject, update }) => this.#isNext(subject, update))
      .map(({ update }) => update);
  }

  #subscribe(subject: string, type?: "piece" | "recap"): void {
    const subscription = this.connection.nats.subscribe(subject, {
      callback: (error, msg) => {
        if (error === null) this.#hear(msg.subject, msg.data, type);
      },
    });
    this.#subscriptions.push(subscription);
  }

  #hear(subject: string, data: Uint8Array, ofSubject?: "piece" | "recap"): void {
    const type = ofSubject ?? subject.split(".")[VERB_TOKEN] ?? "";
    // Else an event of a newer release.
    if (ofSubject === undefined && !EVENTS.includes(type)) return;
    let update: TurnUpdate;
    try {
      update = { type, ...decode<TurnPiece>(data) } as TurnUpdate;
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      this.connection.log("turn_update_not_understood");
      return;
    }
    if (update.type === "piece") {
      if (this.#waitingPieces >= MOST_PIECES) return;
      this.#waitingPieces += 1;
    } else if (this.#waiting.length >= MOST_EVENTS) {
      return;
    }
    this.#waiting.push({ subject, update });
    this.#arrived.set();
  }

  /** Return whether an update may be passed on, and ask for a recap where pieces are missing. */
  #isNext(subject: string, update: TurnUpdate): boolean {
    switch (update.type) {
      case "started":
        if (!this.#begin(update)) return false;
        this.#askForEarly(update);
        return true;
      case "piece": {
        const known = this.#progressOf(subject, update);
        if (known !== undefined) return this.#isNextPiece(known, subject, update);
        if (!this.#turns.has(update.turn_id)) put(this.#early, update.turn_id, subject, MOST_EARLY);
        return false;
      }
      case "recap": {
        const known = this.#progressOf(subject, update);
        const isNewer = known?.nextIndex === undefined || update.next_index > known.nextIndex;
        if (known === undefined || !isNewer) return false;
        known.nextIndex = update.next_index;
        return true;
      }
      case "ended": {
        const { agent, attempt } = update;
        this.#note(update.turn_id, { ...begun(agent, attempt), isOver: true });
        return true;
      }
      default:
        return true;
    }
  }

  #begin(started: Started): boolean {
    const known = this.#turns.get(started.turn_id);
    if (known !== undefined && (known.attempt > started.attempt || known.isOver)) return false;
    // Its first piece may have come before it.
    if (known === undefined || known.attempt < started.attempt) {
      this.#note(started.turn_id, begun(started.agent, started.attempt));
    }
    return true;
  }

  /** Ask for a recap if pieces of a turn came too early; perhaps no other piece follows. */
  #askForEarly(started: Started): void {
    const subject = this.#early.get(started.turn_id);
    this.#early.delete(started.turn_id);
    const known = this.#turns.get(started.turn_id);
    if (subject === undefined || known?.nextIndex !== 0) return;
    const { agent, sessionId } = addressOf(subject);
    if (agent !== started.agent || sessionId !== started.session_id) return;
    known.nextIndex = undefined;
    known.askedAt = now();
    this.#ask(subjects.followOf(subject), started.session_id);
  }

  /** Return the progress of the attempt that an update is of; undefined if it is to be dropped. */
  #progressOf(subject: string, update: TurnPiece | TurnRecap): Progress | undefined {
    const { agent, sessionId } = addressOf(subject);
    let known = this.#turns.get(update.turn_id);
    if (known === undefined && this.options.agent !== undefined) {
      known = begun(this.options.agent, update.attempt);
      this.#note(update.turn_id, known);
    }
    if (known === undefined || known.isOver || update.attempt < known.attempt) return undefined;
    // Permissions hold for the subject only.
    if (agent !== known.agent || sessionId !== update.session_id) return undefined;
    if (update.attempt > known.attempt) {
      known.attempt = update.attempt;
      known.nextIndex = 0;
    }
    return known;
  }

  #isNextPiece(known: Progress, subject: string, piece: Piece): boolean {
    if (piece.index === known.nextIndex) {
      known.nextIndex += 1;
      return true;
    }
    if (known.nextIndex !== undefined && piece.index < known.nextIndex) return false;
    known.nextIndex = undefined;
    if (now() - known.askedAt >= ASK_AGAIN_MS) {
      known.askedAt = now();
      this.#ask(subjects.followOf(subject), piece.session_id);
    }
    return false;
  }

  #note(turnId: string, progress: Progress): void {
    this.#turns.delete(turnId);
    put(this.#turns, turnId, progress, MOST_TURNS);
  }

  #ask(subject: string, sessionId: string): void {
    const follow: TurnFollow = { ...stamp(), session_id: sessionId };
    publishUnstored(this.connection, subject, follow);
  }
}

/** Set an entry of a map, and delete its oldest ones beyond so many. */
export function put<T>(map: Map<string, T>, key: string, value: T, most: number): void {
  map.set(key, value);
  for (const oldest of map.keys()) {
    if (map.size <= most) return;
    map.delete(oldest);
  }
}

function begun(agent: string, attempt: number): Progress {
  return { agent, attempt, nextIndex: 0, askedAt: Number.NEGATIVE_INFINITY, isOver: false };
}

function addressOf(subject: string): { agent: string | undefined; sessionId: string | undefined } {
  const tokens = subject.split(".");
  return { agent: tokens[AGENT_TOKEN], sessionId: tokens.at(-1) };
}
