// The list of conversations: pages, filters, and the search as a person types.
import { ApiFailure, folders as folderApi } from "./api.js";
import { batch, effect, signal } from "./html.js";
import { lastTime, titleOf } from "./format.js";

const PAGE = 50;
const READ_AGAIN_SECONDS = 10;
// Folders change less often than conversations.
const FOLDERS_EVERY_READS = 6;
const TYPING_PAUSE_MS = 180;
const MAX_HITS = 20;
// Origin of conversations that scheduled jobs began: they are in a folder of their own.
const SCHEDULED = "cron";
const SHOWN = { pinned_first: true, hide_empty: true, tips_only: true };
const UNFILTERED = { archived: false };

/** @type {{ api: import("./api.js").Conversations, page: Promise<any> } | null} */
let early = null;

/** Ask for the first page before a view needs it. @param {import("./api.js").Conversations} api */
export function readEarly(api) {
  const page = api.list({ limit: PAGE, ...SHOWN, without_origins: SCHEDULED, ...UNFILTERED });
  // The view asks again then, and shows what is wrong.
  early = { api, page: page.catch(() => null) };
}

/**
 * @param {import("./api.js").Conversations} api
 * @param {{ isOperator?: boolean, filter?: Record<string, any> }} [options] `isOperator`: whether conversations of scheduled
 *   jobs are in the list, and no folders.
 */
