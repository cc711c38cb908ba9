// The overview for operators: is it well, and where is it not.
import { compact, count, duration } from "../modules/format.js";
import { html, useEffect, useState, useValue } from "../modules/html.js";
import { ageIn, FIGURES, oldestWait, openPulse, rates, troubles, turnsIn, waitingFor } from "../modules/pulse.js";
import { link } from "../modules/route.js";

const NONE = "–";

export function Overview() {
  const [pulse] = useState(openPulse);
  useEffect(() => {
    document.title = "Overview · chatlane";
    return () => pulse.close();
  }, []);
  const readings = useValue(pulse.readings);
  const failure = useValue(pulse.failure);
  const newest = readings.at(-1)?.overview;
  if (!newest) {
    return html`<h1>Overview</h1><p class="soft" role="status">${failure ? failure.message : "Loading"}</p>`;
  }
  const found = troubles(newest, readings.at(-2)?.overview);
  return html`
    <h1>Overview</h1>
    <div class="verdict" role="status">
      ${failure && html`<span class="badge bad">no answer: ${failure.message}</span>`}
      ${found.length === 0 && !failure && html`<span class="badge good">All is well</span>`}
      ${found.map((trouble) => html`<span class=${`badge ${trouble.isBad ? "bad" : "warn"}`}>${trouble.text}</span>`)}
      <span class="soft">as of ${new Date(newest.at).toLocaleTimeString()}</span>
      ${!newest.is_complete && html`<span class="soft">only the first accounts, agents and dead letters are counted</span>`}
    </div>
    <${Figures} readings=${readings} overview=${newest} />
    <p class="soft">${conversations(newest.sessions)}</p>
    <h2>Agents</h2>
    <${Table} label="Agents" rows=${newest.agents} columns=${AGENTS} overview=${newest} />
    <h2>Deliveries</h2>
    <${Table} label="Deliveries by account" rows=${newest.accounts} columns=${ACCOUNTS} overview=${newest} />
    <h2>Dead letters</h2>
    ${newest.letters.length === 0
      ? html`<p class="soft">Nothing is set aside.</p>`
      : html`<${Table} label="Dead letters by reason" rows=${newest.letters} columns=${LETTERS} overview=${newest} />
        <p><a href=${link("dead")}>Inspect, retry or drop them</a></p>`}
    <h2>Routers</h2>
    <${Table} label="Routers and their partitions" rows=${owners(newest)} columns=${OWNERS} overview=${newest} />
    <details class="every-partition">
      <summary>All ${count(newest.partitions.length)} partitions</summary>
      <${Table} label="Partitions" rows=${newest.partitions} columns=${PARTITIONS} overview=${newest} />
    </details>
    <h2>Streams</h2>
    <${Streams} readings=${readings} overview=${newest} />`;
}

/** @param {{ readings: import("../modules/pulse.js").Reading[], overview: any }} props */
function Figures({ readings, overview }) {
  const over = (/** @type {(overview: any) => number} */ figure) => readings.map((reading) => figure(reading.overview));
  const drawn = [
    ["Largest lag", waited(FIGURES.lag(overview)), over(FIGURES.lag)],
    ["Oldest waiting turn", waited(FIGURES.oldestTurn(overview)), over(FIGURES.oldestTurn)],
    ["Turns that wait", count(FIGURES.waiting(overview)), over(FIGURES.waiting)],
    ["Turns that run", count(FIGURES.running(overview)), over(FIGURES.running)],
    ["Deliveries that wait", count(FIGURES.deliveries(overview)), over(FIGURES.deliveries)],
    ["Dead letters", count(FIGURES.letters(overview)), over(FIGURES.letters)],
    ["Messages in a second", (rates(readings, "INBOUND").at(-1) ?? 0).toFixed(1), rates(readings, "INBOUND")],
    ["Messages out a second", (rates(readings, "OUTBOUND").at(-1) ?? 0).toFixed(1), rates(readings, "OUTBOUND")],
  ];
  return html`<dl class="figures in-fours">
    ${drawn.map(
      ([name, text, values]) =>
        html`<div class="figure"><dt>${name}</dt><dd>${text} <${Sparkline} values=${values} label=${`${name}, last minutes`} /></dd></div>`,
    )}
  </dl>`;
}

/** @param {number} seconds */
const waited = (seconds) => (seconds ? duration(seconds) : NONE);

/** Return the numbers of conversations as a sentence. @param {any} sessions */
function conversations({ total, open, archived, is_complete: isComplete }) {
  return `${count(total)}${isComplete === false ? "+" : ""} conversations, ${count(open)} open, ${count(archived)} archived`;
}

/** @typedef {{ name: string, text: (row: any, overview: any) => any, isText?: boolean }} Column */

/** @type {(overview: any, iso: string | null | undefined) => string} */
const aged = (overview, iso) => (iso ? duration(ageIn(overview, iso)) : NONE);

