// What a running turn shows, as a value: each function returns the next value.

/**
 * @typedef {{ kind: "text" | "thought", text: string }} TextPart
 * @typedef {{ kind: "tool", id: string, name: string, title: string, state: string, result: string }} ToolPart
 * @typedef {{
 *   turnId: string, attempt: number, next: number, hasGap: boolean,
 *   parts: (TextPart | ToolPart)[], plan: any[], progress: string, waiting: any
 * }} LiveTurn
 */

/** @param {string} turnId @param {number} attempt @returns {LiveTurn} */
export function startedTurn(turnId, attempt) {
  return {
    turnId,
    attempt,
    next: 0,
    hasGap: false,
    parts: [],
    plan: [],
    progress: "",
    waiting: null,
  };
}

/**
 * Return the turn with one more piece; a piece that is known, or of an old attempt, changes nothing.
 * @param {LiveTurn | null} turn
 * @param {any} message
 * @returns {LiveTurn | null}
 */
export function withPiece(turn, message) {
  let base = turn;
  if (base && base.turnId === message.turn_id && message.attempt < base.attempt) return base;
  if (!base || base.turnId !== message.turn_id || base.attempt < message.attempt) {
    base = startedTurn(message.turn_id, message.attempt);
  }
  if (message.index < base.next) return base;
  return {
    ...base,
    next: message.index + 1,
    hasGap: base.hasGap || message.index > base.next,
    waiting: null,
    ...shown(base, message.piece),
  };
}

/**
 * Return the turn as a recap tells it.
 * @param {LiveTurn | null} turn
 * @param {any} recap
 * @returns {LiveTurn | null}
 */
export function withRecap(turn, recap) {
  if (turn && turn.turnId === recap.turn_id) {
    if (recap.attempt < turn.attempt) return turn;
    if (recap.attempt === turn.attempt && recap.next_index < turn.next) return turn;
  }
  let told = startedTurn(recap.turn_id, recap.attempt);
  for (const piece of recap.pieces ?? []) told = { ...told, ...shown(told, piece) };
  return { ...told, next: recap.next_index, hasGap: Boolean(recap.is_shortened) };
}

/** @param {LiveTurn} turn @param {any} piece @returns {Partial<LiveTurn>} */
function shown(turn, piece) {
  switch (piece.kind) {
    case "text":
    case "thought": {
      const last = turn.parts[turn.parts.length - 1];
      const text = piece.text ?? "";
      if (last && last.kind === piece.kind) {
        return { parts: [...turn.parts.slice(0, -1), { ...last, text: last.text + text }] };
      }
      return { parts: [...turn.parts, { kind: piece.kind, text }] };
    }
    case "tool_call":
    case "tool_result":
      return { parts: withTool(turn.parts, piece) };
    case "plan":
      return { plan: piece.plan ?? [] };
    case "progress":
      return { progress: piece.text ?? "" };
    default:
      return {};
  }
}

/** @param {(TextPart | ToolPart)[]} parts @param {any} piece */
function withTool(parts, piece) {
  const id = piece.tool_id ?? "";
  const place = parts.findIndex((part) => part.kind === "tool" && part.id === id);
  const before = place < 0 ? null : /** @type {ToolPart} */ (parts[place]);
  const isResult = piece.kind === "tool_result";
  /** @type {ToolPart} */
  const tool = {
    kind: "tool",
    id,
    name: piece.tool_name ?? before?.name ?? "tool",
    title: piece.title ?? before?.title ?? "",
    state: piece.state ?? (isResult ? "done" : (before?.state ?? "running")),
    result: isResult ? (piece.text ?? "") : (before?.result ?? ""),
  };
  return before ? parts.with(place, tool) : [...parts, tool];
}

/** Return the text of the answer so far. @param {LiveTurn} turn */
export function liveText(turn) {
  return turn.parts
    .filter((part) => part.kind === "text")
    .map((part) => /** @type {TextPart} */ (part).text)
    .join("\n\n");
}
