// The input of a turn handler, and its possible answers.

import type {
  Button,
  CancelReason,
  EditorCall,
  FormField,
  FrontEnd,
  FrontEndCall,
  LivePiece,
  OutboxReply,
  Part,
  QuestionKind,
  QuestionReply,
  Source,
  TranscriptEntry,
  TranscriptLoad,
  TranscriptReply,
  TranscriptRow,
  TurnAnswer,
  TurnAsk,
  TurnMessage,
  TurnSay,
} from "./contract.js";
import { InvalidAnswerError, QuestionWithdrawnError } from "./errors.js";
import type { ClaimClient, Grant } from "./grant.js";
import type { LiveOutput } from "./live_output.js";
import { promptOf } from "./prompt.js";
import { TurnSteps } from "./steps.js";
import { Flag } from "./timing.js";
import { stamp } from "./wire.js";

// A control message that says that there is an answer may get lost.
const LOOK_EVERY_MS = 2000;
const MAX_PAGE_ROWS = 500;
const DEFAULT_NAME = "answer";

/** An answer of one or several messages. Without parts the turn ends without a message. */
export interface Reply {
  /** Messages to the chat, in order; those that say nothing are left out by the service. */
  parts?: Array<string | Part>;
  /** Rows for the transcript; without any, each part becomes a row of the assistant. */
  transcript?: TranscriptRow[];
  /** Named counts, such as tokens; the session has their sums. */
  usage?: Record<string, number>;
  /** Named amounts as decimals in text, such as `{ cost_usd: "0.0042" }`. */
  costs?: Record<string, string>;
  /** Named values of which the session has the latest. */
  gauges?: Record<string, number>;
  /** Note for the next session. */
  carryOver?: string;
}

/** What a question has besides its words. */
export interface QuestionFields {
  /** The possible answers, as buttons; without any, the next message is the answer. */
  options?: Array<string | Button>;
  /** The fields of a form, instead of options. */
  fields?: FormField[];
  /** The answer if there is none in time. */
  default?: string;
  kind?: QuestionKind;
}

/**
 * Asks the person, and gives the turn up until the answer: a handler returns it.
 *
 * The answer, the deadline, or an edit of a message of the turn begins another attempt, which gets
 * the answer from `turn.answer`.
 */
export class Ask {
  constructor(
    readonly message: string | Part,
    /** `until` is at most 90 days from now. The last answer of a name counts. */
    readonly fields: QuestionFields & { until: Date; name?: string },
  ) {}

  get name(): string {
    return this.fields.name ?? DEFAULT_NAME;
  }
}

/** A string, a `Reply` or an `Ask`; null ends the turn without a message. */
export type Answer = string | Reply | Ask | null;

/**
 * Answers a turn.
 *
 * A handler that throws fails the attempt, and the turn is tried again up to the attempts of its
 * agent. `turn.signal` is aborted when the turn is to end: the handler may throw, or return what it
 * has, within `windDownMs` of the worker.
 */
export type Handler = (turn: Turn) => Answer | Promise<Answer>;

/** What a person answered, or the default if there was no answer in time. */
export interface QuestionAnswer {
  value: string | undefined;
  isDefault: boolean;
  /** The values of a form by the names of its fields. */
  values: Record<string, string | number | boolean> | undefined;
}

/** The state of a running turn that control messages and renewals change. */
export class Signals {
  cancelReason: CancelReason | undefined;
  isStopping = false;
  readonly hasNews = new Flag();
  readonly hasAnswer = new Flag();
  readonly #abort = new AbortController();

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  tell(cancel: CancelReason | null | undefined, steer: boolean | undefined): void {
    if (steer) this.hasNews.set();
    if (!cancel) return;
    this.cancelReason = cancel;
    this.#end();
  }

  handBack(): void {
    this.isStopping = true;
    this.#end();
  }

  lose(): void {
    this.#end();
  }

  #end(): void {
    this.#abort.abort(new DOMException("the turn is to end", "AbortError"));
  }
}

/** One unit of work: the messages since the last answer, in order. */
export class Turn {
  readonly id: string;
  readonly sessionId: string;
  readonly sessionKey: string;
  /** 1 at first; above 1, tools may have run before. */
  readonly attempt: number;
  /** Where the answer goes. */
  readonly source: Source;
  readonly messages: readonly TurnMessage[];
  readonly #steps: TurnSteps;

