// The errors of the client: those that a caller sees, and those that a handler throws.

import type { DeliveryFailure, TranscriptRow } from "./contract.js";

/** Something that the service or NATS did not do. */
export class ChatlaneError extends Error {
  constructor(message: string) {
    super(message);
    this.name = new.target.name;
  }
}

/** Trying again may succeed. */
export class TransientError extends ChatlaneError {}

/** No answer in time; the request may have taken effect. */
export class UnansweredRequestError extends TransientError {
  constructor(
    readonly subject: string,
    readonly reachedNobody: boolean,
  ) {
    super(`${subject}: ${reachedNobody ? "nobody serves it" : "no answer"}`);
  }
}

/** The service cannot answer now. */
export class UnavailableServiceError extends TransientError {}

/** The log is full: publish the same event again after `afterMs`. */
export class RetryLaterError extends TransientError {
  afterMs = 1000;
}

/** No confirmation in time: the message may be stored. Publish the same message again. */
export class UnconfirmedPublishError extends TransientError {}

/** Trying again is of no use. */
export class PermanentError extends ChatlaneError {}

export class RefusedRequestError extends PermanentError {}
export class ForbiddenRequestError extends RefusedRequestError {}
export class ConflictingRequestError extends RefusedRequestError {}
export class StaleRequestError extends RefusedRequestError {}
export class SessionNotFoundError extends RefusedRequestError {}
export class RefusedPublishError extends PermanentError {}

/** The answer does not follow the contract. */
export class InvalidAnswerError extends PermanentError {}

/** The message is larger than its reader or the server accepts, and was not sent. */
export class OversizedMessageError extends PermanentError {}

/** chatlane.toml does not declare the account. */
export class UndeclaredAccountError extends PermanentError {}

/** The connection is closed for good. */
export class ConnectionClosedError extends PermanentError {}

/** A person changed a message of the turn while its question was open. */
export class QuestionWithdrawnError extends ChatlaneError {}

/** Why an editor did not do it: it cannot, its person did not allow it, or it tried. */
export type EditorError = "unsupported" | "refused" | "failed";

/** An editor did not do what a turn called it for. */
export class EditorCallError extends PermanentError {
  constructor(
    message: string,
    /** Why; undefined if no editor answered in time. */
    readonly reason?: EditorError,
  ) {
    super(message);
  }
}

/** A call of a tool of the front end of a turn has no result. */
export class FrontEndCallError extends PermanentError {}

/** A body that is not a message of this version. */
export class DecodeError extends ChatlaneError {}

/** Thrown by a handler: the turn fails, for good or to be tried again. */
export class TurnFailedError extends Error {
  readonly retry: boolean;
  readonly transcript: TranscriptRow[];

  constructor(message: string, options: { retry?: boolean; transcript?: TranscriptRow[] } = {}) {
    super(message);
    this.retry = options.retry ?? false;
    this.transcript = options.transcript ?? [];
  }
}

/** A step of a turn cannot be kept: its name is taken, or its result is no JSON or too large. */
export class StepError extends TurnFailedError {}

/** Thrown by a handler: the agent cannot answer now, and the attempt does not count. */
export class AgentUnavailableError extends Error {
  readonly againInMs: number | undefined;
  readonly transcript: TranscriptRow[];

  constructor(message: string, options: { againInMs?: number; transcript?: TranscriptRow[] } = {}) {
    super(message);
    this.againInMs = options.againInMs;
    this.transcript = options.transcript ?? [];
  }
}

/** Thrown by a delivery: the platform wants a pause, for the chat or for the whole account. */
export class RetryAfter extends Error {
  constructor(
    readonly seconds: number,
    readonly wholeAccount = false,
  ) {
    super(`the platform wants a pause of ${seconds} s`);
  }
}

/** Thrown by a delivery: this message is given up. */
export class Undeliverable extends Error {
  constructor(
    reason: string,
    readonly failure: DeliveryFailure = "refused",
  ) {
    super(reason);
  }
}

/** Thrown by a delivery: this message and all that waits for the chat are given up. */
export class ChatGone extends Undeliverable {
  constructor(reason: string, failure: DeliveryFailure = "gone") {
    super(reason, failure);
  }
}
