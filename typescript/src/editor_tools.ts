// Use the files and the terminal of the editor in which the person of a turn writes.

import type { EditorCall } from "./contract.js";
import { EditorCallError, type EditorError, InvalidAnswerError } from "./errors.js";
import type { Turn } from "./turn.js";

const WITHIN_MS = 5 * 60_000;
const KILL_AFTER_MS = 2 * 60_000;
const OUTPUT_BYTES = 32 * 1024;
const PLAIN_WORD = /^[\w@%+=:,./-]+$/;

/** The result of a command; it can be the result of a step. */
export interface CommandResult {
  /** The end of its output, stdout and stderr together. */
  output: string;
  /** Null if a signal ended it. */
  exitCode: number | null;
  signal: string | null;
  /** Whether the beginning of the output is missing. */
  isTruncated: boolean;
  /** Whether it was killed because it took too long. */
  isTimedOut: boolean;
}

/** A result as the answer of the question has it, in a JSON text. */
interface EditorResult {
  error?: EditorError | null;
  message?: string | null;
  content?: string | null;
  output?: string | null;
  truncated?: boolean;
  exit_code?: number | null;
  signal?: string | null;
  timed_out?: boolean;
}

/**
 * Calls the editor of a turn, one call at a time.
 *
 * The editor asks its person before it writes a file, runs a command, or reads a file outside the
 * directories of the session. Each call throws `EditorCallError` if the editor does not do it. A
 * call of an attempt that was lost is made again by the next one, unless it is a step of the turn.
 */
export class EditorTools {
  constructor(
    private readonly turn: Pick<Turn, "callEditor">,
    /** Time for a call, with the permission of the person. */
    private readonly withinMs = WITHIN_MS,
  ) {}

  /**
   * Return a text file as the editor has it, with changes that are not saved.
   *
   * `path` is absolute, `line` the first line, from 1. A file of more than 120 KiB has to be read
   * in parts.
   */
  async readTextFile(
    path: string,
    options: { line?: number; limit?: number } = {},
  ): Promise<string> {
    const { line = null, limit = null } = options;
    const call: EditorCall = { method: "read_text_file", path, line, limit };
    return (await this.#call(call, `Read ${path}`)).content ?? "";
  }

  /** Write a text file of at most 120 KiB. */
  async writeTextFile(path: string, content: string): Promise<void> {
    await this.#call({ method: "write_text_file", path, content }, `Write ${path}`);
  }

  /**
   * Run a program in a terminal of the editor and wait until it ends; no shell reads it.
   *
   * `cwd` is by default the directory of the session. The command is killed after `killAfterMs`
   * (2 minutes). At most `outputLimitBytes` (32 KiB, up to 120 KiB) of its output are returned.
   */
  async runCommand(
    command: string,
    args: string[] = [],
    options: { cwd?: string; killAfterMs?: number; outputLimitBytes?: number } = {},
  ): Promise<CommandResult> {
    const killAfterMs = options.killAfterMs ?? KILL_AFTER_MS;
    const call: EditorCall = {
      method: "run_command",
      command,
      arguments: args,
      cwd: options.cwd ?? null,
      timeout_ms: Math.round(killAfterMs),
      output_limit_bytes: options.outputLimitBytes ?? OUTPUT_BYTES,
    };
    const words = [command, ...args].map(quoted).join(" ");
    const result = await this.#call(call, `Run ${words}`, killAfterMs);
    return {
      output: result.output ?? "",
      exitCode: result.exit_code ?? null,
      signal: result.signal ?? null,
      isTruncated: result.truncated ?? false,
      isTimedOut: result.timed_out ?? false,
    };
  }

  async #call(call: EditorCall, words: string, moreMs = 0): Promise<EditorResult> {
    const { value } = await this.turn.callEditor(call, words, this.withinMs + moreMs);
    if (value === undefined) throw new EditorCallError("no editor has answered in time");
    const result = resultOf(value);
    if (result.error) {
      throw new EditorCallError(result.message ?? "the editor gave no reason", result.error);
    }
    return result;
  }
}

function resultOf(value: string): EditorResult {
  let result: unknown;
  try {
    result = JSON.parse(value);
  } catch {
    // What is no JSON is no object either.
  }
  if (typeof result !== "object" || result === null || Array.isArray(result)) {
    throw new InvalidAnswerError("turn.answer: no result of a call");
  }
  return result;
}

/** Return a word as a shell reads it. */
function quoted(word: string): string {
  return PLAIN_WORD.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
