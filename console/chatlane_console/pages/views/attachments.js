// Files that a person attaches to a message: sent to the server at once, named by receipts when the message is sent.
import { upload } from "../modules/api.js";
import { bytes } from "../modules/format.js";
import { html, signal, useValue } from "../modules/html.js";
import { tell } from "../modules/messages.js";
import { store, stored } from "../modules/storage.js";
import { Icon } from "./icons.js";

const MAX_FILES = 10;
// The server forgets a receipt after a day.
const KEPT_HOURS = 23;

/**
 * @typedef {{ id: number, name: string, size: number, at: number, part: number, receipt: string, stop: () => void }} Attached
 * @typedef {{ receipt: string, name: string, size: number }} SentFile
 */

let limits = /** @type {{ max_bytes: number, types: string[] } | null} */ (null);
let lastId = 0;
/** @type {Map<string, ReturnType<typeof openAttachments>>} */
const opened = new Map();

/** Let people attach files, within the limits of the server. @param {any} given */
export function allowFiles(given) {
  limits = given ?? null;
}

/** Whether the server takes files. */
export const takesFiles = () => limits !== null;
/** Types for the dialog of the browser. */
export const acceptedTypes = () => (limits && !limits.types.includes("*/*") ? limits.types.join(",") : undefined);

/** Return the files that are attached in a conversation and not sent. @param {string} name */
export function attachmentsOf(name) {
  const known = opened.get(name) ?? openAttachments(name);
  opened.set(name, known);
  return known;
}

/** @param {string} name */
function openAttachments(name) {
  const storedName = `files.${name}`;
  const oldest = Date.now() - KEPT_HOURS * 3600 * 1000;
  const kept = stored(storedName, []);
  const files = signal(
    /** @type {Attached[]} */ (
      (Array.isArray(kept) ? kept : []).filter((file) => file.at > oldest).map((file) => ({ ...file, id: ++lastId, part: 1, stop: () => {} }))
    ),
  );

  /** @param {Attached[]} next */
  function replace(next) {
    files.value = next;
    const sent = next.filter((file) => file.receipt).map(({ name: label, size, at, receipt }) => ({ name: label, size, at, receipt }));
    store(storedName, sent.length ? sent : null);
  }
  /** @param {number} id @param {Partial<Attached>} values */
  function change(id, values) {
    replace(files.peek().map((file) => (file.id === id ? { ...file, ...values } : file)));
  }
  /** @param {number} id */
  function remove(id) {
    files.peek().find((file) => file.id === id)?.stop();
    replace(files.peek().filter((file) => file.id !== id));
  }

  /** @param {File} file */
  async function add(file) {
    const label = file.name || "file";
    if (!limits) return tell("This server takes no files.", true);
    if (files.peek().length >= MAX_FILES) return tell(`${label}: a message has at most ${MAX_FILES} files.`, true);
    if (file.size > limits.max_bytes) return tell(`${label} is too large: at most ${bytes(limits.max_bytes)}.`, true);
    const id = ++lastId;
    const sending = upload(file, (part) => change(id, { part }));
    replace([...files.peek(), { id, name: label, size: file.size, at: Date.now(), part: 0, receipt: "", stop: sending.stop }]);
    try {
      change(id, { receipt: (await sending.done).receipt, part: 1 });
    } catch (error) {
      if (!files.peek().some((known) => known.id === id)) return undefined;
      remove(id);
      tell(`${label} was not attached: ${error instanceof Error ? error.message : "no answer"}`, true);
    }
    return undefined;
  }

  return {
    files,
    remove,
    /** @param {Iterable<File>} given */
    addAll(given) {
      for (const file of given) void add(file);
    },
    isSending: () => files.peek().some((file) => !file.receipt),
    /** Return the files for a message, and attach them no more. @returns {SentFile[]} */
    take() {
      const taken = files.peek().map(({ receipt, name: label, size }) => ({ receipt, name: label, size }));
      replace([]);
      return taken;
    },
    /** Attach files again that a message took. @param {SentFile[]} given */
    giveBack(given) {
      const back = given.map((file) => ({ ...file, id: ++lastId, at: Date.now(), part: 1, stop: () => {} }));
      replace([...files.peek(), ...back]);
    },
  };
}

/** @param {{ attached: ReturnType<typeof openAttachments> }} props */
export function Chips({ attached }) {
  const files = useValue(attached.files);
  if (!files.length) return null;
  return html`<ul class="files chips" aria-label="Attached files">
    ${files.map(
      (file) => html`<li class="file" key=${file.id}>
        <${Icon} name="file" /><span>${file.name} · ${bytes(file.size)}</span>
        ${!file.receipt && html`<progress max="1" value=${file.part} aria-label=${`Part of ${file.name} that is sent`}></progress>`}
        <button type="button" class="button plain small" aria-label=${`Remove ${file.name}`} onClick=${() => attached.remove(file.id)}>×</button>
      </li>`,
    )}
  </ul>`;
}

/** @param {{ attached: ReturnType<typeof openAttachments>, isBlocked: boolean }} props */
export function AttachButton({ attached, isBlocked }) {
  if (!takesFiles()) return null;
  return html`<label class=${`button plain icon attach ${isBlocked ? "disabled" : ""}`} title="Attach files">
    <${Icon} name="attach" /><span class="hidden-text">Attach files</span>
    <input class="hidden-text" type="file" multiple accept=${acceptedTypes()} disabled=${isBlocked} onChange=${(/** @type {any} */ event) => {
      attached.addAll([...event.target.files]);
      event.target.value = "";
    }} />
  </label>`;
}
