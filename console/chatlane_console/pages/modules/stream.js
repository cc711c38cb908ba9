// The events of one conversation, over a connection that comes back by itself.
import { signal } from "./html.js";

const PAUSE_SECONDS = [0.5, 1, 2, 4, 8, 15];
const HIDDEN_SECONDS = 30;
const EVENTS = [
  "resync",
  "turn.started",
  "turn.piece",
  "turn.recap",
  "turn.asked",
  "turn.answered",
  "turn.waiting",
  "turn.ended",
  "session.changed",
  "session.ended",
  "gone",
];

/**
 * Return a connection to the events at an address, from `open` until `close`.
 *
 * `onOpen` runs after each connection: what happened before it may be missing, so the caller reads
 * the conversation again. A connection that only looks alive is given up when the window becomes
 * visible after a while, and when the network returns.
 * @param {string} address
 * @param {{ onEvent: (name: string, data: any) => void, onOpen: () => void }} listener
 */
export function follow(address, listener) {
  const state = signal("connecting");
  let failures = 0;
  let isClosed = false;
  let isOpen = false;
  let hiddenSince = 0;
  /** @type {EventSource | null} */
  let source = null;
  let timer = 0;

  function connect() {
    if (isClosed) return;
    clearTimeout(timer);
    source?.close();
    const opened = new EventSource(address);
    source = opened;
    opened.onopen = () => {
      failures = 0;
      state.value = "live";
      listener.onOpen();
    };
    opened.onerror = () => {
      if (opened !== source || isClosed) return;
      opened.close();
      state.value = "lost";
      const pause = PAUSE_SECONDS[Math.min(failures, PAUSE_SECONDS.length - 1)];
      failures += 1;
      // Spread over half of the pause, so that windows do not come back all at once.
      timer = window.setTimeout(connect, pause * 1000 * (0.75 + Math.random() / 2));
    };
    for (const name of EVENTS) {
      opened.addEventListener(name, (event) => {
        if (opened !== source) return;
        let data;
        try {
          data = JSON.parse(/** @type {MessageEvent} */ (event).data);
        } catch {
          data = null;
        }
        listener.onEvent(name, data);
      });
    }
  }

  function onVisibility() {
    if (document.visibilityState === "hidden") {
      hiddenSince = Date.now();
    } else if (hiddenSince && Date.now() - hiddenSince > HIDDEN_SECONDS * 1000) {
      hiddenSince = 0;
      connect();
    }
  }
  function onOffline() {
    source?.close();
    state.value = "lost";
  }

  return {
    state,
    open() {
      if (isOpen || isClosed) return;
      isOpen = true;
      addEventListener("online", connect);
      addEventListener("offline", onOffline);
      document.addEventListener("visibilitychange", onVisibility);
      connect();
    },
    close() {
      isClosed = true;
      clearTimeout(timer);
      source?.close();
      removeEventListener("online", connect);
      removeEventListener("offline", onOffline);
      document.removeEventListener("visibilitychange", onVisibility);
    },
  };
}
