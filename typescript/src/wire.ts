// Send one confirmed publish or one request, and translate the errors.

import {
  headers,
  type Msg,
  type MsgHdrs,
  RequestError,
  TimeoutError,
} from "@nats-io/transport-node";
import type { Connection } from "./connection.js";
import type { ApiError } from "./contract.js";
import {
  ChatlaneError,
  ConflictingRequestError,
  ConnectionClosedError,
  DecodeError,
  ForbiddenRequestError,
  InvalidAnswerError,
  OversizedMessageError,
  RefusedPublishError,
  RefusedRequestError,
  RetryLaterError,
  SessionNotFoundError,
  StaleRequestError,
  TransientError,
  UnansweredRequestError,
  UnavailableServiceError,
  UnconfirmedPublishError,
} from "./errors.js";
import { backoff, now, pause } from "./timing.js";

/** The largest body that the service reads. */
export const MAX_BODY_BYTES = 256 * 1024;
const ANSWER_WITHIN_MS = 2000;
const HEADER_BYTES = 1024;
// Error codes of a stream without room: by its own limit, the account's or the disk's.
const FULL = new Set([10023, 10047, 10077]);
const BAD_REQUEST = 400;

/** The fields that every message has. */
export interface Envelope {
  v: 1;
  id: string;
  at: string;
}

/** Return the fields of a new message; one that is published again keeps them. */
export function stamp(): Envelope {
  return { v: 1, id: newId(), at: new Date().toISOString() };
}

/** Return a random envelope id. A guessable one would let another account have a message dropped. */
export function newId(): string {
  return crypto.randomUUID().replaceAll("-", "");
}

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder();

export function encode(message: object): Uint8Array {
  return ENCODER.encode(JSON.stringify(message));
}

/**
 * Return the message in a body.
 *
 * Unknown fields are left in it: an older reader understands a newer writer.
 */
export function decode<T extends Envelope>(body: Uint8Array): T {
  let message: unknown;
  try {
    message = JSON.parse(DECODER.decode(body));
  } catch {
    throw new DecodeError("not JSON");
  }
  if (typeof message !== "object" || message === null || Array.isArray(message)) {
    throw new DecodeError("not an object");
  }
  const { v, id } = message as Partial<Envelope>;
  if (v !== 1 || typeof id !== "string") throw new DecodeError("not a message of version 1");
  return message as T;
}

/** The confirmation of a stream; a repeat was there before and is not stored twice. */
export interface Stored {
  sequence: number;
  isRepeat: boolean;
}

export interface PublishOptions {
  /** By which the stream recognises a repeat; by default the id of the envelope. */
  messageId?: string;
  /** Without it, the publish is repeated without a limit. */
  giveUpAfterMs?: number | undefined;
  /** Whether a full stream is tried again like one that does not answer. */
  waitsForRoom?: boolean;
  signal?: AbortSignal | undefined;
}

/** Publish until a stream confirms; each attempt has the same id, so one copy is kept. */
export async function publishStored(
  connection: Connection,
  subject: string,
  message: Envelope,
  options: PublishOptions = {},
): Promise<Stored> {
  const body = encode(message);
  const header = headers();
  header.set("Nats-Msg-Id", options.messageId ?? message.id);
  const until = now() + (options.giveUpAfterMs ?? Number.POSITIVE_INFINITY);
  for (const ms of backoff()) {
    if (await connection.untilConnected(Math.min(until - now(), 1e9), options.signal)) {
      try {
        const stored = await tryPublish(connection, subject, body, header);
        if (stored !== null) return stored;
      } catch (error) {
        if (!(error instanceof RetryLaterError) || options.waitsForRoom === false) throw error;
      }
    }
    if (now() + ms >= until || options.signal?.aborted) break;
    await pause(ms, options.signal);
  }
  throw new UnconfirmedPublishError(`${subject.split(".", 3).join(".")}: not confirmed`);
}

/** Publish once and return the confirmation of the stream; throw what JetStream refuses. */
export async function publishOnce(
  connection: Connection,
  subject: string,
  body: Uint8Array,
  header: MsgHdrs,
  ms = ANSWER_WITHIN_MS,
): Promise<Stored> {
  const answer = await connection.nats.request(subject, body, { timeout: ms, headers: header });
  const { error, seq, duplicate } = answer.json<{
    error?: { code: number; err_code: number; description?: string };
    seq: number;
    duplicate?: boolean;
  }>();
  if (error !== undefined) {
    throw new StreamError(error.code, error.err_code, error.description ?? "refused");
  }
  return { sequence: seq, isRepeat: duplicate ?? false };
}