  constructor(
    readonly agent: string,
    readonly grant: Grant,
    private readonly signals: Signals,
    private readonly claims: ClaimClient,
    private readonly output: LiveOutput,
  ) {
    this.id = grant.turnId;
    this.sessionId = grant.sessionId;
    this.sessionKey = grant.reply.session_key ?? "";
    this.attempt = grant.attempt;
    this.source = grant.source;
    this.messages = grant.messages;
    this.#steps = new TurnSteps(claims, grant, signals.signal);
  }

  /** The text of all messages, one message a line. */
  get text(): string {
    return this.messages.flatMap((message) => message.text || []).join("\n");
  }

  /** Text for a model: each message after a header with its sender, its reply and its files. */
  get prompt(): string {
    return promptOf(this.messages);
  }

  /** Tools and context of the front end, from the newest message that has any. */
  get frontEnd(): FrontEnd | undefined {
    return this.messages.findLast((message) => message.front_end != null)?.front_end ?? undefined;
  }

  /**
   * The reply to the claim, for what has no property here: `prompt_context`, `reset_reason`,
   * `opening_note`, `interruption`, `model_override`, `undelivered`, `earlier_rows` and others.
   */
  get claim() {
    return this.grant.reply;
  }

  /** Aborted when the turn is to end: stopped, interrupted, handed back, or lost. */
  get signal(): AbortSignal {
    return this.signals.signal;
  }

  /** Why the turn is to end before its answer; undefined while it may go on, and if it is lost. */
  get cancelReason(): CancelReason | undefined {
    return this.signals.cancelReason;
  }

  /** True if the turn is handed back because the worker stops. */
  get isStopping(): boolean {
    return this.signals.isStopping;
  }

  /** Return the newest rows of the transcript before this turn, oldest first. */
  async history(limit = 100): Promise<TranscriptEntry[]> {
    const { history } = this.grant.reply;
    if (!history) throw new InvalidAnswerError("the claim has no place of the history");
    let rows: TranscriptEntry[] = [];
    let before: number | null | undefined = history.before_seq;
    let cursor: string | null | undefined;
    do {
      const request: TranscriptLoad = {
        ...stamp(),
        session_id: history.session_id,
        limit: Math.min(limit, MAX_PAGE_ROWS),
        before_seq: before ?? null,
        cursor: cursor ?? null,
      };
      const page: TranscriptReply = await this.claims.request(
        "transcript",
        "load",
        request,
        this.signal,
      );
      rows = [...(page.rows ?? []), ...rows];
      before = page.next_before_seq;
      cursor = page.next_cursor;
    } while (rows.length < limit && (before != null || cursor != null));
    return withoutPartedResults(rows, limit);
  }

  /**
   * Run a function once in all attempts of the turn, and return its result, which has to be JSON.
   *
   * If the worker is killed while the function runs, or before its result is kept, the next attempt
   * runs it again. A failure is not kept.
   */
  step<T>(name: string, step: () => T | Promise<T>): Promise<T> {
    return this.#steps.run(name, step);
  }

  /** Show the next part of the answer to readers; it is not stored and may get lost. */
  delta(text: string): void {
    this.show({ kind: "text", text });
  }

  /** Show a thought, tool call, plan or note of progress to readers. */
  show(piece: LivePiece): void {
    this.output.show(piece);
  }

  /** Wait for messages that arrive for this turn while it runs; each is answered by this turn. */
  async *steered(): AsyncGenerator<TurnMessage, void> {
    for (;;) {
      await this.signals.hasNews.wait(undefined, this.signal);
      this.signal.throwIfAborted();
      yield* await this.#take();
    }
  }

  /** Return the messages that have arrived for this turn, without waiting for more. */
  async takeSteered(): Promise<TurnMessage[]> {
    return this.signals.hasNews.isSet ? await this.#take() : [];
  }

