// The address: what is shown is in the part behind `#`, so that every view has a link.
import { signal } from "./html.js";

/** @typedef {{ view: string, id: string, query: URLSearchParams, say: string }} Route */

const VIEWS = new Set(["list", "session", "new", "import", "data", "operators", "story", "dead"]);

// Words for the message field of the view that opens next. An address would keep them in the history of
// the browser, where the next person finds them.
let nextWords = "";

/** @returns {Route} */
function parsed() {
  const say = nextWords;
  nextWords = "";
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [view, id = ""] = path.split("/", 2);
  return {
    view: VIEWS.has(view) ? view : "list",
    id: decodeSafely(id),
    query: new URLSearchParams(query),
    say,
  };
}

/** @param {string} text */
function decodeSafely(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

export const route = signal(parsed());

addEventListener("hashchange", () => {
  route.value = parsed();
});

/** @param {string} view @param {string} [id] @param {Record<string, string>} [query] */
export function link(view, id = "", query = {}) {
  const text = new URLSearchParams(query).toString();
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ""}${text ? `?${text}` : ""}`;
}

/** @param {string} target A value of `link`. @param {string} [say] Words for the message field of the view. */
export function go(target, say = "") {
  nextWords = say;
  if (location.hash === target) route.value = parsed();
  else location.hash = target;
}
