// Split a message into pieces that its platform accepts.

import type { Attachment, Button, OutboundMessage } from "../contract.js";

/** The longest text of one message, in what the platform counts. */
export interface TextLimit {
  size: number;
  unit: "utf16" | "code_points" | "bytes";
}

/** A part of an outbound message that goes to the platform as one message. */
export interface Piece {
  message: OutboundMessage;
  /** Which piece it is, from 0, and how many there are. */
  number: number;
  count: number;
  text: string | undefined;
  /** Files and buttons of the message, with its last piece. */
  attachments: Attachment[];
  buttons: Button[];
  /** The platform's id of the message that is answered; only the first piece answers it. */
  replyTo: string | undefined;
  /** The platform's id of the message that this piece replaces. */
  edits: string | undefined;
  /** Whether an earlier attempt may have sent this piece. */
  mayBeSent: boolean;
  /** The same for each attempt to send this piece, for platforms with idempotency keys. */
  key: string;
}

/** Return whether a text has no visible characters. */
export function isBlank(text: string | null | undefined): boolean {
  return !text || !/(?!\u034f)[^\s\p{Z}\p{Cc}\p{Cf}\u115f\u1160\u3164\uffa0]/u.test(text);
}

/** Return the pieces of a message; the same arguments give the same pieces. */
export function piecesOf(message: OutboundMessage, limit?: TextLimit, hasButtons = true): Piece[] {
  const buttons = message.buttons ?? [];
  const attachments = message.attachments ?? [];
  let text = isBlank(message.text) ? undefined : (message.text ?? undefined);
  if (buttons.length > 0 && (text === undefined || !hasButtons)) {
    const lines = buttons.map((it, place) => {
      return `${place + 1}. ${it.label}${it.url ? `: ${it.url}` : ""}`;
    });
    text = [text, lines.join("\n")].filter((it) => it !== undefined).join("\n\n");
  }
  if (text === undefined && attachments.length === 0) return [];
  const texts: Array<string | undefined> =
    text === undefined ? [undefined] : limit === undefined ? [text] : splitText(text, limit);
  const last = texts.length - 1;
  return texts.map((part, number) => ({
    message,
    number,
    count: texts.length,
    text: part,
    attachments: number === last ? attachments : [],
    buttons: number === last && hasButtons ? buttons : [],
    replyTo: number === 0 && message.reply_to != null ? String(message.reply_to) : undefined,
    edits: undefined,
    mayBeSent: false,
    key: `${message.id}-${number}`,
  }));
}

const SEGMENTS = new Intl.Segmenter("und", { granularity: "grapheme" });
const FENCE = /^([ \t]*)(`{3,}(?=[^`\n]*$)|~{3,})[^\n]*$/gm;
// A cut at a better place may leave this share of a piece unused.
const SPARE = 0.5;

/** Return the length of a text in the unit of a platform. */
export function measured(text: string, unit: TextLimit["unit"]): number {
  if (unit === "utf16") return text.length;
  return unit === "bytes" ? Buffer.byteLength(text) : [...text].length;
}

/**
 * Return a text in parts within the limit.
 *
 * It is cut between paragraphs, else lines, else words, else characters that are seen as one. A code
 * block that does not fit is closed at the end of a part and opened again in the next one.
 */
export function splitText(text: string, limit: TextLimit): string[] {
  const parts: string[] = [];
  let rest = text;
  while (measured(rest, limit.unit) > limit.size) {
    // Room for the end of a code block, in case the cut is inside of one.
    const marks = [...rest.slice(0, limit.size).matchAll(FENCE)].map((it) => it[1]! + it[2]!);
    const room = limit.size - Math.max(0, ...marks.map((it) => measured(it, limit.unit) + 1));
    const place = placeToCut(rest, fitting(rest, Math.max(room, limit.size / 2), limit.unit));
    let head = rest.slice(0, place);
    let tail = rest.slice(place);
    const open = openFence(head);
    const ended = open === undefined ? "" : `${head.trimEnd()}\n${open.end}`;
    const again = open === undefined ? "" : `${open.line}\n`;
    // A part that the block hardly fits into is cut without it.
    const fits = measured(ended, limit.unit) <= limit.size && again.length + 1 < place;
    if (open !== undefined && fits) {
      head = ended;
      tail = again + tail;
    } else {
      head = head.trimEnd();
    }
    if (!isBlank(head)) parts.push(head);
    rest = open === undefined ? tail.replace(/^\n+/, "") : tail;
  }
  if (!isBlank(rest)) parts.push(rest);
  return parts;
}

/** Return how much of a text fits, at least one character that is seen as one. */
function fitting(text: string, size: number, unit: TextLimit["unit"]): number {
  let used = 0;
  for (const { segment, index } of SEGMENTS.segment(text)) {
    used += measured(segment, unit);
    if (used > size) return index || segment.length;
  }
  return text.length;
}

function placeToCut(text: string, end: number): number {
  for (const separator of ["\n\n", "\n", " "]) {
    const place = text.lastIndexOf(separator, end - separator.length);
    if (place >= end * SPARE) return place + separator.length;
  }
  return end;
}

/** Return the line that opens a code block which the text does not end, and the line that ends it. */
function openFence(text: string): { line: string; end: string } | undefined {
  let open: RegExpMatchArray | undefined;
  for (const found of text.matchAll(FENCE)) {
    if (open === undefined) open = found;
    else if (found[2]!.startsWith(open[2]!) && found[0].trim() === found[2]) open = undefined;
  }
  return open && { line: open[0], end: open[1]! + open[2]! };
}
