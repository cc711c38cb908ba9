// What a person types and does not send: kept in the browser at once, and on the server when there is one.
import { ApiFailure } from "./api.js";
import { signal } from "./html.js";
import { store, stored } from "./storage.js";

const PAUSE_MS = 800;
const RETRY_SECONDS = 5;
// The server keeps no more; a longer text stays in the browser.
const MAX_BYTES = 16 * 1024;

/**
 * Open the draft of a conversation; `close` sends what is not yet on the server.
 * @param {string} name Id of the conversation, or another name for a draft of this browser alone.
 * @param {{ get: (id: string) => Promise<any>, keepDraft: (id: string, text: string, replaces: string | null) => Promise<any> } | null} api
 */
export function openDraft(name, api) {
  const textName = `draft.${name}`;
  // When the draft was changed that this browser has shown, and whether it was changed here since.
  const seenName = `draft-seen.${name}`;
  const newName = `draft-new.${name}`;
  const text = signal(/** @type {string} */ (stored(textName, "")));
  /** The draft of another window that has other words than this one. */
  const other = signal(/** @type {{ text: string, changed_at: string } | null} */ (null));
  let timer = 0;
  let typed = 0;
  let isSaving = false;
  let isClosed = false;

  /** @param {string} value */
  function type(value) {
    typed += 1;
    text.value = value;
    store(textName, value || null);
    if (!api) return;
    store(newName, true);
    later(PAUSE_MS);
  }

  /** @param {number} pause */
  function later(pause) {
    clearTimeout(timer);
    timer = window.setTimeout(() => void save(), pause);
  }

  /** Send the text to the server, unless another window has changed the draft. */
  async function save() {
    clearTimeout(timer);
    if (!api || isSaving || other.peek() || !stored(newName, false)) return;
    const mine = text.peek();
    if (new TextEncoder().encode(mine).length > MAX_BYTES) return;
    const before = typed;
    isSaving = true;
    try {
      const kept = await api.keepDraft(name, mine, stored(seenName, null));
      store(seenName, kept.changed_at ?? null);
      if (typed === before) store(newName, null);
    } catch (error) {
      if (error instanceof ApiFailure && error.status === 412) await refresh();
      else if (error instanceof ApiFailure && error.isWorthRepeating && !isClosed) later(RETRY_SECONDS * 1000);
    } finally {
      isSaving = false;
    }
    if (typed !== before && !isClosed) later(PAUSE_MS);
  }

  /** Take the draft of the server, if nothing was typed here since; else let the person choose. */
  async function refresh() {
    if (!api) return;
    const before = typed;
    let found;
    try {
      found = (await api.get(name)).draft ?? null;
    } catch {
      return;
    }
    if (typed !== before || isClosed || (found?.changed_at ?? null) === stored(seenName, null)) return;
    const isChangedHere = stored(newName, false) && text.peek() !== "";
    if (!isChangedHere || found?.text === text.peek()) take(found);
    else if (found) other.value = found;
    // Sent or removed in another window; what is typed here since is a new draft.
    else store(seenName, null);
  }

  /** @param {{ text: string, changed_at: string } | null} found */
  function take(found) {
    other.value = null;
    text.value = found?.text ?? "";
    store(textName, found?.text || null);
    store(seenName, found?.changed_at ?? null);
    store(newName, null);
  }

  /** Keep the words of this window instead of those of the other one. */
  function keepOwn() {
    const found = other.peek();
    other.value = null;
    store(seenName, found?.changed_at ?? null);
    store(newName, true);
    void save();
  }

  const onVisible = () => {
    if (document.visibilityState === "hidden") void save();
    else if (!stored(newName, false)) void refresh();
    else void save();
  };
  const onOnline = () => void save();
  if (api) {
    document.addEventListener("visibilitychange", onVisible);
    addEventListener("focus", onVisible);
    addEventListener("online", onOnline);
    void refresh().then(() => save());
  }

  return {
    text,
    other,
    type,
    keepOwn,
    takeOther: () => take(other.peek()),
    /** Take what another window of this browser has stored. */
    reload() {
      text.value = stored(textName, "");
    },
    close() {
      void save();
      isClosed = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
      removeEventListener("focus", onVisible);
      removeEventListener("online", onOnline);
    },
  };
}

/** @typedef {ReturnType<typeof openDraft>} Draft */
