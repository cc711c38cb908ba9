// Run steps of a turn whose results later attempts at the turn get back.

import { isDeepStrictEqual } from "node:util";
import type { StepReply, TurnKeep, TurnStep } from "./contract.js";
import { ConflictingRequestError, RefusedRequestError, StepError } from "./errors.js";
import type { ClaimClient, Grant } from "./grant.js";
import type { QuestionAnswer } from "./turn.js";
import { stamp } from "./wire.js";

const LONGEST_NAME = 256;
const LARGEST_RESULT = 120 * 1024;
const ANSWER_PREFIX = "ask:";

/** Runs the steps of one attempt at a turn, each name once. */
export class TurnSteps {
  readonly #names = new Set<string>();

  constructor(
    private readonly claims: Pick<ClaimClient, "request">,
    private readonly grant: Pick<Grant, "turnId" | "sessionId" | "attempt" | "token">,
    private readonly signal: AbortSignal,
  ) {}

  /** Return the result of a step that an earlier attempt has kept, or run and keep it. */
  async run<T>(name: string, step: () => T | Promise<T>): Promise<T> {
    this.#take(name);
    try {
      const kept = (await this.#find(name)) ?? (await this.#keep(name, jsonOf(await step())));
      return JSON.parse(kept);
    } catch (error) {
      // The handler may try a step again that has failed.
      this.#names.delete(name);
      throw error;
    }
  }

  /** Return the answer to a question that parked the turn. */
  async answer(name: string): Promise<QuestionAnswer | undefined> {
    const kept = await this.#find(ANSWER_PREFIX + name);
    if (kept == null) return undefined;
    const { value, values, is_default } = JSON.parse(kept);
    return { value, values, isDefault: is_default };
  }

  #take(name: string): void {
    if (name.length < 1 || name.length > LONGEST_NAME) {
      throw new StepError(`the name of a step has 1 to ${LONGEST_NAME} characters`);
    }
    if (name.startsWith(ANSWER_PREFIX)) {
      throw new StepError(`the name of a step does not begin with ${ANSWER_PREFIX}`);
    }
    if (this.#names.has(name)) throw new StepError("two steps of the turn have the same name");
    this.#names.add(name);
  }

  async #find(name: string): Promise<string | null | undefined> {
    // Nothing was kept before the first attempt.
    if (this.grant.attempt === 1) return null;
    const request: TurnStep = { ...this.#stamp(), name };
    return (await this.claims.request<StepReply>("turn", "step", request, this.signal)).result;
  }

  async #keep(name: string, result: string): Promise<string> {
    const request: TurnKeep = { ...this.#stamp(), name, result };
    try {
      const reply = await this.claims.request<StepReply>("turn", "keep", request, this.signal);
      // A turn that is to end keeps nothing.
      return reply.result ?? result;
    } catch (error) {
      if (error instanceof RefusedRequestError && !(error instanceof ConflictingRequestError)) {
        throw new StepError(error.message);
      }
      throw error;
    }
  }

  #stamp() {
    const { turnId, sessionId, attempt, token } = this.grant;
    return { ...stamp(), session_id: sessionId, turn_id: turnId, attempt, token };
  }
}

/** Return a JSON text with escapes instead of other than ASCII characters. */
export function asciiJson(text: string): string {
  return text.replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Return a result as JSON text of ASCII characters. */
function jsonOf(result: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(result);
  } catch {
    // A cycle, or a bigint.
  }
  if (text === undefined || !isDeepStrictEqual(JSON.parse(text), result)) {
    throw new StepError("the result of a step is no JSON: it would come back as something else");
  }
  const ascii = asciiJson(text);
  if (ascii.length > LARGEST_RESULT) {
    throw new StepError(`the result of a step has more than ${LARGEST_RESULT} bytes of JSON`);
  }
  return ascii;
}
