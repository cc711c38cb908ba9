// Show answers in their chats while they are written, and let the stored answer take their place.

import type { OutboundMessage, Source } from "../contract.js";
import { isBlank, splitText, type TextLimit } from "../delivery/pieces.js";
import { chatOf, type RateBudget } from "../delivery/rate_budget.js";
import { RetryAfter, Undeliverable } from "../errors.js";
import { described, type Log } from "../logs.js";
import { Flag, pause } from "../timing.js";
import { put, type TurnUpdate } from "./turn_reader.js";

const MOST_TURNS = 10_000;
// Calls to delete a draft without an answer; before each further one is the pause of the platform.
const MOST_DELETIONS = 5;
const INTERVAL_MS = 1000;

/** The calls of a platform that a draft needs; each may throw `RetryAfter`. */
export interface DraftPlatform {
  /** Send a message and return the platform's id of it. */
  send(target: Source, text: string): Promise<string>;
  edit(target: Source, messageId: string, text: string): Promise<void>;
  delete(target: Source, messageId: string): Promise<void>;
}

export interface DraftOptions {
  /** Time between two edits of a message; 1 s by default. */
  intervalMs?: number;
  /** The longest text of a message on the platform; a draft shows the first piece. */
  limit?: TextLimit;
}

/** What the drafts of an account share. */
interface Shared extends DraftOptions {
  platform: DraftPlatform;
  budget: RateBudget;
  log: Log;
  /** Stores that a message is the draft of a turn. */
  report(turnId: string, target: Source, messageId: string): Promise<void>;
}

/**
 * The answer of one turn as its chat sees it so far.
 *
 * The first text sends a message, later texts edit it. If the outcome of the first call is unknown,
 * the draft ends: a second call could send it twice. Behind a message that the turn sent meanwhile,
 * the next text deletes the message before, and then sends another one: a process that dies in
 * between leaves nothing that the next one does not know.
 */
export class Draft {
  readonly #hasNews = new Flag();
  readonly #closed = new AbortController();
  #text = "";
  #showing: Promise<void> | undefined;
  isPassed = false;

  constructor(
    private readonly shared: Shared,
    private readonly turnId: string,
    private readonly target: Source,
    /** The message that shows what an earlier attempt had written. */
    public messageId: string | undefined,
  ) {}