  /**
   * Send a message before the answer, and return its id; it counts as an answer.
   *
   * Another attempt that says the same key sends nothing.
   */
  async say(message: string | Part, key?: string): Promise<string> {
    const request: TurnSay = { ...this.#stamp(), message: partOf(message), key: key ?? null };
    const reply = await this.claims.request<OutboxReply>("turn", "say", request, this.signal);
    if (!reply.message_id) throw new InvalidAnswerError("a message has no id");
    return reply.message_id;
  }

  /**
   * Ask the person, and wait for the answer.
   *
   * The turn goes on meanwhile: its lease is renewed. With `fields` the question is a form.
   */
  async ask(
    message: string | Part,
    options: QuestionFields & { withinMs: number },
  ): Promise<QuestionAnswer> {
    return await this.#answerTo(this.#question(message, options, options.withinMs));
  }

  /** Let the editor of the person do something, and return its result; see `EditorTools`. */
  async callEditor(call: EditorCall, message: string, withinMs: number): Promise<QuestionAnswer> {
    return await this.#answerTo({ ...this.#question(message, {}, withinMs), call });
  }

  /** Let the front end of the person run a tool, and return its result; see `FrontEndTools`. */
  async callFrontEnd(call: FrontEndCall, withinMs: number): Promise<QuestionAnswer> {
    // An earlier attempt may have made the same call.
    const known = await this.answer(call.id);
    if (known !== undefined) return known;
    const asked = this.#question(`Run ${call.name}`, { kind: "call" }, withinMs);
    return await this.#answerTo({ ...asked, front_end_call: call });
  }

  async #answerTo(request: TurnAsk): Promise<QuestionAnswer> {
    const asked = await this.claims.request<QuestionReply>("turn", "ask", request, this.signal);
    if (!asked.question_id || !asked.due_at) throw new InvalidAnswerError("a question has no id");
    for (;;) {
      this.signals.hasAnswer.clear();
      const look: TurnAnswer = { ...this.#stamp(), question_id: asked.question_id };
      const reply = await this.claims.request<QuestionReply>("turn", "answer", look, this.signal);
      if (reply.state === "answered" || reply.state === "expired") {
        return {
          value: reply.answer ?? undefined,
          isDefault: reply.state === "expired",
          values: reply.values ?? undefined,
        };
      }
      if (reply.state === "withdrawn") {
        throw new QuestionWithdrawnError("a message of the turn was changed");
      }
      const left = Math.max(50, Date.parse(asked.due_at) - Date.now());
      await this.signals.hasAnswer.wait(Math.min(LOOK_EVERY_MS, left), this.signal);
    }
  }

  /**
   * Return the answer to the question that an earlier attempt has returned as `Ask`.
   *
   * Undefined if it was not asked, or is to be asked again because a message of the turn was edited.
   */
  answer(name = DEFAULT_NAME): Promise<QuestionAnswer | undefined> {
    return this.#steps.answer(name);
  }

  /** End the attempt with a question; false if the router is too old to park turns. */
  async park(ask: Ask): Promise<boolean> {
    const within = ask.fields.until.getTime() - Date.now();
    const request = { ...this.#question(ask.message, ask.fields, within), park_as: ask.name };
    const reply = await this.claims.request<QuestionReply>("turn", "ask", request, this.signal);
    return reply.parked ?? false;
  }

  #question(message: string | Part, fields: QuestionFields, withinMs: number): TurnAsk {
    return {
      ...this.#stamp(),
      message: partOf(message),
      within_ms: Math.max(1, Math.round(withinMs)),
      options: (fields.options ?? []).map((it) => (typeof it === "string" ? { label: it } : it)),
      fields: fields.fields ?? [],
      kind: fields.kind ?? null,
      default: fields.default ?? null,
    };
  }

  async #take(): Promise<TurnMessage[]> {
    const last = this.grant.takenIn.at(-1) ?? this.grant.messages.at(-1);
    this.signals.hasNews.clear();
    try {
      const reply = await this.claims.take(this.grant, last?.seq ?? 0, this.signal);
      const messages = reply.messages ?? [];
      this.grant.takenIn.push(...messages);
      return messages;
    } catch (error) {
      this.signals.hasNews.set();
      throw error;
    }
  }

  #stamp() {
    const { turnId, sessionId, attempt, token } = this.grant;
    return { ...stamp(), session_id: sessionId, turn_id: turnId, attempt, token };
  }
}

function partOf(message: string | Part): Part {
  return typeof message === "string" ? { text: message } : message;
}

/** Return the last rows, without results at their beginning whose call is left out. */
function withoutPartedResults(rows: TranscriptEntry[], limit: number): TranscriptEntry[] {
  let first = Math.max(0, rows.length - limit);
  while (first > 0 && rows[first]?.role === "tool") first += 1;
  return rows.slice(first);
}
