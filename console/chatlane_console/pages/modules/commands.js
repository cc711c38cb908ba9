// Words that the composer understands itself: the commands that a chat has, as far as they act on
// one conversation.

/** @typedef {{ word: string, argument: string, does: string, needs: "idle" | "running" | "any" }} Command */

/** @type {Command[]} */
export const COMMANDS = [
  { word: "new", argument: "", does: "Open another conversation", needs: "any" },
  { word: "stop", argument: "", does: "Stop the answer that is being written", needs: "running" },
  { word: "retry", argument: "", does: "Answer the last message again", needs: "idle" },
  { word: "undo", argument: "[number]", does: "Take the last turns back", needs: "idle" },
  { word: "branch", argument: "", does: "Continue in a copy of this conversation", needs: "any" },
  { word: "title", argument: "title", does: "Name this conversation", needs: "any" },
  { word: "model", argument: "[name]", does: "Choose the model; nothing chooses the usual one", needs: "any" },
  { word: "archive", argument: "", does: "Put this conversation away", needs: "any" },
];

/**
 * Return the commands that a text may become.
 * @param {string} text
 * @param {boolean} isRunning
 */
export function completions(text, isRunning) {
  const begun = /^\/([a-z]*)$/.exec(text);
  if (!begun) return [];
  return COMMANDS.filter(
    (command) => command.word.startsWith(begun[1]) && fits(command, isRunning),
  );
}

/** @param {Command} command @param {boolean} isRunning */
function fits(command, isRunning) {
  return command.needs === "any" || (command.needs === "running") === isRunning;
}

/**
 * Return the command that a whole text is, with its argument, or null.
 * @param {string} text
 * @returns {{ word: string, argument: string } | null}
 */
export function commandOf(text) {
  const found = /^\/([a-z]+)(?:[ \t]+([^\n]*))?$/.exec(text.trim());
  if (!found || !COMMANDS.some((command) => command.word === found[1])) return null;
  return { word: found[1], argument: (found[2] ?? "").trim() };
}
