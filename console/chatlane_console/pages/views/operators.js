// Pages for operators: is it well, the conversations of everybody, and what was set aside.
import { all, service } from "../modules/api.js";
import { openCatalogue } from "../modules/catalogue.js";
import { age, compact, count, exactTime, lastTime, listTime, sourceName, titleOf } from "../modules/format.js";
import { html, useEffect, useState, useValue } from "../modules/html.js";
import { openPulse, rates, troubles } from "../modules/pulse.js";
import { go, link } from "../modules/route.js";
import { DataOfPerson } from "./data.js";
import { DeadLetters } from "./dead_letters.js";
import { ExplainEvent, Outlook } from "./explain.js";
import { Badges } from "./list.js";
import { Takeover } from "./takeover.js";
import { Talk } from "./talk.js";

const ID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

/** @param {{ route: import("../modules/route.js").Route }} props */
export function Operators({ route }) {
  if (route.view === "story" && route.id) return html`<${Story} key=${route.id} id=${route.id} />`;
  const page = route.view === "dead" ? "dead" : route.id || "overview";
  const pages = [
    ["overview", "Overview", link("operators")],
    ["sessions", "Conversations", link("operators", "sessions")],
    ["dead", "Set aside", link("dead")],
    ["explain", "Explain", link("operators", "explain")],
    ["people", "People", link("operators", "people")],
  ];
  return html`<main class="operate" id="main" tabindex="-1">
    <nav class="toolbar" aria-label="Operation">
      ${pages.map(
        ([name, label, target]) =>
          html`<a class="button small" href=${target} aria-current=${name === page ? "page" : undefined}>${label}</a>`,
      )}
      <${OpenById} />
    </nav>
    ${page === "dead" ? html`<${DeadLetters} />`
      : page === "sessions" ? html`<${AllSessions} />`
      : page === "explain" ? html`<${ExplainEvent} />`
      : page === "people" ? html`<${DataOfPerson} />`
      : html`<${Overview} />`}
  </main>`;
}

function OpenById() {
  const [text, setText] = useState("");
  const id = text.trim();
  return html`<form onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    if (ID.test(id)) go(link("story", id));
  }}>
    <label class="hidden-text" for="by-id">Id of a conversation</label>
    <input id="by-id" class="field" placeholder="Id of a conversation" value=${text} maxlength="64"
      onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
  </form>`;
}

/** @param {string} name */
function useTitle(name) {
  useEffect(() => {
    document.title = `${name} · chatlane`;
  }, [name]);
}

function Overview() {
  useTitle("Overview");
  const [pulse] = useState(openPulse);
  useEffect(() => () => pulse.close(), []);
  const readings = useValue(pulse.readings);
  const failure = useValue(pulse.failure);
  const newest = readings.at(-1)?.overview;
  if (!newest) {
    return html`<h1>Overview</h1><p class="soft" role="status">${failure ? failure.message : "Loading"}</p>`;
  }
  const found = troubles(newest);
  return html`
    <h1>Overview</h1>
    <div class="verdict" role="status">
      ${failure && html`<span class="badge bad">no answer: ${failure.message}</span>`}
      ${found.length === 0 && !failure && html`<span class="badge good">Nothing is set aside, and results come</span>`}
      ${found.map((trouble) => html`<span class=${`badge ${trouble.isBad ? "bad" : "warn"}`}>${trouble.text}</span>`)}
      <span class="soft">as of ${new Date(newest.at).toLocaleTimeString()}</span>
    </div>
    <dl class="figures">
      <div class="figure"><dt>Conversations</dt><dd>${count(newest.sessions.total)}${newest.sessions.is_complete === false ? "+" : ""}</dd></div>
      <div class="figure"><dt>Open</dt><dd>${count(newest.sessions.open)}</dd></div>
      <div class="figure"><dt>Archived</dt><dd>${count(newest.sessions.archived)}</dd></div>
      <div class="figure"><dt>Messages in</dt><dd>${rateNow(readings, "INBOUND")} <small>a second</small></dd></div>
      <div class="figure"><dt>Messages out</dt><dd>${rateNow(readings, "OUTBOUND")} <small>a second</small></dd></div>
    </dl>
    <h2>Streams</h2>
    <div class="grid-table" tabindex="0" role="region" aria-label="Streams">
      <table>
        <thead><tr><th scope="col">Stream</th><th scope="col" class="right">Messages</th><th scope="col" class="right">Bytes</th>
          <th scope="col" class="right">Oldest</th><th scope="col" class="right">Newest</th>
          <th scope="col" class="right">A second</th><th scope="col">Last minutes</th></tr></thead>
        <tbody>${newest.streams.map((/** @type {any} */ stream) => {
          const line = rates(readings, stream.name);
          return html`<tr key=${stream.name}>
            <th scope="row" class="mono">${stream.name}</th>
            <td class="right">${count(stream.messages)}</td><td class="right">${compact(stream.size_bytes)}</td>
            <td class="right">${stream.oldest_at ? age(stream.oldest_at) : "–"}</td>
            <td class="right">${stream.newest_at ? age(stream.newest_at) : "–"}</td>
            <td class="right">${(line.at(-1) ?? 0).toFixed(1)}</td>
            <td><${Sparkline} values=${line} label=${`Messages a second on ${stream.name}`} /></td>
          </tr>`;
        })}</tbody>
      </table>
    </div>`;
}

