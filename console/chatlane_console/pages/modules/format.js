// Times, numbers and names as people read them. Texts come back as plain text.

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const fullDay = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const weekday = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const number = new Intl.NumberFormat();
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });

/** @param {string} iso */
export const exactTime = (iso) => exact.format(new Date(iso));
/** @param {string} iso */
export const clockTime = (iso) => clock.format(new Date(iso));
/** @param {string} iso */
export const dayName = (iso) => weekday.format(new Date(iso));

/** Return a short time for a list: the clock today, else the day. @param {string} iso */
export function listTime(iso, now = new Date()) {
  const at = new Date(iso);
  if (at.toDateString() === now.toDateString()) return clock.format(at);
  return at.getFullYear() === now.getFullYear() ? day.format(at) : fullDay.format(at);
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** @param {string} iso */
export const age = (iso, now = Date.now()) => duration(Math.max(0, (now - Date.parse(iso)) / 1000));
/** @param {number} value */
export const count = (value) => number.format(value);
/** @param {number} value */
export const compact = (value) => short.format(value);

/** Return a size as people read it. @param {number} size */
export function bytes(size) {
  const units = ["bytes", "kB", "MB", "GB"];
  let place = 0;
  while (size >= 1000 && place < units.length - 1) {
    size /= 1000;
    place += 1;
  }
  return `${place && size < 10 ? size.toFixed(1) : Math.round(size)} ${units[place]}`;
}

/** Return an exact amount of money without more digits than say something. @param {string|number} amount */
export function money(amount) {
  const value = Number(amount);
  if (!Number.isFinite(value)) return "";
  return `$${value >= 1 ? value.toFixed(2) : value.toPrecision(2)}`;
}

const SOURCES = {
  telegram: "Telegram",
  discord: "Discord",
  matrix: "Matrix",
  slack: "Slack",
  whatsapp: "WhatsApp",
  mail: "Mail",
  email: "Mail",
  console: "Console",
  acp: "Editor",
  cron: "Schedule",
  api: "API",
};

/** Return where a conversation came from, for people. @param {any} session */
export function sourceName(session) {
  if (session.source_label) return session.source_label;
  const name = sourceKind(session);
  return SOURCES[name] ?? name.charAt(0).toUpperCase() + name.slice(1);
}

/** @param {any} session @returns {string} */
export function sourceKind(session) {
  if (session.source) return session.source;
  return session.origin && session.origin !== "chat" ? session.origin : session.platform;
}

/** Return the title, or what stands for it. @param {any} session */
export function titleOf(session) {
  return session.shown_title || session.title || "Conversation without a title";
}

/** Return the newest time at which something was said. @param {any} session @returns {string} */
export function lastTime(session) {
  return session.last_message_at ?? session.last_activity_at ?? session.started_at;
}
