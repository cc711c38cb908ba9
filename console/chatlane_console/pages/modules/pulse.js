// What the whole service does, read again and again while somebody looks at it.
import { ApiFailure, service } from "./api.js";
import { signal } from "./html.js";

const READ_AGAIN_SECONDS = 3;
const KEPT_READINGS = 60;
const SILENT_SECONDS = 120;
const NEW_LETTERS_SECONDS = 3600;

/** @typedef {{ at: number, overview: any }} Reading */

export function openPulse() {
  const readings = signal(/** @type {Reading[]} */ ([]));
  const failure = signal(/** @type {ApiFailure | null} */ (null));
  let timer = 0;
  let isClosed = false;

  async function read() {
    try {
      const overview = await service.overview();
      if (isClosed) return;
      readings.value = [...readings.peek().slice(1 - KEPT_READINGS), { at: Date.parse(overview.at), overview }];
      failure.value = null;
    } catch (error) {
      failure.value = error instanceof ApiFailure ? error : new ApiFailure(0, null);
    }
    if (!isClosed) timer = window.setTimeout(next, READ_AGAIN_SECONDS * 1000);
  }
  function next() {
    if (document.visibilityState === "visible") void read();
    else timer = window.setTimeout(next, READ_AGAIN_SECONDS * 1000);
  }
  void read();
  return {
    readings,
    failure,
    close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}

/**
 * Return how many messages a second a stream took, between each two readings.
 * @param {Reading[]} readings
 * @param {string} name
 */
export function rates(readings, name) {
  const found = readings.map(({ at, overview }) => ({
    at,
    last: overview.streams.find((/** @type {any} */ stream) => stream.name === name)?.last_sequence ?? 0,
  }));
  return found
    .slice(1)
    .map((now, place) =>
      Math.max(0, (now.last - found[place].last) / Math.max(0.001, (now.at - found[place].at) / 1000)),
    );
}

/**
 * Return what is not well, in the words of an operator.
 * @param {any} overview
 * @returns {{ text: string, isBad: boolean }[]}
 */
export function troubles(overview) {
  const now = Date.parse(overview.at);
  const newest = (/** @type {string} */ name) => {
    const at = overview.streams.find((/** @type {any} */ stream) => stream.name === name)?.newest_at;
    return at ? (now - Date.parse(at)) / 1000 : Number.POSITIVE_INFINITY;
  };
  const found = [];
  // An agent may think for long, so that silence is a hint and no verdict.
  if (newest("INBOUND") > SILENT_SECONDS && newest("INBOUND") < newest("RESULTS")) {
    found.push({ text: `No result since the last message, ${Math.round(newest("INBOUND") / 60)} min ago`, isBad: false });
  }
  if (newest("DEAD") < NEW_LETTERS_SECONDS) {
    found.push({ text: "A message was set aside within the last hour", isBad: true });
  }
  return found;
}