/** @type {Column[]} */
const AGENTS = [
  { name: "Agent", text: (it) => `${it.agent}${it.is_declared === false ? " (not declared)" : ""}`, isText: true },
  { name: "Wait", text: (it) => count(waitingFor(it)) },
  { name: "Oldest", text: (it, overview) => (waitingFor(it) ? duration(oldestWait(overview, it)) : NONE) },
  { name: "Run", text: (it) => (it.delivery === "stream" ? NONE : count(turnsIn(it, "claimed"))) },
  { name: "Overdue", text: (it) => (it.delivery === "stream" ? NONE : count(turnsIn(it, "overdue"))) },
  { name: "Delayed or parked", text: (it) => (it.delivery === "stream" ? NONE : count(turnsIn(it, "resting") + turnsIn(it, "parked"))) },
  { name: "Open requests for work", text: (it) => count(it.listening) },
  { name: "Workers at work", text: (it) => (it.delivery === "stream" ? NONE : count(it.working)) },
];

/** @type {Column[]} */
const ACCOUNTS = [
  { name: "Account", text: (it) => `${it.platform}/${it.account}`, isText: true },
  { name: "Wait", text: (it) => count(it.waiting) },
  { name: "Oldest", text: (it, overview) => aged(overview, it.oldest_waiting_at) },
  { name: "Tried again", text: (it) => count(it.repeated) },
  { name: "Given up", text: (it) => count(it.given_up) },
  { name: "Last given up", text: (it, overview) => aged(overview, it.last_given_up_at) },
  { name: "Open requests of adapters", text: (it) => count(it.listening) },
];

/** @type {Column[]} */
const LETTERS = [
  { name: "Reason", text: (it) => it.reason, isText: true },
  { name: "Who has to act", text: (it) => it.cause, isText: true },
  { name: "Number", text: (it) => count(it.letters) },
  { name: "Oldest", text: (it, overview) => aged(overview, it.oldest_at) },
  { name: "Newest", text: (it, overview) => aged(overview, it.newest_at) },
];

/** @type {Column[]} */
const OWNERS = [
  { name: "Router", text: (it) => it.owner ?? "none", isText: true },
  { name: "Inbound partitions", text: (it) => count(it.inbound) },
  { name: "Result partitions", text: (it) => count(it.results) },
  { name: "Largest lag", text: (it) => waited(it.lag) },
];

/** @type {Column[]} */
const PARTITIONS = [
  { name: "Partition", text: (it) => `${it.log} ${it.number}`, isText: true },
  { name: "Router", text: (it) => it.owner ?? "none", isText: true },
  { name: "Read up to", text: (it) => count(it.cursor) },
  { name: "Lag", text: (it, overview) => aged(overview, it.oldest_unread_at) },
];

/** Return the routers with their partitions, and last the partitions without one. @param {any} overview */
function owners(overview) {
  const found = new Map(overview.routers.map((/** @type {string} */ id) => [id, { owner: id, inbound: 0, results: 0, lag: 0 }]));
  for (const partition of overview.partitions) {
    const owner = partition.owner ?? null;
    const row = found.get(owner) ?? { owner, inbound: 0, results: 0, lag: 0 };
    if (partition.log === "inbound") row.inbound += 1;
    else row.results += 1;
    row.lag = Math.max(row.lag, ageIn(overview, partition.oldest_unread_at));
    found.set(owner, row);
  }
  return [...found.values()];
}

/** @param {{ label: string, rows: any[], columns: Column[], overview: any }} props */
function Table({ label, rows, columns, overview }) {
  return html`<div class="grid-table" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.isText ? "" : "right"}>${column.name}</th>`)}</tr></thead>
      <tbody>${rows.map(
        (row) =>
          html`<tr>${columns.map((column, place) =>
            place === 0
              ? html`<th scope="row" class="mono">${column.text(row, overview)}</th>`
              : html`<td class=${column.isText ? "" : "right"}>${column.text(row, overview)}</td>`,
          )}</tr>`,
      )}</tbody>
    </table>
  </div>`;
}

/** @param {{ readings: import("../modules/pulse.js").Reading[], overview: any }} props */
function Streams({ readings, overview }) {
  return html`<div class="grid-table" tabindex="0" role="region" aria-label="Streams">
    <table>
      <thead><tr><th scope="col">Stream</th><th scope="col" class="right">Messages</th><th scope="col" class="right">Bytes</th>
        <th scope="col" class="right">Oldest</th><th scope="col" class="right">Newest</th>
        <th scope="col" class="right">A second</th><th scope="col">Last minutes</th></tr></thead>
      <tbody>${overview.streams.map((/** @type {any} */ stream) => {
        const line = rates(readings, stream.name);
        return html`<tr key=${stream.name}>
          <th scope="row" class="mono">${stream.name}</th>
          <td class="right">${count(stream.messages)}</td><td class="right">${compact(stream.size_bytes)}</td>
          <td class="right">${aged(overview, stream.oldest_at)}</td>
          <td class="right">${aged(overview, stream.newest_at)}</td>
          <td class="right">${(line.at(-1) ?? 0).toFixed(1)}</td>
          <td><${Sparkline} values=${line} label=${`Messages a second on ${stream.name}`} /></td>
        </tr>`;
      })}</tbody>
    </table>
  </div>`;
}

/** @param {{ values: number[], label: string }} props */
function Sparkline({ values, label }) {
  const highest = Math.max(1, ...values);
  const points = values.map((value, place) => `${place * 2},${(18 - (16 * value) / highest).toFixed(1)}`).join(" ");
  return html`<svg class="sparkline" viewBox="0 0 120 20" width="120" height="20" role="img"
    aria-label=${`${label}: at most ${highest.toFixed(1)}`}>
    <polyline points=${points} fill="none" stroke="currentColor" stroke-width="1.4" />
  </svg>`;
}