/** What a stream answers instead of a confirmation. */
export class StreamError extends ChatlaneError {
  constructor(
    readonly status: number,
    readonly code: number,
    readonly description: string,
  ) {
    super(`${description} (${code})`);
  }
}

/** Publish once; null means that the outcome is unknown. */
async function tryPublish(
  connection: Connection,
  subject: string,
  body: Uint8Array,
  header: MsgHdrs,
): Promise<Stored | null> {
  checkSize(connection, subject, body.length + HEADER_BYTES, body.length);
  try {
    const stored = await publishOnce(connection, subject, body, header);
    connection.noteAnswer();
    return stored;
  } catch (error) {
    connection.requireOpen();
    if (error instanceof StreamError) {
      connection.noteAnswer();
      if (FULL.has(error.code)) throw new RetryLaterError(error.message);
      if (error.status === BAD_REQUEST) throw new RefusedPublishError(error.message);
    } else if (error instanceof TimeoutError) {
      await connection.noteSilence();
    }
    // No stream, no answer, an election: the message may be stored.
    return null;
  }
}

/** Publish to those who listen now; without a connection the message is dropped. */
export function publishUnstored(
  connection: Connection,
  subject: string,
  message: Envelope,
  reply?: string,
): void {
  const body = encode(message);
  checkSize(connection, subject, body.length, body.length);
  connection.requireOpen();
  if (!connection.isConnected) return;
  connection.nats.publish(subject, body, reply === undefined ? {} : { reply });
}

function checkSize(connection: Connection, subject: string, bytes: number, body: number): void {
  if (body > MAX_BODY_BYTES || bytes > connection.maxPayload) {
    throw new OversizedMessageError(`${subject.split(".", 3).join(".")}: ${bytes} bytes`);
  }
}

type WithError = Envelope & { error?: ApiError | null };

/** Send a request once and return the answer. */
export async function ask<T extends Envelope>(
  connection: Connection,
  subject: string,
  request: Envelope,
  ms = ANSWER_WITHIN_MS,
): Promise<T> {
  const body = encode(request);
  if (!(await connection.untilConnected(ms))) throw new UnansweredRequestError(subject, true);
  checkSize(connection, subject, body.length, body.length);
  let answer: Msg;
  try {
    answer = await connection.nats.request(subject, body, { timeout: Math.max(1, ms) });
  } catch (error) {
    connection.requireOpen();
    const reachedNobody = error instanceof RequestError && error.isNoResponders();
    throw new UnansweredRequestError(subject, reachedNobody);
  }
  let message: T & WithError;
  try {
    message = decode<T & WithError>(answer.data);
  } catch (error) {
    throw new InvalidAnswerError(`${subject}: ${(error as Error).message}`);
  }
  if (message.error) throw apiError(subject, message.error);
  return message;
}

function apiError(subject: string, error: ApiError): ChatlaneError {
  const text = `${subject}: ${error.message}`;
  switch (error.code) {
    case "unavailable":
      return new UnavailableServiceError(text);
    case "not_found":
      return new SessionNotFoundError(text);
    case "conflict":
      return new ConflictingRequestError(text);
    case "stale":
      return new StaleRequestError(text);
    case "forbidden":
      return new ForbiddenRequestError(text);
    default:
      return new RefusedRequestError(text);
  }
}

/** Send a request until there is an answer; a repeated request keeps its id. */
export async function askUntilAnswered<T extends Envelope>(
  connection: Connection,
  subject: string,
  request: Envelope,
  options: { giveUpAfterMs?: number | undefined; signal?: AbortSignal | undefined } = {},
): Promise<T> {
  const until = now() + (options.giveUpAfterMs ?? Number.POSITIVE_INFINITY);
  let last: unknown = new UnansweredRequestError(subject, false);
  for (const ms of backoff()) {
    options.signal?.throwIfAborted();
    try {
      const answer = await ask<T>(connection, subject, request);
      options.signal?.throwIfAborted();
      return answer;
    } catch (error) {
      if (!(error instanceof TransientError)) throw error;
      last = error;
    }
    if (now() + ms >= until) throw last;
    await pause(ms, options.signal);
  }
  throw new ConnectionClosedError("pauses never end");
}
