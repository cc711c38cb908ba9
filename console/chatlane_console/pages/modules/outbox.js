// Messages on their way. They are stored in the browser before they are sent, and each has one id
// for all its attempts: a closed window, a lost network or a second press loses and doubles none.
import { ApiFailure, newKey, own } from "./api.js";
import { signal } from "./html.js";
import { store, stored } from "./storage.js";

/**
 * @typedef {{
 *   key: string, sessionId: string, text: string, at: string, files?: { receipt: string, name: string, size: number }[],
 *   state: "sending" | "sent" | "refused", messageId?: string, reason?: string
 * }} Message
 */

const NAME = "outbox";
const PAUSE_SECONDS = [0.5, 1, 2, 4, 8, 15];
const KEPT_HOURS = 24;

/** @type {{ value: Message[], peek: () => Message[] }} */
export const outbox = signal([]);
/** @type {Set<string>} */
const busySessions = new Set();
/** @type {Set<() => void>} */
const waiters = new Set();

/** Read what earlier windows left, and go on with it. */
export function openOutbox() {
  const oldest = Date.now() - KEPT_HOURS * 3600 * 1000;
  outbox.value = kept().filter((message) => Date.parse(message.at) > oldest);
  addEventListener("storage", (event) => {
    if (event.key?.endsWith(`.${NAME}`)) outbox.value = kept();
  });
  addEventListener("online", wake);
  for (const message of outbox.value) void deliver(message.sessionId);
}

/** @returns {Message[]} */
function kept() {
  const found = stored(NAME, []);
  return Array.isArray(found) ? found : [];
}

/** @param {(messages: Message[]) => Message[]} next */
function replace(next) {
  // From the storage, because another window may have added a message.
  const messages = next(kept());
  store(NAME, messages);
  outbox.value = messages;
}

/**
 * @param {string} sessionId
 * @param {string} text
 * @param {{ receipt: string, name: string, size: number }[]} [files]
 * @returns {string} The id of the press.
 */
export function send(sessionId, text, files = []) {
  const key = newKey();
  /** @type {Message} */
  const message = { key, sessionId, text, at: new Date().toISOString(), files, state: "sending" };
  replace((messages) => [...messages, message]);
  void deliver(sessionId);
  return key;
}

/** Forget a message: it was seen in the conversation, or taken back. @param {string} key */
export function forget(key) {
  if (outbox.peek().some((message) => message.key === key)) {
    replace((messages) => messages.filter((message) => message.key !== key));
  }
}

/** Forget the messages that rows of the conversation show. @param {string} sessionId @param {any[]} rows */
export function forgetShown(sessionId, rows) {
  const ids = new Set(rows.map((row) => row.message_id).filter(Boolean));
  const shown = outbox
    .peek()
    .filter((message) => message.sessionId === sessionId && ids.has(message.messageId));
  for (const message of shown) forget(message.key);
}

/** Send a refused message again, as a new press. @param {Message} message */
export function sendAgain(message) {
  forget(message.key);
  send(message.sessionId, message.text, message.files);
}

/** @param {string} key @param {Partial<Message>} values */
function mark(key, values) {
  replace((messages) =>
    messages.map((message) => (message.key === key ? { ...message, ...values } : message)),
  );
}

/** Send the messages of a session one after the other. @param {string} sessionId */
async function deliver(sessionId) {
  if (busySessions.has(sessionId)) return;
  busySessions.add(sessionId);
  try {
    let failures = 0;
    for (;;) {
      const next = outbox
        .peek()
        .find((message) => message.sessionId === sessionId && message.state === "sending");
      if (!next) return;
      try {
        const files = (next.files ?? []).map((file) => file.receipt);
        const answer = await own.submit(sessionId, { text: next.text, files }, next.key);
        mark(next.key, { state: "sent", messageId: answer?.message_id });
        failures = 0;
      } catch (error) {
        if (error instanceof ApiFailure && error.isWorthRepeating) {
          await pause(PAUSE_SECONDS[Math.min(failures, PAUSE_SECONDS.length - 1)]);
          failures += 1;
        } else {
          const reason = error instanceof Error ? error.message : "refused";
          mark(next.key, { state: "refused", reason });
        }
      }
    }
  } finally {
    busySessions.delete(sessionId);
  }
}

/** @param {number} seconds */
function pause(seconds) {
  return /** @type {Promise<void>} */ (
    new Promise((resolve) => {
      const done = () => {
        waiters.delete(done);
        resolve();
      };
      waiters.add(done);
      setTimeout(done, seconds * 1000);
    })
  );
}

function wake() {
  for (const waiter of [...waiters]) waiter();
}
