// Requests to the HTTP API of this console. Every address that the pages use is in this module.

const BASE = "/api/v1";
const RETRY_SECONDS = [0.3, 1, 2, 4];
const MAX_NAME = 255;
const CHANGED = "The conversation has changed meanwhile, for example in another window. Look at it, and try again.";

/** A request that the API refused or could not answer. */
export class ApiFailure extends Error {
  /** @param {number} status 0 if there was no answer. @param {any} problem */
  constructor(status, problem) {
    super(problem?.detail || problem?.title || "The server did not answer.");
    this.status = status;
    this.code = problem?.code ?? "";
    this.problem = problem;
  }

  /** Whether the same request, sent again, may succeed. */
  get isWorthRepeating() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** Return a new id of a press; the server does the work of one id once. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** @type {(() => void)[]} */
const signOutListeners = [];
/** Call back when a request finds that nobody is signed in any more. @param {() => void} listener */
export const onSignedOut = (listener) => signOutListeners.push(listener);

/**
 * Send one request and return its decoded answer.
 * @param {string} method
 * @param {string} path
 * @param {{ body?: any, key?: string, version?: string, abort?: AbortSignal }} [options]
 * @returns {Promise<any>}
 */
export async function request(method, path, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (options.key) headers["Idempotency-Key"] = options.key;
  if (options.version) headers["If-Match"] = `"${options.version}"`;
  // A page of another site cannot send this header.
  if (method !== "GET") headers["X-Chatlane-Request"] = "1";
  let response;
  try {
    response = await fetch(BASE + path, {
      method,
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      credentials: "same-origin",
      signal: options.abort,
    });
  } catch (error) {
    if (options.abort?.aborted) throw error;
    throw new ApiFailure(0, null);
  }
  const answer = await decoded(response);
  if (response.ok) return answer;
  if (response.status === 401) for (const listener of signOutListeners) listener();
  throw new ApiFailure(response.status, answer);
}

/** @param {Response} response */
async function decoded(response) {
  if (response.status === 204) return null;
  try {
    return await response.json();
  } catch {
    return null;
  }
}

/**
 * Send a change; without an answer, repeat it with the same id, so that it is made once.
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 * @param {{ key?: string, version?: string }} [options]
 */
export async function change(method, path, body, options = {}) {
  const key = options.key ?? newKey();
  for (const seconds of RETRY_SECONDS) {
    try {
      return await request(method, path, { ...options, body, key });
    } catch (error) {
      if (!(error instanceof ApiFailure) || !error.isWorthRepeating) throw error;
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    }
  }
  return request(method, path, { ...options, body, key });
}

/**
 * Send a file to the server; the answer has its receipt.
 * @param {File} file
 * @param {(part: number) => void} onProgress Called with the part that is sent, from 0 to 1.
 */
export function upload(file, onProgress) {
  // `fetch` does not say how much of a body is sent.
  const sending = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    sending.open("POST", `${BASE}/files${search({ name: (file.name || "file").slice(-MAX_NAME) })}`);
    sending.responseType = "json";
    sending.setRequestHeader("Content-Type", file.type || "application/octet-stream");
    sending.setRequestHeader("X-Chatlane-Request", "1");
    sending.upload.onprogress = (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total);
    };
    sending.onload = () => {
      if (sending.status === 201) return resolve(sending.response);
      if (sending.status === 401) for (const listener of signOutListeners) listener();
      return reject(new ApiFailure(sending.status, sending.response));
    };
    sending.onerror = () => reject(new ApiFailure(0, null));
    sending.onabort = () => reject(new ApiFailure(0, null));
    sending.send(file);
  });
  return { done, stop: () => sending.abort() };
}

/** @param {Record<string, any>} given */
function search(given) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined && value !== null && value !== "") query.append(name, String(value));
  }
  const text = query.toString();
  return text ? `?${text}` : "";
}

/** @param {string} id */
const ofSession = (id) => `/sessions/${encodeURIComponent(id)}`;

/** Sign-in, and what belongs to the person who has signed in. */
export const account = {
  me: () => request("GET", "/me"),
  signOut: () => change("POST", "/sign-out"),
};

/**
 * Requests about conversations: of a person to the own ones, of an operator to all.
 * @param {"" | "/operator"} reach
 */
