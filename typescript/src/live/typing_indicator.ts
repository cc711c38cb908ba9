// Show in chats that an answer is being written.

import type { Connection } from "../connection.js";
import type { Source } from "../contract.js";
import { chatOf, type RateBudget } from "../delivery/rate_budget.js";
import { RetryAfter } from "../errors.js";
import { described } from "../logs.js";
import { now, pause } from "../timing.js";
import { put, type TurnReader, type TurnUpdate } from "./turn_reader.js";

const INTERVAL_MS = 4000;
// No event about the end of a turn comes if no router runs.
const LONGEST_MS = 15 * 60 * 1000;
const MOST_TURNS = 10_000;

/** Shows in a chat that an answer is being written, for a few seconds; may throw `RetryAfter`. */
export type ShowTyping = (target: Source) => Promise<void>;

/**
 * Repeats the typing state of each chat while a turn that answers it runs.
 *
 * It needs the events of routers only. They are lost while the connection is down, so all states end
 * with it. A turn that waits for the answer to a question shows nothing. Typing takes nothing of the
 * rates of the account; it is not shown in a chat that has to wait.
 */
export class TypingIndicator {
  readonly #running = new Map<string, { sessionId: string; source: Source }>();
  readonly #typing = new Map<string, AbortController>();

  constructor(
    private readonly connection: Connection,
    private readonly show: ShowTyping,
    private readonly budget: RateBudget,
    private readonly intervalMs = INTERVAL_MS,
  ) {}

  /** Follow the turns of an open reader until the signal is aborted. */
  async run(reader: TurnReader, signal: AbortSignal): Promise<void> {
    let { generation } = this.connection;
    try {
      while (!signal.aborted) {
        const updates = await reader.take(undefined, signal);
        if (this.connection.generation !== generation) {
          generation = this.connection.generation;
          this.#endAll();
        }
        for (const update of updates) this.#update(update);
      }
    } finally {
      this.#endAll();
    }
  }

  /** End the state of a turn, for example because its answer is delivered. */
  end(turnId: string): void {
    this.#typing.get(turnId)?.abort();
    this.#typing.delete(turnId);
  }

  /** Show typing in a chat until the signal is aborted. */
  async repeat(source: Source, signal: AbortSignal): Promise<void> {
    const begunAt = now();
    const chat = chatOf(source);
    while (!signal.aborted && now() - begunAt < LONGEST_MS) {
      const busyMs = this.budget.busyFor(chat);
      if (busyMs > 0) {
        await pause(busyMs, signal);
        continue;
      }
      try {
        await this.show(source);
      } catch (error) {
        if (error instanceof RetryAfter) this.budget.pauseAfter(error, chat);
        // The state is shown again soon.
        else this.connection.log("typing_not_shown", described(error));
      }
      await pause(this.intervalMs, signal);
    }
  }

  #update(update: TurnUpdate): void {
    const { turn_id: turnId, session_id: sessionId } = update;
    switch (update.type) {
      case "started":
        // A session runs one turn at a time, so the ends of earlier ones got lost.
        for (const [earlier, running] of this.#running) {
          if (running.sessionId !== sessionId) continue;
          this.#running.delete(earlier);
          this.end(earlier);
        }
        put(this.#running, turnId, { sessionId, source: update.source }, MOST_TURNS);
        this.#begin(turnId);
        break;
      case "asked":
        // The editor of a person answers a call; nobody is asked.
        if (update.kind !== "call") this.end(turnId);
        break;
      case "answered":
        if (update.outcome === "withdrawn") this.end(turnId);
        else this.#begin(turnId);
        break;
      case "waiting":
      case "ended":
        this.#running.delete(turnId);
        this.end(turnId);
        break;
    }
  }

  #begin(turnId: string): void {
    const running = this.#running.get(turnId);
    if (running === undefined || this.#typing.has(turnId)) return;
    const ending = new AbortController();
    this.#typing.set(turnId, ending);
    void this.repeat(running.source, ending.signal).finally(() => {
      if (this.#typing.get(turnId) === ending) this.#typing.delete(turnId);
    });
  }

  #endAll(): void {
    this.#running.clear();
    for (const turnId of [...this.#typing.keys()]) this.end(turnId);
  }
}
