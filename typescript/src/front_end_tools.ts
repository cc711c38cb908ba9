// Call tools that run in the front end of the person of a turn.

import { createHash } from "node:crypto";
import type { FrontEndCall, FrontEndTool } from "./contract.js";
import { FrontEndCallError } from "./errors.js";
import { Locks } from "./locks.js";
import { asciiJson } from "./steps.js";
import type { Turn } from "./turn.js";

const WITHIN_MS = 5 * 60_000;
const LARGEST_ARGUMENTS = 60 * 1024;
const CALL_ID_LENGTH = 32;

/**
 * The tools of the front end of a turn, called one after the other; make one object for a turn.
 *
 * A call is known by its tool, its arguments, and how many calls before it had the same. Another
 * attempt at the turn that makes the same call gets the result that is there.
 *
 * The front end wrote names, descriptions and schemas. They are as trustworthy as its person.
 */
export class FrontEndTools {
  /** The tools, by name. */
  readonly declared: ReadonlyMap<string, FrontEndTool>;
  readonly #called = new Map<string, number>();
  // A turn has one open question at a time, and a model may make several calls at once.
  readonly #calling = new Locks();

  constructor(
    private readonly turn: Pick<Turn, "frontEnd" | "callFrontEnd">,
    /** Time for the result of a call. */
    private readonly withinMs = WITHIN_MS,
  ) {
    const tools = turn.frontEnd?.tools ?? [];
    this.declared = new Map(tools.map((tool) => [tool.name, tool]));
  }

  /**
   * Call a tool and return its result, as the front end wrote it.
   *
   * The arguments have to be JSON of at most 60 KiB. Throws `FrontEndCallError` if the front end has
   * no such tool, the arguments cannot be sent, or there is no result in time.
   */
  async call(name: string, args: Record<string, unknown> = {}): Promise<string> {
    if (!this.declared.has(name)) {
      throw new FrontEndCallError("the front end has no such tool");
    }
    const call = this.#callOf(name, argumentsOf(args));
    const answer = await this.#calling.run("", () => this.turn.callFrontEnd(call, this.withinMs));
    if (answer.value == null) {
      throw new FrontEndCallError("the front end has not answered in time");
    }
    return answer.value;
  }

  #callOf(name: string, text: string): FrontEndCall {
    const digest = digestOf(`${name}\0${text}`);
    const number = (this.#called.get(digest) ?? 0) + 1;
    this.#called.set(digest, number);
    const id = digestOf(`${digest} ${number}`).slice(0, CALL_ID_LENGTH);
    return { id, name, arguments: text };
  }
}

function argumentsOf(args: Record<string, unknown>): string {
  try {
    const text = jsonOf(args);
    if (text.length <= LARGEST_ARGUMENTS) return text;
  } catch {
    // No JSON, or a cycle.
  }
  throw new FrontEndCallError("the arguments are no JSON, or too large");
}

/**
 * Return a value as JSON text, the same for equal values.
 *
 * It is the text of the Python client, so that a worker in the other language knows the call. A
 * property that is undefined is left out.
 */
function jsonOf(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(jsonOf).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    const prototype = Object.getPrototypeOf(value);
    if (prototype !== Object.prototype && prototype !== null) throw new TypeError("no JSON");
    const entries = Object.entries(value).filter(([, it]) => it !== undefined);
    entries.sort(([one], [other]) => (one < other ? -1 : 1));
    return `{${entries.map(([key, it]) => `${jsonOf(key)}: ${jsonOf(it)}`).join(", ")}}`;
  }
  const isJson = value === null || ["string", "boolean"].includes(typeof value);
  if (!isJson && !Number.isFinite(value)) throw new TypeError("no JSON");
  return asciiJson(JSON.stringify(value));
}

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
