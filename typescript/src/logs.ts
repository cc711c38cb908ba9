// Events for the log: a constant name and fields that hold no text that people wrote.

export type Log = (event: string, fields?: Record<string, unknown>) => void;

/** Write an event as a line of JSON to stderr. */
export function logToStderr(event: string, fields: Record<string, unknown> = {}): void {
  const at = new Date().toISOString();
  process.stderr.write(`${JSON.stringify({ at, event, ...fields })}\n`);
}

/** Return the kind of an error and where it was thrown, without its message, which may quote people. */
export function described(error: unknown): { error: string; where?: string | undefined } {
  if (!(error instanceof Error)) return { error: typeof error };
  const frames = error.stack?.split("\n").filter((line) => line.trimStart().startsWith("at "));
  return { error: error.name, where: frames?.[0]?.trim() };
}