  /** Show this text instead of the text before; of a long text its first piece. */
  show(whole: string): void {
    if (this.#closed.signal.aborted || isBlank(whole)) return;
    const { limit } = this.shared;
    const text = limit === undefined ? whole : (splitText(whole, limit)[0] ?? "");
    if (text === this.#text) return;
    this.#text = text;
    this.#hasNews.set();
    this.#showing ??= this.#show();
  }

  /**
   * End the draft, and return the message that the stored answer is to replace.
   *
   * Waits for a call in progress, so that no edit comes after the answer.
   */
  async finish(): Promise<string | undefined> {
    this.#closed.abort();
    await this.#showing;
    return this.messageId;
  }

  /**
   * End the draft and delete its message, which no answer replaces.
   *
   * Throws `RetryAfter` if the platform asks to wait; the message is still there.
   */
  async cancel(): Promise<void> {
    const messageId = await this.finish();
    if (messageId === undefined) return;
    try {
      await this.shared.platform.delete(this.target, messageId);
    } catch (error) {
      if (error instanceof RetryAfter) throw error;
      // A draft must not end the adapter.
      this.shared.log("draft_not_deleted", described(error));
    }
    this.messageId = undefined;
  }

  /** Send the newest text until the draft ends. */
  async #show(): Promise<void> {
    const { platform, budget, log, intervalMs = INTERVAL_MS } = this.shared;
    const { signal } = this.#closed;
    const chat = chatOf(this.target);
    while (!signal.aborted) {
      const busyMs = budget.tryTake(chat);
      if (busyMs > 0) {
        await pause(busyMs, signal);
        continue;
      }
      this.#hasNews.clear();
      const edited = this.isPassed ? undefined : this.messageId;
      try {
        if (edited === undefined) await this.#send();
        else await platform.edit(this.target, edited, this.#text);
      } catch (error) {
        if (error instanceof RetryAfter) {
          // The platform did nothing, so the same call may be made again.
          this.#hasNews.set();
          budget.pauseAfter(error, chat);
        } else {
          log("draft_not_shown", described(error));
          if (edited === undefined) return;
        }
      }
      await pause(intervalMs, signal);
      await this.#hasNews.wait(undefined, signal);
    }
  }

  /** Send the text as a message, which takes the place of the message before. */
  async #send(): Promise<void> {
    if (this.messageId !== undefined) {
      try {
        await this.shared.platform.delete(this.target, this.messageId);
      } catch (error) {
        if (!(error instanceof Undeliverable)) throw error;
      }
      this.messageId = undefined;
    }
    // A message of the turn may come while the platform takes this one.
    const wasPassed = this.isPassed;
    this.isPassed = false;
    let messageId: string;
    try {
      messageId = await this.shared.platform.send(this.target, this.#text);
    } catch (error) {
      this.isPassed ||= wasPassed;
      throw error;
    }
    this.messageId = messageId;
    await this.shared.report(this.turnId, this.target, messageId);
  }
}

/** The drafts of all running turns of an account. */
export class Drafts {
  readonly #drafts = new Map<string, { draft: Draft; text: string }>();
  // Messages of ended drafts. Late pieces of these turns must not begin another draft.
  readonly #finished = new Map<string, string | undefined>();
  // Of these, those whose draft was before another message of the turn, and is deleted.
  readonly #passed = new Set<string>();
  // Ended turns with a draft whose answer or notice is not delivered yet.
  readonly #over = new Set<string>();
  readonly #ending = new Set<Promise<unknown>>();
  readonly #closing = new AbortController();

  constructor(private readonly shared: Shared) {}

  /** Take in what happens in a turn. */
  update(update: TurnUpdate): void {
    const known = this.#drafts.get(update.turn_id);
    if (this.#finished.has(update.turn_id)) return;
    if (update.type === "started") {
      const { turn_id: turnId, source, draft: shown } = update;
      const shownId = shown == null ? undefined : String(shown);
      const draft = known?.draft ?? new Draft(this.shared, turnId, source, shownId);
      this.#drafts.set(turnId, { draft, text: "" });
      for (const oldest of this.#drafts.keys()) {
        if (this.#drafts.size <= MOST_TURNS) break;
        this.#forget(oldest, undefined);
      }
    } else if (known === undefined) {
      return;
    } else if (update.type === "piece" && update.piece.kind === "text") {
      known.text += update.piece.text ?? "";
      known.draft.show(known.text);
    } else if (update.type === "recap") {
      const texts = (update.pieces ?? []).filter((piece) => piece.kind === "text");
      known.text = texts.map((piece) => piece.text ?? "").join("");
      known.draft.show(known.text);
    } else if (update.type === "ended") {
      this.#over.add(update.turn_id);
      // The answer replaces the draft when it is delivered.
      const hasAnswer = (update.outbound_ids ?? []).length > 0;
      const end = hasAnswer ? known.draft.finish() : this.#delete(update.turn_id, known.draft);
      const ending: Promise<unknown> = end.finally(() => this.#ending.delete(ending));
      this.#ending.add(ending);
    }
  }

  /**
   * Return an outbound message with its draft, which is not edited any more.
   *
   * Only the answer, or a notice after the end of the turn, takes the place of a draft.
   */
  async replacing(message: OutboundMessage): Promise<OutboundMessage> {
    const { turn_id: turnId, draft: known } = message;
    if (turnId == null || message.part || message.is_interim) return message;
    if (message.edits != null || isBlank(message.text)) {
      // It replaces another message, or has only files, which a draft cannot become.
      const shown = known == null ? undefined : String(known);
      await this.#discard(turnId, message.target, shown);
      return { ...message, draft: null };
    }
    const isAnswer = (message.kind ?? "answer") === "answer" || known != null;
    // Else a notice in the middle of the turn, for example that the agent is unavailable.
    if (!isAnswer && !this.#over.has(turnId)) return message;
    const draft = await this.#finish(turnId);
    if (draft === undefined && !this.#passed.has(turnId)) return message;
    return { ...message, draft: draft ?? null };
  }

  /** Note that the platform has a message of a turn. */
  noteSent(message: OutboundMessage): void {
    if (message.turn_id == null || !message.is_interim || message.edits != null) return;
    const running = this.#drafts.get(message.turn_id);
    // The answer comes behind this message.
    if (running !== undefined) running.draft.isPassed = true;
  }

  /** End all drafts; their messages stay for the process that delivers the answers. */
  async close(): Promise<void> {
    this.#closing.abort();
    const drafts = [...this.#drafts.values()].map(({ draft }) => draft.finish());
    await Promise.allSettled([...drafts, ...this.#ending]);
  }

  async #discard(turnId: string, target: Source, messageId: string | undefined): Promise<void> {
    let draft = this.#drafts.get(turnId)?.draft;
    // A draft of an earlier process.
    if (draft === undefined && messageId !== undefined && !this.#finished.has(turnId)) {
      draft = new Draft(this.shared, turnId, target, messageId);
    }
    if (draft !== undefined) await this.#cancel(turnId, draft);
  }

  /** Delete a draft without an answer, also if the platform asks to wait. */
  async #delete(turnId: string, draft: Draft): Promise<void> {
    this.#forget(turnId, undefined);
    for (let tries = 0; tries < MOST_DELETIONS && !this.#closing.signal.aborted; tries += 1) {
      try {
        await draft.cancel();
        return;
      } catch (error) {
        if (!(error instanceof RetryAfter)) throw error;
        await pause(error.seconds * 1000, this.#closing.signal);
      }
    }
    this.shared.log("draft_not_deleted", { error: "RetryAfter" });
  }

  async #cancel(turnId: string, draft: Draft): Promise<void> {
    // Known until it is deleted, so that a delivery that waits for the platform deletes it.
    await draft.cancel();
    this.#forget(turnId, undefined);
  }

  async #finish(turnId: string): Promise<string | undefined> {
    const draft = this.#drafts.get(turnId)?.draft;
    const messageId = draft === undefined ? this.#finished.get(turnId) : await draft.finish();
    if (draft?.isPassed) {
      await this.#cancel(turnId, draft);
      this.#passed.add(turnId);
      return undefined;
    }
    this.#forget(turnId, messageId);
    return messageId;
  }

  #forget(turnId: string, messageId: string | undefined): void {
    this.#drafts.delete(turnId);
    this.#over.delete(turnId);
    put(this.#finished, turnId, messageId, MOST_TURNS);
    for (const oldest of this.#passed) {
      if (this.#passed.size <= MOST_TURNS) return;
      this.#passed.delete(oldest);
    }
  }
}