/** @param {import("../modules/pulse.js").Reading[]} readings @param {string} name */
function rateNow(readings, name) {
  return (rates(readings, name).at(-1) ?? 0).toFixed(1);
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

function AllSessions() {
  useTitle("Conversations of everybody");
  const [catalogue] = useState(() => openCatalogue(all, true));
  useEffect(() => () => catalogue.close(), []);
  const sessions = useValue(catalogue.sessions);
  const cursor = useValue(catalogue.cursor);
  const isLoading = useValue(catalogue.isLoading);
  const failure = useValue(catalogue.failure);
  const filter = useValue(catalogue.filter);
  return html`
    <h1>Conversations of everybody</h1>
    <p class="soft">What you open here is written to the audit.</p>
    <div class="filters">
      <button type="button" class="filter" aria-pressed=${String(filter.archived === true)}
        onClick=${() => catalogue.choose({ archived: !filter.archived })}>Archived</button>
    </div>
    ${failure && html`<p class="notice bad" role="alert">${failure.message}</p>`}
    <div class="grid-table" tabindex="0" role="region" aria-label="Conversations">
      <table>
        <thead><tr><th scope="col">Conversation</th><th scope="col">Agent</th><th scope="col">Source</th>
          <th scope="col">State</th><th scope="col" class="right">Rows</th><th scope="col">Last message</th></tr></thead>
        <tbody>
          ${sessions.map(
            (session) =>
              html`<tr key=${session.id}>
                <td><a href=${link("story", session.id)}>${titleOf(session)}</a><br /><span class="mono soft">${session.id}</span></td>
                <td>${session.agent}</td><td>${sourceName(session)}</td>
                <td><${Badges} session=${session} /></td>
                <td class="right">${count(session.message_count)}</td>
                <td><time datetime=${lastTime(session)} title=${exactTime(lastTime(session))}>${listTime(lastTime(session))}</time></td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${!isLoading && sessions.length === 0 && html`<p class="empty">${filter.archived ? "Nothing is archived." : "No conversation yet."}</p>`}
    ${cursor && html`<p class="older"><button type="button" class="button small" disabled=${isLoading}
      onClick=${() => catalogue.readMore()}>More</button></p>`}`;
}

/** One conversation as an operator sees it: what is said, and what the service knows. @param {{ id: string }} props */
function Story({ id }) {
  return html`<div class="story-view">
    <${Talk} api=${all} id=${id} around=${0} prefilled="" onChanged=${() => {}} isOperator />
    <${Facts} id=${id} />
  </div>`;
}

/** @param {{ id: string }} props */
function Facts({ id }) {
  const [session, setSession] = useState(/** @type {any} */ (null));
  const [deliveries, setDeliveries] = useState(/** @type {any[]} */ ([]));
  const [outlook, setOutlook] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let isOver = false;
    const read = async () => {
      try {
        const [view, sent, found] = await Promise.all([all.get(id), all.deliveries(id), service.explainSession(id)]);
        if (isOver) return;
        setOutlook(found);
        setSession(view);
        setDeliveries([...sent.deliveries].reverse());
      } catch {
        // The conversation beside it says what is wrong.
      }
    };
    void read();
    const timer = setInterval(read, 5000);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, [id]);
  if (!session) return html`<aside class="facts-side" aria-label="What the service knows"></aside>`;
  const facts = [
    ["Id", session.id],
    ["Key", session.session_key],
    ["Agent", session.agent],
    ["Platform", session.platform],
    ["Opened by", session.origin],
    ["Began", exactTime(session.started_at)],
    ["Last written", exactTime(session.last_activity_at)],
    ["Ended", session.ended_at && `${exactTime(session.ended_at)} (${session.end_reason ?? "unknown"})`],
    ["Turn", session.is_busy ? "runs" : "none"],
    ["Next message", session.is_suspended || session.ended_at ? "opens another conversation" : "is answered here"],
    ["Held until", session.held_until && exactTime(session.held_until)],
    ["Interrupted", session.resume_pending && (session.resume_pending.reason ?? "yes")],
    ["Continues", session.parent_id && `${session.parent_id} (${session.link_kind})`],
    ["Answers", count(session.answer_count)],
    ["Model", session.model_override?.model ?? session.model],
    ["Directory", session.cwd],
  ];
  return html`<aside class="facts-side" aria-label="What the service knows" tabindex="0">
    <${Outlook} found=${outlook} />
    <${Takeover} id=${id} outlook=${outlook} isEnded=${Boolean(session.ended_at)}
      onChanged=${async () => setOutlook(await service.explainSession(id))} />
    <h2>State</h2>
    <dl class="facts">${facts.map(([name, value]) => value && html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
    <h2>Deliveries</h2>
    ${deliveries.length === 0 && html`<p class="soft">Nothing was sent to a chat.</p>`}
    <ul class="deliveries">${deliveries.map(
      (delivery) =>
        html`<li key=${delivery.message_id}>
          <span class=${`badge ${delivery.state === "delivered" ? "good" : delivery.failure ? "bad" : ""}`}>${delivery.state}</span>
          ${listTime(delivery.created_at)} ${delivery.failure ?? ""}
        </li>`,
    )}</ul>
  </aside>`;
}
