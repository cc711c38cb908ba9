// The session API: what front ends, operators and workers ask about sessions.

import type { Connection } from "./connection.js";
import type {
  Attachment,
  OpenQuestionView,
  Person,
  QuestionReply,
  QuestionViewReply,
  SessionCreate,
  SessionGet,
  SessionList,
  SessionListReply,
  SessionReply,
  SessionStop,
  SessionSubmit,
  SessionView,
  StopReply,
  TranscriptEntry,
  TranscriptLoad,
  TranscriptReply,
  TurnEnded,
  TurnOutcome,
  TurnQuestion,
  TurnReply,
} from "./contract.js";
import { InvalidAnswerError } from "./errors.js";
import { TurnReader } from "./live/turn_reader.js";
import * as subjects from "./subjects.js";
import { askUntilAnswered, type Envelope, stamp } from "./wire.js";

const CHAT_ORIGIN = "chat";
const PATIENCE_MS = 10_000;
// Events may get lost, so the transcript is read again after this time.
const LOOK_AGAIN_MS = 2000;

export interface SessionApiOptions {
  /** The name that the permissions of the connection allow in requests. */
  principal: string;
  /** The person whose sessions it reads and changes; without one, all. */
  actingFor?: Person;
  /** The agent whose sessions a worker reads and changes. */
  agent?: string;
  /** Whether the caller is an operator; required for an operator to act for a person. */
  isOperator?: boolean;
  /** When to give up on a request; 10 s by default. */
  patienceMs?: number;
}

/** A message that was submitted to a session, and its answer if the caller waited. */
export interface Submission {
  /** The session that received it: another one if the given session was compacted. */
  session: SessionView;
  messageId: string;
  turnId: string | undefined;
  /** How the turn ended that answered it. */
  outcome?: TurnOutcome;
  answer?: string;
  /** What the chat was told if the turn failed. */
  notice?: string;
}

type Fields<T> = Omit<T, "v" | "id" | "at" | "acting_for">;

/**
 * Reads and changes sessions; repeats each request until there is an answer.
 *
 * A change keeps its id over the repetitions, so the service makes it once. A caller that may restart
 * in between passes a `requestId` and keeps it.
 */
export class SessionApi {
  constructor(
    private readonly connection: Connection,
    private readonly options: SessionApiOptions,
  ) {}

  /** Send any request of the contract, such as `request("session", "title", { ... })`. */
  async request<T extends Envelope>(
    noun: string,
    verb: string,
    fields: object,
    requestId?: string,
  ): Promise<T> {
    const { principal, actingFor, agent, isOperator, patienceMs = PATIENCE_MS } = this.options;
    const subject =
      actingFor === undefined || isOperator
        ? subjects.api(principal, noun, verb, agent)
        : subjects.apiForAccount(principal, noun, verb, actingFor.platform, actingFor.account);
    const request = {
      ...stamp(),
      ...(requestId === undefined ? {} : { id: requestId }),
      ...(actingFor === undefined ? {} : { acting_for: actingFor }),
      ...fields,
    };
    return await askUntilAnswered<T>(this.connection, subject, request, {
      giveUpAfterMs: patienceMs,
    });
  }

  /** Open a session, on a lane or without one. */
  async create(fields: Fields<SessionCreate> = {}, requestId?: string): Promise<SessionView> {
    const reply = await this.request<SessionReply>("session", "create", fields, requestId);
    return sessionOf(reply);
  }

  async get(sessionId: string): Promise<SessionView> {
    const fields: Fields<SessionGet> = { session_id: sessionId };
    return sessionOf(await this.request<SessionReply>("session", "get", fields));
  }

  /** Return one page of sessions; `next_cursor` is the `cursor` of the next one. */
  async listPage(filters: Fields<SessionList> = {}): Promise<SessionListReply> {
    return await this.request("session", "list", filters);
  }