export function openCatalogue(api, { isOperator = false, filter: first = UNFILTERED } = {}) {
  const sessions = signal(/** @type {any[]} */ ([]));
  const cursor = signal(/** @type {string | null} */ (null));
  const isLoading = signal(true);
  const failure = signal(/** @type {ApiFailure | null} */ (null));
  const filter = signal(first);
  const folders = signal(/** @type {any[]} */ ([]));
  const labels = signal(/** @type {string[]} */ ([]));
  const query = signal("");
  const named = signal(/** @type {any[]} */ ([]));
  const hits = signal(/** @type {any[] | null} */ (null));
  const isSearching = signal(false);

  // The filter offers the labels that were seen.
  const forgetLabels = effect(() => {
    const seen = new Set([...labels.peek(), ...sessions.value.flatMap((session) => session.labels ?? [])]);
    if (seen.size > labels.peek().length) labels.value = [...seen].sort((one, other) => one.localeCompare(other));
  });
  let generation = 0;
  // Pages that were read below the first one.
  let further = 0;
  let typingTimer = 0;
  /** @type {AbortController | null} */
  let searching = null;

  /** @param {string | null} [from] */
  const pageOf = (from) => {
    const wanted = filter.peek();
    const others = wanted.project_id || isOperator ? {} : { without_origins: SCHEDULED };
    return api.list({ limit: PAGE, cursor: from, ...SHOWN, ...others, ...wanted });
  };

  /** Read the first page again, and keep what was read below it. */
  async function read() {
    const mine = ++generation;
    try {
      const known = early?.api === api ? early.page : null;
      early = null;
      const page = (await known) ?? (await pageOf(null));
      if (mine !== generation) return;
      const fresh = new Map(page.sessions.map((/** @type {any} */ session) => [session.id, session]));
      batch(() => {
        // Also if everything was read, when there is no place to go on from.
        if (page.next_cursor && further > 0 && !filter.peek().state) {
          const rest = sessions.peek().filter((session) => !fresh.has(session.id));
          // A conversation that is not on the first page any more has moved down or away.
          const last = page.sessions.at(-1);
          sessions.value = [...page.sessions, ...rest.filter((session) => isBelow(session, last))];
        } else {
          sessions.value = page.sessions;
          cursor.value = page.next_cursor ?? null;
          further = 0;
        }
        failure.value = null;
        isLoading.value = false;
      });
    } catch (error) {
      if (mine !== generation) return;
      failure.value = error instanceof ApiFailure ? error : new ApiFailure(0, null);
      isLoading.value = false;
    }
  }

  /** Read the folders; a chosen one that is gone is chosen no longer. */
  async function readFolders() {
    try {
      const { projects } = await folderApi.list();
      folders.value = projects;
      const chosen = filter.peek().project_id;
      if (chosen && !projects.some((/** @type {any} */ folder) => folder.id === chosen)) choose({ project_id: undefined });
    } catch {
      // The list is readable without them.
    }
  }

  /** Read all again after a change of the person. */
  const readAll = () => Promise.all([read(), isOperator ? null : readFolders()]);

  /** @param {any} session @param {any} last */
  function isBelow(session, last) {
    if (!last || Boolean(session.pinned) !== Boolean(last.pinned)) return !session.pinned;
    return lastTime(session) <= lastTime(last);
  }

  /** Read the page below. */
  async function readMore() {
    const from = cursor.peek();
    if (!from || isLoading.peek()) return;
    isLoading.value = true;
    const mine = generation;
    try {
      const page = await pageOf(from);
      if (mine !== generation && cursor.peek() !== from) return;
      const known = new Set(sessions.peek().map((session) => session.id));
      further += 1;
      batch(() => {
        sessions.value = [
          ...sessions.peek(),
          ...page.sessions.filter((/** @type {any} */ session) => !known.has(session.id)),
        ];
        cursor.value = page.next_cursor ?? null;
      });
    } catch {
      // Scrolling tries it again.
    } finally {
      isLoading.value = false;
    }
  }

  /** @param {Record<string, any>} values */
  function choose(values) {
    further = 0;
    batch(() => {
      filter.value = { ...filter.peek(), ...values };
      sessions.value = [];
      cursor.value = null;
      isLoading.value = true;
    });
    void read();
  }

  /** @param {string} text */
  function type(text) {
    query.value = text;
    clearTimeout(typingTimer);
    searching?.abort();
    if (!text.trim()) {
      hits.value = null;
      named.value = [];
      isSearching.value = false;
      return;
    }
    isSearching.value = true;
    typingTimer = window.setTimeout(() => void search(text.trim()), TYPING_PAUSE_MS);
  }

  /** @param {string} text */
  async function search(text) {
    const abort = new AbortController();
    searching = abort;
    try {
      // The last word is being typed.
      const words = /[\s"*]$/.test(text) ? text : `${text}*`;
      const [found, titled] = await Promise.all([
        api.search({ q: words, limit: MAX_HITS }, abort.signal),
        api.list({ title_part: text, limit: MAX_HITS, ...SHOWN }, abort.signal),
      ]);
      if (abort.signal.aborted) return;
      batch(() => {
        hits.value = found.hits;
        // Also of the conversations that are shown already, whose first words stand for a title.
        const all = new Map([...sessions.peek(), ...titled.sessions].map((session) => [session.id, session]));
        named.value = [...all.values()].filter((session) => titleOf(session).toLowerCase().includes(text.toLowerCase())).slice(0, MAX_HITS);
      });
    } catch (error) {
      if (!abort.signal.aborted) hits.value = [];
    } finally {
      if (searching === abort) isSearching.value = false;
    }
  }

  /** Put a changed conversation into its place. @param {any} session */
  function replace(session) {
    sessions.value = sessions.peek().map((known) => (known.id === session.id ? session : known));
  }

  let reads = 0;
  const timer = window.setInterval(() => {
    if (document.visibilityState !== "visible") return;
    void (++reads % FOLDERS_EVERY_READS ? read() : readAll());
  }, READ_AGAIN_SECONDS * 1000);
  const onVisible = () => {
    if (document.visibilityState === "visible") void readAll();
  };
  document.addEventListener("visibilitychange", onVisible);
  addEventListener("online", onVisible);
  void readAll();

  return {
    sessions,
    cursor,
    isLoading,
    failure,
    filter,
    folders,
    labels,
    query,
    named,
    hits,
    isSearching,
    read,
    readAll,
    readFolders,
    readMore,
    choose,
    type,
    replace,
    close() {
      clearInterval(timer);
      forgetLabels();
      document.removeEventListener("visibilitychange", onVisible);
      removeEventListener("online", onVisible);
    },
  };
}

/** @typedef {ReturnType<typeof openCatalogue>} Catalogue */
