// What the whole service does, read again and again while somebody looks at it.
import { ApiFailure, service } from "./api.js";
import { count, duration } from "./format.js";
import { signal } from "./html.js";

const READ_AGAIN_SECONDS = 3;
const KEPT_READINGS = 60;
// A partition, a turn or a message that waits for longer is worth a look; much longer is a fault.
const LATE_SECONDS = 10;
const VERY_LATE_SECONDS = 60;
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

/** Return the age of a time in seconds, by the clock of the service. @param {any} overview @param {string | null | undefined} iso */
export const ageIn = (overview, iso) => (iso ? Math.max(0, (Date.parse(overview.at) - Date.parse(iso)) / 1000) : 0);

/** @param {any} agent @param {string} state */
const group = (agent, state) => agent.turns.find((/** @type {any} */ turns) => turns.state === state);

/** Return how many turns of an agent are in a state. @param {any} agent @param {string} state */
export const turnsIn = (agent, state) => group(agent, state)?.turns ?? 0;

/** Return how long the oldest turn or message of an agent has waited for a worker. @param {any} overview @param {any} agent */
export const oldestWait = (overview, agent) =>
  ageIn(overview, agent.delivery === "stream" ? agent.oldest_unread_at : group(agent, "ready")?.oldest_at);

/** Return how many turns or messages of an agent wait for a worker. @param {any} agent */
export const waitingFor = (agent) => (agent.delivery === "stream" ? agent.unread : turnsIn(agent, "ready"));

/** @param {number[]} values */
const largest = (values) => values.reduce((most, value) => Math.max(most, value), 0);
/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** The main numbers of an overview, each of which has a line over the last minutes. */
export const FIGURES = {
  lag: (/** @type {any} */ overview) =>
    largest(overview.partitions.map((/** @type {any} */ it) => ageIn(overview, it.oldest_unread_at))),
  oldestTurn: (/** @type {any} */ overview) =>
    largest(overview.agents.map((/** @type {any} */ it) => oldestWait(overview, it))),
  waiting: (/** @type {any} */ overview) => sum(overview.agents.map(waitingFor)),
  running: (/** @type {any} */ overview) => sum(overview.agents.map((/** @type {any} */ it) => turnsIn(it, "claimed"))),
  deliveries: (/** @type {any} */ overview) => sum(overview.accounts.map((/** @type {any} */ it) => it.waiting)),
  letters: (/** @type {any} */ overview) => sum(overview.letters.map((/** @type {any} */ it) => it.letters)),
};

/**
 * Return what is not well, in the words of an operator, the worst first.
 * @param {any} overview
 * @param {any} before The reading before, if there is one.
 * @returns {{ text: string, isBad: boolean }[]}
 */
export function troubles(overview, before) {
  // A reader has no open request for a moment, between two of them.
  const listened = new Set(
    [overview, before ?? overview].flatMap((reading) =>
      [...reading.agents, ...reading.accounts].filter((it) => it.listening || it.working).map(nameOf),
    ),
  );
  const found = [
    ...ofLogs(overview),
    ...ofAgents(overview, listened),
    ...ofAccounts(overview, listened),
    ...ofLetters(overview),
  ];
  return [...found.filter((it) => it.isBad), ...found.filter((it) => !it.isBad)];
}

/** @param {any} it An agent or an account. */
const nameOf = (it) => it.agent ?? `${it.platform}/${it.account}`;

/** @param {any} overview */
function ofLogs(overview) {
  const found = [];
  if (!overview.has_lags) found.push({ text: "The logs cannot be read", isBad: true });
  const lag = FIGURES.lag(overview);
  if (lag > LATE_SECONDS) {
    found.push({ text: `A partition lags by ${duration(lag)}`, isBad: lag > VERY_LATE_SECONDS });
  }
  const unowned = overview.partitions.filter((/** @type {any} */ it) => !it.owner).length;
  if (unowned) found.push({ text: `${count(unowned)} partitions have no router`, isBad: true });
  const unpublished = ageIn(overview, overview.outbox_oldest_at);
  if (unpublished > LATE_SECONDS) {
    found.push({ text: `A message has waited ${duration(unpublished)} to be published`, isBad: true });
  }
  return found;
}

/** @param {any} overview @param {Set<string>} listened */
function ofAgents(overview, listened) {
  const found = [];
  for (const agent of overview.agents) {
    const wait = oldestWait(overview, agent);
    const overdue = turnsIn(agent, "overdue");
    if (overdue) found.push({ text: `${agent.agent}: ${count(overdue)} turns lost their worker`, isBad: false });
    if (!waitingFor(agent) || wait < LATE_SECONDS) continue;
    const isStream = agent.delivery === "stream";
    if (!listened.has(nameOf(agent))) {
      // A worker of a stream that is full has no open request.
      const text = isStream ? "messages wait, and no worker asks for more" : "turns wait, and no worker is there";
      found.push({ text: `${agent.agent}: ${text}`, isBad: !isStream });
    } else if (wait > VERY_LATE_SECONDS) {
      const text = isStream ? "the oldest message is unanswered for" : "the oldest turn has waited";
      found.push({ text: `${agent.agent}: ${text} ${duration(wait)}`, isBad: false });
    }
  }
  return found;
}

/** @param {any} overview @param {Set<string>} listened */
function ofAccounts(overview, listened) {
  const found = [];
  for (const account of overview.accounts) {
    const name = nameOf(account);
    const wait = ageIn(overview, account.oldest_waiting_at);
    if (account.waiting && !listened.has(name) && wait > LATE_SECONDS) {
      found.push({ text: `${name}: messages wait, and no adapter takes them`, isBad: true });
    } else if (account.repeated || wait > VERY_LATE_SECONDS) {
      found.push({ text: `${name}: deliveries are late`, isBad: false });
    }
    if (account.last_given_up_at && ageIn(overview, account.last_given_up_at) < NEW_LETTERS_SECONDS) {
      found.push({ text: `${name}: a delivery was given up within the last hour`, isBad: false });
    }
  }
  return found;
}

/** @param {any} overview */
function ofLetters(overview) {
  const causes = new Set();
  for (const { cause, newest_at: at } of overview.letters) {
    // Nobody has to repair what a person wrote too often; failed deliveries are shown by account.
    if (cause !== "sender" && ageIn(overview, at) < NEW_LETTERS_SECONDS) causes.add(cause);
  }
  return [...causes].map((cause) => ({ text: `New dead letters (${cause}) within the last hour`, isBad: true }));
}