  /** Yield the sessions that match all filters, newest first. */
  async *list(
    filters: Omit<Fields<SessionList>, "cursor"> = {},
  ): AsyncGenerator<SessionView, void> {
    let cursor: string | null | undefined;
    do {
      const page = await this.listPage(cursor == null ? filters : { ...filters, cursor });
      yield* page.sessions ?? [];
      cursor = page.next_cursor;
    } while (cursor != null);
  }

  /**
   * Submit a message to a session; it is queued like a message of a chat.
   *
   * With `wait`, return after the turn that answers it has ended, with the answer. Sessions of stream
   * agents have no turns.
   */
  async submit(
    sessionId: string,
    text: string,
    options: { attachments?: Attachment[]; requestId?: string; wait?: boolean } = {},
  ): Promise<Submission> {
    const { attachments = [], requestId } = options;
    const fields: Fields<SessionSubmit> = { session_id: sessionId, text, attachments };
    const reply = await this.request<SessionReply>("session", "submit", fields, requestId);
    if (!reply.message_id) throw new InvalidAnswerError("a submitted message has no id");
    const submission: Submission = {
      session: sessionOf(reply),
      messageId: reply.message_id,
      turnId: reply.turn_id ?? undefined,
    };
    return options.wait ? await this.#waitForAnswer(submission) : submission;
  }

  /** Yield the transcript in pages, newest page first, each page oldest row first. */
  async *pages(
    sessionId: string,
    options: Omit<Fields<TranscriptLoad>, "session_id" | "cursor"> = {},
  ): AsyncGenerator<TranscriptEntry[], void> {
    let place: Pick<TranscriptLoad, "before_seq" | "cursor"> | undefined = {};
    while (place !== undefined) {
      const fields: Fields<TranscriptLoad> = { ...options, session_id: sessionId, ...place };
      const page: TranscriptReply = await this.request("transcript", "load", fields);
      yield page.rows ?? [];
      const { next_before_seq: before, next_cursor: cursor } = page;
      place = before == null && cursor == null ? undefined : { before_seq: before, cursor };
    }
  }

  /** Return the whole transcript, oldest row first. */
  async transcript(sessionId: string): Promise<TranscriptEntry[]> {
    let rows: TranscriptEntry[] = [];
    for await (const page of this.pages(sessionId)) rows = [...page, ...rows];
    return rows;
  }

  /** End the running turn of a session, and drop the messages that wait. */
  async stop(sessionId: string, requestId?: string): Promise<StopReply> {
    const fields: Fields<SessionStop> = { session_id: sessionId };
    return await this.request("session", "stop", fields, requestId);
  }