function conversations(reach) {
  /** @param {string} id @param {string} [rest] */
  const at = (id, rest = "") => `${reach}${ofSession(id)}${rest}`;
  return {
    list: (/** @type {any} */ filter, /** @type {AbortSignal | undefined} */ abort = undefined) =>
      request("GET", `${reach}/sessions${search(filter)}`, { abort }),
    get: (/** @type {string} */ id) => request("GET", at(id, search({ whole_chain: true }))),
    rows: (/** @type {string} */ id, /** @type {any} */ page) =>
      request("GET", at(id, `/rows${search(page)}`)),
    file: (/** @type {string} */ id, /** @type {number} */ seq, /** @type {number} */ place) =>
      BASE + at(id, `/rows/${seq}/files/${place}`),
    events: (/** @type {string} */ id) => BASE + at(id, "/events"),
    create: (/** @type {any} */ given, /** @type {string} */ key) =>
      change("POST", `${reach}/sessions`, given, { key }),
    submit: (/** @type {string} */ id, /** @type {any} */ message, /** @type {string} */ key) =>
      request("POST", at(id, "/messages"), { body: message, key }),
    stop: (/** @type {string} */ id) => change("POST", at(id, "/stop"), undefined),
    retry: (/** @type {string} */ id) => change("POST", at(id, "/retry"), {}),
    undo: (/** @type {string} */ id, turns = 1) => change("POST", at(id, "/rewind"), { turns }),
    removed: (/** @type {string} */ id, /** @type {any} */ page) => request("GET", at(id, `/removed${search(page)}`)),
    restore: (/** @type {string} */ id, /** @type {number} */ removal, /** @type {string} */ version) =>
      change("POST", at(id, "/restore"), { removal }, { version }),
    fork: (/** @type {string} */ id, /** @type {number | undefined} */ throughSeq) =>
      change("POST", at(id, "/fork"), throughSeq ? { through_seq: throughSeq } : {}),
    end: (/** @type {string} */ id) => change("POST", at(id, "/end"), {}),
    reopen: (/** @type {string} */ id) => change("POST", at(id, "/reopen"), {}),
    reset: (/** @type {string} */ id) => change("POST", at(id, "/reset"), {}),
    switchChat: (/** @type {string} */ id, /** @type {string} */ key, /** @type {string} */ from) =>
      change("POST", at(id, "/switch"), { session_key: key, expected_session_id: from }),
    remove: (/** @type {string} */ id) => change("DELETE", at(id), undefined),
    update: async (/** @type {string} */ id, /** @type {any} */ values, /** @type {string} */ version) => {
      try {
        return await change("PATCH", at(id), values, { version });
      } catch (error) {
        if (!(error instanceof ApiFailure) || error.status !== 412) throw error;
        throw new ApiFailure(412, { ...error.problem, detail: CHANGED });
      }
    },
    keepDraft: (/** @type {string} */ id, /** @type {string} */ text, /** @type {string | null} */ replaces) =>
      request("PUT", at(id, "/draft"), { body: { text, replaces } }),
    markRead: (/** @type {string} */ id, /** @type {number} */ seq) =>
      request("PUT", at(id, "/read-mark"), { body: { through_seq: seq } }),
    question: (/** @type {string} */ id) => request("GET", at(id, "/question")),
    answer: (/** @type {string} */ id, /** @type {string} */ question, /** @type {any} */ reply) =>
      change("POST", at(id, "/question"), { question_id: question, ...reply }),
    deliveries: (/** @type {string} */ id) => request("GET", at(id, "/deliveries")),
    search: (/** @type {any} */ query, /** @type {AbortSignal} */ abort) =>
      request("GET", `${reach}/search${search(query)}`, { abort }),
  };
}

/** Requests about the folders of the person. */
export const folders = {
  list: () => request("GET", "/projects"),
  create: (/** @type {any} */ given) => change("POST", "/projects", given),
  arrange: (/** @type {string[]} */ ids) => change("PUT", "/projects", { project_ids: ids }),
  update: (/** @type {string} */ id, /** @type {any} */ values) =>
    change("PATCH", `/projects/${encodeURIComponent(id)}`, values),
  remove: (/** @type {string} */ id) => change("DELETE", `/projects/${encodeURIComponent(id)}`),
};

/** Imports of conversations of other programs. */
export const imports = {
  add: (/** @type {any} */ conversation) => change("POST", "/imports", conversation),
};

/** Requests about all data of a person: of the person who has signed in, and of operators for another one. */
export const people = {
  exportAddress: `${BASE}/export`,
  erase: (/** @type {string} */ key) => change("POST", "/erasures", undefined, { key }),
  erasure: (/** @type {string} */ id) => request("GET", `/erasures/${encodeURIComponent(id)}`),
  exportOfPerson: (/** @type {any} */ person) => `${BASE}/operator/people/export${search(person)}`,
  erasePerson: (/** @type {any} */ person, /** @type {string} */ key) => change("POST", "/operator/erasures", person, { key }),
  erasureOfPerson: (/** @type {string} */ id) => request("GET", `/operator/erasures/${encodeURIComponent(id)}`),
};

/** Requests of operators about the whole service. */
export const service = {
  overview: () => request("GET", "/operator/overview"),
  declarations: () => request("GET", "/operator/declarations"),
  deadLetters: (/** @type {any} */ page) => request("GET", `/operator/dead-letters${search(page)}`),
  letterCounts: (/** @type {any} */ filter) => request("GET", `/operator/dead-letters/counts${search(filter)}`),
  letterPreview: (/** @type {any} */ filter) => request("GET", `/operator/dead-letters/preview${search(filter)}`),
  deadLetter: (/** @type {string} */ id) => request("GET", `/operator/dead-letters/${encodeURIComponent(id)}`),
  explainEvent: (/** @type {string} */ event) => request("POST", "/operator/explain", { body: { event } }),
  explainSession: (/** @type {string} */ id) => request("GET", `/operator${ofSession(id)}/explanation`),
  takeOver: (/** @type {string} */ id, /** @type {number} */ minutes) => change("POST", `/operator${ofSession(id)}/takeover`, { minutes }),
  speak: (/** @type {string} */ id, /** @type {string} */ text, /** @type {string} */ key) =>
    change("POST", `/operator${ofSession(id)}/speak`, { text }, { key }),
  handBack: (/** @type {string} */ id) => change("POST", `/operator${ofSession(id)}/handback`, {}),
  settle: (/** @type {"retry" | "drop"} */ action, /** @type {string[]} */ ids) =>
    change("POST", `/operator/dead-letters/${action}`, { letter_ids: ids }),
};

export const own = conversations("");
export const all = conversations("/operator");
/** @typedef {ReturnType<typeof conversations>} Conversations */
