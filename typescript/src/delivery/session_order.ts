// Decide which outbound messages may go to their chat now.
//
// Each session numbers its messages 1, 2, 3, ... without a gap, so a missing number shows a missing
// message. A repeat is recognised by its id: a database that was restored to an earlier time gives
// numbers a second time.

export type Place = "in_order" | "early" | "late" | "reused" | "repeat";

/** What became of a message that arrived, and what may go to its chat now, in order. */
export interface Admission<T> {
  place: Place;
  ready: T[];
}

/** Numbers that did not arrive in time, and the messages that need not wait for them. */
export interface PassedOver<T> {
  sessionId: string;
  missing: number;
  ready: T[];
}

interface Progress<T> {
  first: number;
  // 0 until the first number of the session is known.
  following: number;
  skipped: Set<number>;
  late: Set<number>;
  // Without an item, an entry only occupies its number.
  early: Map<number, { item: T | undefined; patientUntil: number }>;
}

const MOST_SESSIONS = 50_000;
const MOST_IDS = 100_000;

export class SessionOrder<T> {
  readonly #placeOf = new Map<string, string>();
  readonly #newestAt = new Map<string, string>();
  readonly #sessions = new Map<string, Progress<T>>();
  readonly #waiting = new Map<string, Progress<T>>();

  /**
   * Place a message that arrived.
   *
   * @param mayLead Whether the first number seen of a session is taken as its next one: not while
   *   older messages of other processes may still arrive.
   */
  admit(
    message: { sessionId: string; outSeq: number; id: string },
    item: T,
    patientUntil: number,
    mayLead: boolean,
  ): Admission<T> {
    const { sessionId, outSeq: number, id } = message;
    const progress = this.#progressOf(sessionId);
    const place = `${sessionId} ${number}`;
    const isKnown = this.#placeOf.has(id);
    if (isRepeat(progress, number)) {
      if (isKnown || !this.#newestAt.has(place)) return { place: "repeat", ready: [] };
      this.#remember(id, place);
      return { place: "reused", ready: [item] };
    }
    this.#remember(id, place);
    if (isKnown) {
      // Delivered under another number, so the order does not wait for this one.
      progress.early.set(number, { item: undefined, patientUntil });
      if (progress.following === 0 && mayLead) begin(progress, Math.min(...progress.early.keys()));
      return { place: "repeat", ready: this.#advance(sessionId, progress) };
    }
    if (progress.following === 0 && (mayLead || number === 1)) {
      begin(progress, Math.min(number, ...progress.early.keys()));
    }
    if (progress.following > 0 && number < progress.following) {
      if (!progress.skipped.delete(number)) progress.late.add(number);
      return { place: "late", ready: [item] };
    }
    progress.early.set(number, { item, patientUntil });
    const ready = this.#advance(sessionId, progress);
    return { place: ready.length > 0 ? "in_order" : "early", ready };
  }

  /** Return whether a message would begin its session in the middle, if it may lead. */
  wouldLead(sessionId: string, number: number): boolean {
    return number > 1 && (this.#sessions.get(sessionId)?.following ?? 0) === 0;
  }

  /** Stop waiting for messages that did not arrive in time. */
  passOverdue(now: number): PassedOver<T>[] {
    return [...this.#waiting]
      .filter(([, progress]) => patience(progress) <= now)
      .map(([id, progress]) => this.#passOver(id, progress));
  }

  /** Let sessions begin with the messages they have: no older message is on its way. */
  leadUnknown(): PassedOver<T>[] {
    return [...this.#waiting]
      .filter(([, progress]) => progress.following === 0)
      .map(([id, progress]) => this.#passOver(id, progress));
  }

  /** Return when the patience with the next gap ends. */
  nextDeadline(): number | undefined {
    if (this.#waiting.size === 0) return undefined;
    return Math.min(...[...this.#waiting.values()].map(patience));
  }

  #advance(sessionId: string, progress: Progress<T>): T[] {
    const ready: T[] = [];
    for (;;) {
      const next = progress.early.get(progress.following);
      if (next === undefined) break;
      progress.early.delete(progress.following);
      progress.following += 1;
      if (next.item !== undefined) ready.push(next.item);
    }
    if (progress.early.size > 0) this.#waiting.set(sessionId, progress);
    else this.#waiting.delete(sessionId);
    return ready;
  }

  #passOver(sessionId: string, progress: Progress<T>): PassedOver<T> {
    const stop = Math.min(...progress.early.keys());
    const start = progress.following || stop;
    for (let number = start; number < stop; number += 1) progress.skipped.add(number);
    if (progress.following === 0) begin(progress, stop);
    progress.following = stop;
    return { sessionId, missing: stop - start, ready: this.#advance(sessionId, progress) };
  }

  #remember(id: string, place: string): void {
    this.#placeOf.delete(id);
    this.#placeOf.set(id, place);
    this.#newestAt.set(place, id);
    const oldest = this.#placeOf.size > MOST_IDS ? this.#placeOf.entries().next().value : undefined;
    if (oldest === undefined) return;
    this.#placeOf.delete(oldest[0]);
    if (this.#newestAt.get(oldest[1]) === oldest[0]) this.#newestAt.delete(oldest[1]);
  }

  #progressOf(sessionId: string): Progress<T> {
    const progress = this.#sessions.get(sessionId) ?? {
      first: 0,
      following: 0,
      skipped: new Set<number>(),
      late: new Set<number>(),
      early: new Map(),
    };
    this.#sessions.delete(sessionId);
    this.#sessions.set(sessionId, progress);
    const oldest = this.#sessions.keys().next().value;
    if (this.#sessions.size > MOST_SESSIONS && oldest !== undefined && !this.#waiting.has(oldest)) {
      this.#sessions.delete(oldest);
    }
    return progress;
  }
}

function begin<T>(progress: Progress<T>, number: number): void {
  progress.first = number;
  progress.following = number;
}

function isRepeat<T>(progress: Progress<T>, number: number): boolean {
  const wasPassed =
    progress.first <= number && number < progress.following && !progress.skipped.has(number);
  return wasPassed || progress.late.has(number) || progress.early.has(number);
}

function patience<T>(progress: Progress<T>): number {
  return progress.early.get(Math.min(...progress.early.keys()))?.patientUntil ?? 0;
}