  /**
   * Return the updates of the turns of a session, from now on, for `for await`.
   *
   * A turn that runs already begins with a recap, if its worker offers one. Updates that come while
   * the connection is down are lost: only the transcript is complete. Leaving the loop, or `close`,
   * ends it.
   */
  async watch(sessionId: string): Promise<TurnReader> {
    const session = await this.get(sessionId);
    const { agent } = session;
    const reader = new TurnReader(this.connection, this.#livePaths(session), { agent });
    await reader.open();
    reader.askForRecap(session.id);
    return reader;
  }

  /** Return the open question of the running turn of a session, if there is one. */
  async question(sessionId: string): Promise<OpenQuestionView | undefined> {
    const fields: Fields<TurnQuestion> = { session_id: sessionId };
    const reply = await this.request<QuestionViewReply>("turn", "question", fields);
    return reply.question ?? undefined;
  }

  /** Answer the open question of a session, by a value or by the values of its form. */
  async reply(
    sessionId: string,
    questionId: string,
    answer: Pick<TurnReply, "value" | "values">,
    requestId?: string,
  ): Promise<void> {
    const fields: Fields<TurnReply> = {
      session_id: sessionId,
      question_id: questionId,
      ...answer,
    };
    await this.request<QuestionReply>("turn", "reply", fields, requestId);
  }

  /**
   * Return a submission with its answer, once the turn that answers it is over.
   *
   * The transcript decides whether it is over. It does not tell why, so the event has a moment to
   * arrive.
   */
  async #waitForAnswer(submission: Submission): Promise<Submission> {
    const { session } = submission;
    const ended = new Map<string, TurnEnded>();
    const paths = this.#livePaths(session);
    const reader = await new TurnReader(this.connection, paths, { withPieces: false }).open();
    try {
      let wasOver = false;
      for (;;) {
        const isBusy = (await this.get(session.id)).is_busy ?? false;
        const found = answered(submission, await this.#rowsSince(submission), ended, isBusy);
        const isKnown = found?.turnId === undefined || ended.has(found.turnId);
        if (found !== undefined && (wasOver || isKnown)) return found;
        wasOver = found !== undefined;
        for (const update of await reader.take(LOOK_AGAIN_MS)) {
          if (update.type === "ended") ended.set(update.turn_id, update);
        }
      }
    } finally {
      reader.close();
    }
  }

  /** Return where turns of a session are announced, as far as the permissions of the caller reach. */
  #livePaths(session: SessionView): subjects.LivePath[] {
    const { actingFor, isOperator, principal } = this.options;
    if (actingFor === undefined || isOperator) return [{ sessionId: session.id }];
    const { platform, account } = actingFor;
    const own = { audience: "person", sessionId: session.id };
    const paths = [{ platform, account, ...own }];
    // A session without a lane belongs to the principal that opened it. The users of NATS have no
    // right to hear its turns; a front end that is one reads the transcript again instead.
    const isSame = session.platform === platform && principal === account;
    if (session.origin !== CHAT_ORIGIN && !isSame && !this.connection.isUser) {
      paths.push({ platform: session.platform, account: principal, ...own });
    }
    return paths;
  }

  /** Return the newest rows of a session, oldest first, back to a submitted message. */
  async #rowsSince(submission: Submission): Promise<TranscriptEntry[]> {
    let rows: TranscriptEntry[] = [];
    for await (const page of this.pages(submission.session.id, { as_stored: true })) {
      rows = [...page, ...rows];
      if (page.some((row) => row.message_id === submission.messageId)) break;
    }
    return rows;
  }
}

/** Return a submission with its answer; undefined if the answer is still to come. */
export function answered(
  submission: Submission,
  rows: TranscriptEntry[],
  ended: ReadonlyMap<string, TurnEnded>,
  isBusy: boolean,
): Submission | undefined {
  const own = rows.find((row) => row.message_id === submission.messageId);
  const turnId = own?.turn_id ?? submission.turnId;
  if (own === undefined || (turnId === undefined && own.unanswered == null)) return undefined;
  const later = rows.filter((row) => row.seq > own.seq);
  // What the turn said before, as its question, is no answer to this message.
  const texts = later
    .filter((row) => turnId !== undefined && row.turn_id === turnId && row.role === "assistant")
    .flatMap((row) => row.content || []);
  const found: Submission = { ...submission, turnId };
  if (texts.length > 0) found.answer = texts.join("\n\n");
  const end = turnId === undefined ? undefined : ended.get(turnId);
  if (end !== undefined) {
    found.outcome = end.outcome;
    if (end.notice != null) found.notice = end.notice;
    return found;
  }
  // A later turn proves that this one is over; its own rows do not, because it may speak before.
  const isOver = later.some((row) => row.turn_id != null && row.turn_id !== turnId);
  if (own.unanswered == null && isBusy && !isOver) return undefined;
  if (own.unanswered != null) found.outcome = own.unanswered === "failed" ? "failed" : "cancelled";
  else found.outcome = texts.length > 0 ? "ok" : "no_reply";
  return found;
}

function sessionOf(reply: SessionReply): SessionView {
  if (!reply.session) throw new InvalidAnswerError("a reply has no session");
  return reply.session;
}
