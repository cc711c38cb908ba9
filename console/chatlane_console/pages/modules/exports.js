// Conversations in the files that other programs export: archives, JSON files, files of JSON lines.

// As the service takes them.
const MAX_CONVERSATION = 16 * 1024 * 1024;
const MAX_CONTENT = 960_000;
const BYTES_AT_ONCE = 0x8000;

/**
 * @typedef {{ source: string, name: string, text: string }} Found
 * @typedef {{ what: string, reason: string }} LeftOut
 */

/**
 * Yield the conversations of a file one by one, and what is none.
 * @param {File} file
 * @param {(bytes: number) => void} onRead Called with the number of bytes that were read.
 * @returns {AsyncGenerator<Found | LeftOut>}
 */
export async function* conversationsIn(file, onRead) {
  const head = new Uint8Array(await file.slice(0, 4).arrayBuffer());
  const isArchive = head[0] === 0x50 && head[1] === 0x4b && head[2] === 3 && head[3] === 4;
  if (!isArchive) {
    yield* inFile(file.name, file.size, file.stream(), onRead);
    return;
  }
  const members = await membersOf(file);
  const named = members.filter((member) => /(^|\/)conversations[^/]*\.json$/.test(member.name));
  const wanted = named.length ? named : members.filter((member) => /\.jsonl?$/i.test(member.name));
  if (!wanted.length) yield { what: "file", reason: "no conversations are in the archive" };
  for (const member of wanted) {
    yield* inFile(member.name.split("/").at(-1) ?? "", member.size, await contentOf(file, member), () => {});
    onRead(member.packed);
  }
}

/**
 * @param {string} name @param {number} size @param {ReadableStream} stream @param {(bytes: number) => void} onRead
 * @returns {AsyncGenerator<Found | LeftOut>}
 */
async function* inFile(name, size, stream, onRead) {
  if (/\.jsonl$/i.test(name)) {
    if (size > MAX_CONVERSATION) yield tooLarge();
    else yield { source: "claude_code", name, text: await new Response(stream).text() };
    onRead(size);
    return;
  }
  let number = 0;
  for await (const text of objectsIn(stream, onRead)) {
    number += 1;
    yield text === null ? tooLarge() : foundIn(text, `${name} item ${number}`);
  }
  if (!number) yield { what: "file", reason: "it holds no conversation" };
}

const tooLarge = () => ({ what: "conversation", reason: "larger than a browser can send; an operator can import it with the command" });

/** @param {string} text @param {string} name @returns {Found | LeftOut} */
function foundIn(text, name) {
  let fields;
  try {
    fields = JSON.parse(text);
  } catch {
    return { what: "conversation", reason: "not JSON" };
  }
  if (fields.mapping) return { source: "chatgpt", name, text };
  if (fields.chat || fields.history) return { source: "open_webui", name, text };
  return { what: "conversation", reason: "of no program that is known" };
}

/**
 * Yield the outermost objects of a JSON text, null for one that is too large.
 * @param {ReadableStream} stream @param {(bytes: number) => void} onRead
 */
async function* objectsIn(stream, onRead) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  const marks = /["{}\\]/g;
  let text = "";
  let place = 0;
  let begin = -1;
  let depth = 0;
  let isText = false;
  let isLarge = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (value) onRead(value.length);
    text += decoder.decode(value ?? new Uint8Array(), { stream: !done });
    for (marks.lastIndex = place; ; ) {
      const mark = marks.exec(text);
      if (!mark) break;
      if (mark[0] === "\\") {
        if (marks.lastIndex === text.length && !done) {
          // What it escapes is in the next piece.
          marks.lastIndex -= 1;
          place = marks.lastIndex;
          break;
        }
        marks.lastIndex += 1;
      } else if (mark[0] === '"') isText = !isText;
      else if (!isText && mark[0] === "{") {
        if (depth === 0) begin = mark.index;
        depth += 1;
      } else if (!isText && mark[0] === "}" && depth > 0) {
        depth -= 1;
        if (depth === 0) {
          yield isLarge ? null : text.slice(begin, mark.index + 1);
          isLarge = false;
        }
      }
      place = marks.lastIndex;
    }
    if (!text.endsWith("\\")) place = text.length;
    // Keep what the next pieces go on with.
    const kept = depth === 0 ? place : begin;
    if (place - kept > MAX_CONVERSATION) isLarge = true;
    const from = isLarge ? place : kept;
    text = text.slice(from);
    place -= from;
    begin = 0;
    if (done) return;
  }
}

/** Return the request of a conversation; null if it is too large. @param {Found} found */
export async function packed(found) {
  const zipped = new Blob([found.text]).stream().pipeThrough(new CompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(zipped).arrayBuffer());
  if (bytes.length * 4 > MAX_CONTENT * 3 - 8) return null;
  let binary = "";
  for (let at = 0; at < bytes.length; at += BYTES_AT_ONCE) {
    binary += String.fromCharCode(...bytes.subarray(at, at + BYTES_AT_ONCE));
  }
  return { source: found.source, name: found.name.slice(-200), content: btoa(binary) };
}

export const leftOutAsTooLarge = tooLarge;

/** @typedef {{ name: string, at: number, packed: number, size: number, method: number }} Member */

/** Return the files in an archive. @param {File} file @returns {Promise<Member[]>} */
async function membersOf(file) {
  // The end has a comment of at most 64 KiB.
  const tail = new DataView(await file.slice(-65_557).arrayBuffer());
  let end = tail.byteLength - 22;
  while (end >= 0 && tail.getUint32(end, true) !== 0x06054b50) end -= 1;
  if (end < 0) throw new Error("The archive is damaged.");
  const at = tail.getUint32(end + 16, true);
  const size = tail.getUint32(end + 12, true);
  if (at === 0xffffffff) throw new Error("The archive is too large. Unpack it and choose the files in it.");
  const list = new DataView(await file.slice(at, at + size).arrayBuffer());
  const members = [];
  for (let place = 0; place + 46 <= list.byteLength && list.getUint32(place, true) === 0x02014b50; ) {
    const nameLength = list.getUint16(place + 28, true);
    const name = new TextDecoder().decode(new Uint8Array(list.buffer, place + 46, nameLength));
    members.push({
      name,
      method: list.getUint16(place + 10, true),
      packed: list.getUint32(place + 20, true),
      size: list.getUint32(place + 24, true),
      at: list.getUint32(place + 42, true),
    });
    place += 46 + nameLength + list.getUint16(place + 30, true) + list.getUint16(place + 32, true);
  }
  return members;
}

/** @param {File} file @param {Member} member @returns {Promise<ReadableStream>} */
async function contentOf(file, member) {
  const head = new DataView(await file.slice(member.at, member.at + 30).arrayBuffer());
  const begin = member.at + 30 + head.getUint16(26, true) + head.getUint16(28, true);
  const stream = file.slice(begin, begin + member.packed).stream();
  if (member.method === 0) return stream;
  if (member.method !== 8) throw new Error("The archive is packed in a way that is not known.");
  return stream.pipeThrough(new DecompressionStream("deflate-raw"));
}
