// Give sessions the titles that a model makes, after their answers and beside them.

import type { SessionView } from "./contract.js";
import { isBlank } from "./delivery/pieces.js";
import { ConflictingRequestError } from "./errors.js";
import type { Log } from "./logs.js";
import type { Envelope } from "./wire.js";

type Made = string | null | undefined;

/**
 * Returns a title for a conversation, from a message of a person and its answer; null for none yet.
 *
 * The signal is aborted after a minute, and when the worker ends.
 */
export type TitleMaker = (
  question: string,
  answer: string,
  signal: AbortSignal,
) => Made | Promise<Made>;

interface Sessions {
  get(sessionId: string): Promise<SessionView>;
  request(noun: string, verb: string, fields: object): Promise<Envelope>;
}

const PATIENCE_MS = 60_000;
const AT_ONCE = 32;
const MOST_KNOWN = 10_000;
const MOST_CHARACTERS = 100;

/**
 * Asks for a title of each session that has an answer and no title.
 *
 * The answer is stored before, so a title that cannot be made delays and loses nothing. The next
 * answer in the session asks again.
 */
export class SessionTitles {
  readonly #running = new Set<string>();
  // Sessions that need no title any more, oldest first.
  readonly #known = new Set<string>();
  readonly #over = new AbortController();

  constructor(
    private readonly sessions: Sessions,
    private readonly make: TitleMaker,
    private readonly log: Log,
    private readonly patienceMs = PATIENCE_MS,
  ) {}

  /** Ask for a title in the background, unless the session has one or is being asked about. */
  noteAnswer(sessionId: string, question: string, answer: string): void {
    if (this.#over.signal.aborted || this.#running.size >= AT_ONCE) return;
    if (this.#known.has(sessionId) || this.#running.has(sessionId)) return;
    if (!question.trim() || !answer.trim()) return;
    this.#running.add(sessionId);
    void this.#give(sessionId, question, answer).finally(() => this.#running.delete(sessionId));
  }

  /** Drop the open requests. */
  close(): void {
    this.#over.abort();
  }

  async #give(sessionId: string, question: string, answer: string): Promise<void> {
    const signal = AbortSignal.any([this.#over.signal, AbortSignal.timeout(this.patienceMs)]);
    const ended = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    });
    try {
      await Promise.race([this.#ask(sessionId, question, answer, signal), ended]);
    } catch (error) {
      // Another session of the person has this title: the first words stand for one.
      if (error instanceof ConflictingRequestError) this.#remember(sessionId);
      else if (!this.#over.signal.aborted) {
        // Without the text of the error, which may quote messages.
        const reason = error instanceof Error ? error.name : typeof error;
        this.log("title_failed", { session_id: sessionId, reason });
      }
    }
  }

  async #ask(
    sessionId: string,
    question: string,
    answer: string,
    signal: AbortSignal,
  ): Promise<void> {
    const session = await this.sessions.get(sessionId);
    if (session.title == null) {
      signal.throwIfAborted();
      const title = lineOf((await this.make(question, answer, signal)) ?? "");
      if (isBlank(title)) return;
      signal.throwIfAborted();
      await this.sessions.request("session", "title", {
        session_id: sessionId,
        title,
        by_model: true,
        // Somebody may give the session a title meanwhile.
        expected_version: session.version,
      });
    }
    this.#remember(sessionId);
  }

  #remember(sessionId: string): void {
    this.#known.add(sessionId);
    const [oldest] = this.#known;
    if (this.#known.size > MOST_KNOWN && oldest !== undefined) this.#known.delete(oldest);
  }
}

/** Return the beginning of a text on one line; the service removes what is invisible. */
function lineOf(text: string): string {
  const line = text.split(/[\s\p{Cc}]+/u).join(" ");
  return [...line.trim()].slice(0, MOST_CHARACTERS).join("").trimEnd();
}
