// The state of one open conversation: its session, rows, live turn and open question.
import { ApiFailure } from "./api.js";
import { batch, signal } from "./html.js";
import { liveText, startedTurn, withPiece, withRecap } from "./live.js";
import { announced } from "./messages.js";
import { forgetShown } from "./outbox.js";
import { follow } from "./stream.js";

const PAGE = 60;
// Rows after a found one, so that it does not stand at the edge.
const AROUND = 20;
const PIECES_EVERY_MS = 60;
const RETRY_SECONDS = 3;
// How often the conversation of a room is read, whose events are for its agent and its operators.
const ROOM_SECONDS = 5;

/**
 * Open a conversation; `close` ends it.
 * @param {import("./api.js").Conversations} api
 * @param {string} id
 * @param {number} around Place of a row to open it at; 0 for the newest rows.
 */
export function openConversation(api, id, around = 0) {
  const session = signal(/** @type {any} */ (null));
  const rows = signal(/** @type {any[]} */ ([]));
  const olderPage = signal(/** @type {any} */ (null));
  const isLoadingOlder = signal(false);
  const isAtEnd = signal(around === 0);
  const live = signal(/** @type {import("./live.js").LiveTurn | null} */ (null));
  const question = signal(/** @type {any} */ (null));
  const failure = signal(/** @type {ApiFailure | null} */ (null));
  const endNote = signal("");
  const shows = { reasoning: false };

  let isClosed = false;
  let isReading = false;
  let isReadWanted = false;
  let retryTimer = 0;
  let pieceTimer = 0;
  /** @type {any[]} */
  let newPieces = [];

  /** Read session, newest rows and question; calls that overlap become one more reading. */
  async function read() {
    if (isReading) {
      isReadWanted = true;
      return;
    }
    isReading = true;
    clearTimeout(retryTimer);
    try {
      do {
        isReadWanted = false;
        const [view, page] = await Promise.all([
          api.get(id),
          isAtEnd.peek()
            ? api.rows(id, { limit: PAGE, whole_chain: true, reasoning: shows.reasoning })
            : null,
        ]);
        if (isClosed) return;
        batch(() => {
          session.value = view;
          failure.value = null;
          if (page) take(page);
          if (!view.is_busy && !newPieces.length) settle();
        });
        // The events of a room's conversation are for its agent and its operators.
        if (isOfRoom(view)) readLater();
        else {
          stream.open();
          await readQuestion(view);
        }
      } while (isReadWanted && !isClosed);
    } catch (error) {
      if (isClosed) return;
      failure.value = error instanceof ApiFailure ? error : new ApiFailure(0, null);
      // Who leaves the room stops seeing what was said there.
      if (!failure.value.isWorthRepeating && isOfRoom(session.peek())) {
        batch(() => {
          session.value = null;
          rows.value = [];
          olderPage.value = null;
        });
      }
      if (failure.value.isWorthRepeating) {
        retryTimer = window.setTimeout(read, RETRY_SECONDS * 1000);
      }
    } finally {
      isReading = false;
    }
  }

  /** Read the conversation of a room again after a while, in place of its events. */
  function readLater() {
    stream.close();
    clearTimeout(retryTimer);
    retryTimer = window.setTimeout(() => {
      if (document.visibilityState === "visible") void read();
      else readLater();
    }, ROOM_SECONDS * 1000);
  }

  /** @param {any} view */
  async function readQuestion(view) {
    if (!view.is_busy) {
      question.value = null;
      return;
    }
    try {
      const found = await api.question(id);
      if (!isClosed) question.value = found?.question ?? null;
    } catch (error) {
      // The conversation is readable without it.
      if (error instanceof ApiFailure && error.status === 404) question.value = null;
    }
  }

  /** Put the newest page below the rows that are shown. @param {any} page */
  function take(page) {
    const first = page.rows[0];
    const known = rows.peek();
    const place = first ? known.findIndex((row) => keyOf(row) === keyOf(first)) : -1;
    if (place >= 0) {
      // The place above stays as it is, so that an older page on its way still fits.
      rows.value = [...known.slice(0, place), ...page.rows];
    } else {
      // Nothing is shown twice, and no gap is shown: what was above is read again on demand.
      rows.value = page.rows;
      olderPage.value = olderOf(page);
    }
    forgetShown(id, page.rows);
  }

  /** @param {any} page */
  function olderOf(page) {
    if (page.next_cursor) return { cursor: page.next_cursor };
    return page.next_before ? { before: page.next_before } : null;
  }

  /** Read the page above. */
  async function readOlder() {
    const page = olderPage.peek();
    if (!page || isLoadingOlder.peek()) return;
    isLoadingOlder.value = true;
    try {
      const found = await api.rows(id, {
        limit: PAGE,
        whole_chain: true,
        reasoning: shows.reasoning,
        ...page,
      });
      if (isClosed || olderPage.peek() !== page) return;
      const known = new Set(rows.peek().map(keyOf));
      batch(() => {
        const fresh = found.rows.filter((/** @type {any} */ row) => !known.has(keyOf(row)));
        rows.value = [...fresh, ...rows.peek()];
        olderPage.value = olderOf(found);
      });
    } catch {
      // The button stays, for another try.
    } finally {
      isLoadingOlder.value = false;
    }
  }

  async function readAround() {
    try {
      const page = await api.rows(id, { limit: PAGE, before: around + AROUND });
      if (isClosed) return;
      const view = await api.get(id);
      if (isClosed) return;
      batch(() => {
        rows.value = page.rows;
        olderPage.value = olderOf(page);
        session.value = view;
        failure.value = null;
      });
      if (isOfRoom(view)) readLater();
      else stream.open();
    } catch (error) {
      if (isClosed) return;
      failure.value = error instanceof ApiFailure ? error : new ApiFailure(0, null);
      if (failure.value.isWorthRepeating) retryTimer = window.setTimeout(readAround, RETRY_SECONDS * 1000);
    }
  }

  /** Leave a found row and show the newest ones. */
  function toEnd() {
    isAtEnd.value = true;
    rows.value = [];
    void read();
  }

  /** @param {boolean} wanted */
  function showReasoning(wanted) {
    shows.reasoning = wanted;
    rows.value = [];
    if (isAtEnd.peek()) void read();
    else void readAround();
  }

  function flushPieces() {
    clearTimeout(pieceTimer);
    pieceTimer = 0;
    if (!newPieces.length) return;
    const pieces = newPieces;
    newPieces = [];
    let turn = live.peek();
    for (const piece of pieces) turn = withPiece(turn, piece);
    live.value = turn;
  }

  /** Forget the live turn when the rows have its answer. */
  function settle() {
    const turn = live.peek();
    if (turn) {
      announced.value = liveText(turn) ? "The answer is complete." : "";
      live.value = null;
    }
    question.value = null;
  }

  /** @param {string} name @param {any} data */
  function onEvent(name, data) {
    if (name === "turn.piece") {
      newPieces.push(data);
      // A fast agent sends hundreds of pieces a second.
      if (!pieceTimer) pieceTimer = window.setTimeout(flushPieces, PIECES_EVERY_MS);
      return;
    }
    flushPieces();
    switch (name) {
      case "turn.started": {
        endNote.value = "";
        const turn = live.peek();
        if (!turn || turn.turnId !== data.turn_id || turn.attempt < data.attempt) {
          live.value = startedTurn(data.turn_id, data.attempt);
          announced.value = "The agent is working.";
        }
        break;
      }
      case "turn.recap":
        live.value = withRecap(live.peek(), data);
        return;
      case "turn.waiting":
        live.value = {
          ...(live.peek() ?? startedTurn(data.turn_id, data.attempt)),
          waiting: { reason: data.reason, until: data.until },
        };
        break;
      case "turn.asked":
        announced.value = "The agent asks something.";
        break;
      case "turn.answered":
        question.value = null;
        break;
      case "turn.ended":
        endNote.value = data.outcome === "failed" ? (data.notice ?? "The agent did not answer.") : "";
        break;
      default:
    }
    void read();
  }

  const stream = follow(api.events(id), { onEvent, onOpen: () => void read() });
  if (around) void readAround();
  else void read();

  return {
    id,
    api,
    session,
    rows,
    olderPage,
    isLoadingOlder,
    isAtEnd,
    live,
    question,
    failure,
    endNote,
    connection: stream.state,
    read,
    readOlder,
    toEnd,
    showReasoning,
    close() {
      isClosed = true;
      clearTimeout(retryTimer);
      clearTimeout(pieceTimer);
      stream.close();
    },
  };
}

/** @typedef {ReturnType<typeof openConversation>} Conversation */

/** Return whether a person sees a session only as a member of its room. @param {any} session */
export function isOfRoom(session) {
  return session?.access === "member";
}

/** Return what makes a row the same one in two pages. @param {any} row */
export function keyOf(row) {
  return row.row_id ?? `${row.session_id ?? ""}.${row.seq}.${row.role}.${row.tool_call_id ?? ""}`;
}
