// One row of a conversation, with the tool calls that belong to it.
import { bytes, clockTime, compact, exactTime } from "../modules/format.js";
import { html, useMemo } from "../modules/html.js";
import { markdown, outward, safeAddress } from "../modules/markdown.js";
import { takesFiles } from "./attachments.js";
import { Icon } from "./icons.js";

// Keys of the store of this server.
const STORED = /\/[0-9a-f]{64}\.[^/]+$/;
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MAX_PICTURE_BYTES = 5_000_000;

const UNANSWERED = {
  failed: "not answered: the agent failed",
  interrupted: "not answered: a newer message replaced it",
  stopped: "not answered: stopped",
  session_ended: "not answered: the conversation had ended",
};

/** @param {{ text: string }} props */
export function Text({ text }) {
  const elements = useMemo(() => markdown(text), [text]);
  return html`<div class="text">${elements}</div>`;
}

/** Text of a person: their own words, never read as Markdown. @param {{ text: string }} props */
function PlainText({ text }) {
  return html`<div class="text"><p class="as-written">${text}</p></div>`;
}

/**
 * @param {{
 *   row: any, results: Map<string, any>, isFound: boolean, canChange: boolean, addressOf?: (place: number) => string,
 *   onEdit?: (row: any) => void, onBranch?: (row: any) => void
 * }} props
 */
export function Row({ row, results, isFound, canChange, addressOf, onEdit, onBranch }) {
  const isPerson = row.role === "user";
  const name = isPerson ? row.author_name || row.author || "Person" : nameOf(row);
  const text = row.content ?? "";
  const says = text || row.state === "deleted" || row.attachments?.length || special(row);
  return html`<article class=${`row ${isPerson ? "person" : row.role} ${isFound ? "is-found" : ""}`}
    id=${`row-${row.seq}`} aria-label=${`${name}, ${exactTime(row.created_at)}`}>
    ${(says || isPerson) &&
    html`<header class="row-head">
      <span class="name" dir="auto">${name}</span>
      <time datetime=${row.created_at} title=${exactTime(row.created_at)}>${clockTime(row.created_at)}</time>
    </header>`}
    ${row.reasoning && html`<${Thought} text=${row.reasoning.text ?? ""} />`}
    ${says &&
    html`<div class="said" dir="auto">
      <${Reply} row=${row} />
      ${row.state === "deleted"
        ? html`<p class="soft">This message was deleted.</p>`
        : isPerson
          ? text && html`<${PlainText} text=${text} />`
          : text && html`<${Text} text=${text} />`}
      ${special(row)}
      <${Files} files=${row.attachments} addressOf=${addressOf} />
    </div>`}
    ${(row.tool_calls ?? []).map(
      (/** @type {any} */ call) =>
        html`<${Tool} key=${call.id} name=${callName(call)} title="" given=${callArguments(call)}
          result=${results.get(call.id)?.content ?? null} state=${results.has(call.id) ? "done" : "pending"} />`,
    )}
    <div class="row-marks">
      ${row.content_bytes && html`<span class="badge">shortened: ${compact(row.content_bytes)} bytes</span>`}
      ${row.state === "edited" && html`<span class="badge">edited</span>`}
      ${row.unanswered && html`<span class="badge warn">${UNANSWERED[/** @type {keyof typeof UNANSWERED} */ (row.unanswered)] ?? "not answered"}</span>`}
      ${row.error && html`<span class="badge bad" title=${row.error}>failed</span>`}
      ${row.files_missing && html`<span class="badge warn">files are missing</span>`}
    </div>
    ${says &&
    html`<div class="row-actions">
      ${text && html`<${Copy} text=${text} />`}
      ${canChange && isPerson && text && onEdit && html`<button type="button" class="button plain small" onClick=${() => onEdit(row)}>Edit</button>`}
      ${canChange && onBranch && html`<button type="button" class="button plain small" onClick=${() => onBranch(row)}>Branch</button>`}
    </div>`}
    ${row.error && html`<p class="notice bad">${row.error}</p>`}
  </article>`;
}

/** @param {any} row */
function nameOf(row) {
  return row.role === "assistant" ? "Agent" : row.role === "tool" ? "Tool" : "Note";
}

/** @param {any} row */
function special(row) {
  if (row.location) {
    const { latitude, longitude, name, address } = row.location;
    return html`<p>Place: ${[name, address].filter(Boolean).join(", ")} (${latitude}, ${longitude})</p>`;
  }
  if (row.sticker) return html`<p>Sticker ${row.sticker.emoji ?? row.sticker.name ?? ""}</p>`;
  if (row.poll) {
    return html`<p>Poll: ${row.poll.question}</p>
      <ul>${(row.poll.options ?? []).map((/** @type {string} */ option) => html`<li>${option}</li>`)}</ul>`;
  }
  if (row.contacts) {
    return html`<ul>${row.contacts.map((/** @type {any} */ contact) => html`<li>Contact: ${contact.name} ${contact.phone}</li>`)}</ul>`;
  }
  if (row.press && !row.content) return html`<p class="soft">Pressed “${row.press.label ?? row.press.value ?? ""}”</p>`;
  if (row.kind === "reaction") return html`<p class="soft">Reaction ${row.removed ? "taken back" : ""}</p>`;
  return null;
}

/** @param {{ row: any }} props */
function Reply({ row }) {
  const quoted = row.replied?.is_deleted ? "A deleted message" : (row.replied?.text ?? row.quote?.text);
  if (!quoted) return null;
  const author = row.replied?.sender?.name ?? row.quote?.sender_name ?? "";
  return html`<blockquote class="reply">${author && html`<strong>${author}: </strong>`}${quoted.slice(0, 300)}</blockquote>`;
}

/**
 * Files of a message; those in the store of this server come from it, and pictures of them are shown.
 * @param {{ files: any[], addressOf?: (place: number) => string }} props
 */
export function Files({ files, addressOf = undefined }) {
  if (!files?.length) return null;
  return html`<ul class="files" aria-label="Files">
    ${files.map((file, place) => {
      const name = file.name || file.kind || "file";
      const size = file.size_bytes ? ` · ${bytes(file.size_bytes)}` : "";
      const label = html`<${Icon} name="file" /><span>${name}${size}</span>`;
      if (addressOf && takesFiles() && STORED.test(file.key ?? "")) {
        const address = addressOf(place);
        const isPicture = PICTURES.has(file.media_type) && (file.size_bytes ?? 0) <= MAX_PICTURE_BYTES;
        return html`<li class="file"><a href=${address} download=${name}>
          ${isPicture && html`<img class="picture" src=${address} alt="" loading="lazy" />`}${label}
        </a></li>`;
      }
      const address = safeAddress(file.url ?? "");
      return html`<li class="file">${address ? outward(address, label) : label}</li>`;
    })}
  </ul>`;
}

/** @param {{ text: string, isOpen?: boolean }} props */
export function Thought({ text, isOpen = false }) {
  if (!text) return null;
  return html`<details class="detail" open=${isOpen}>
    <summary>Reasoning</summary>
    <div><${Text} text=${text} /></div>
  </details>`;
}

/** @param {any} call */
function callName(call) {
  return call.function?.name ?? call.name ?? "tool";
}

/** @param {any} call */
function callArguments(call) {
  const given = call.function?.arguments ?? call.arguments ?? call.input ?? "";
  if (typeof given !== "string") return JSON.stringify(given, null, 2);
  try {
    return JSON.stringify(JSON.parse(given), null, 2);
  } catch {
    return given;
  }
}

/** @param {{ name: string, title: string, given: string, result: string | null, state: string }} props */
export function Tool({ name, title, given, result, state }) {
  return html`<details class="detail">
    <summary>
      <span class="name mono">${name}</span>
      <span>${title}</span>
      ${state === "running" && html`<span class="badge run"><span class="pulse"></span>running</span>`}
      ${state === "failed" && html`<span class="badge bad">failed</span>`}
      ${state === "pending" && html`<span class="badge">no result</span>`}
    </summary>
    <div>
      ${given && html`<p class="label">Given</p><pre tabindex="0">${given}</pre>`}
      ${result !== null && result !== "" && html`<p class="label">Result</p><pre tabindex="0">${result}</pre>`}
    </div>
  </details>`;
}

/** @param {{ text: string }} props */
function Copy({ text }) {
  return html`<button type="button" class="button plain small" onClick=${async (/** @type {any} */ event) => {
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Cannot copy here";
    }
  }}>Copy</button>`;
}
