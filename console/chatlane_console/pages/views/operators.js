// Pages for operators: is it well, the conversations of everybody, and what was set aside.
import { all, service } from "../modules/api.js";
import { count, exactTime, listTime } from "../modules/format.js";
import { html, useEffect, useState } from "../modules/html.js";
import { go, link } from "../modules/route.js";
import { DataOfPerson } from "./data.js";
import { DeadLetters } from "./dead_letters.js";
import { Declarations } from "./declarations.js";
import { Everybody, listOfEverybody } from "./everybody.js";
import { ExplainEvent, Outlook } from "./explain.js";
import { Moves } from "./moves.js";
import { Overview } from "./overview.js";
import { Takeover } from "./takeover.js";
import { Talk } from "./talk.js";

const ID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

/** @param {{ route: import("../modules/route.js").Route }} props */
export function Operators({ route }) {
  if (route.view === "story" && route.id) {
    return html`<${Story} key=${route.id} id=${route.id} around=${Number.parseInt(route.query.get("at") ?? "", 10) || 0}
      showsRemoved=${route.query.get("show") === "removed"} />`;
  }
  const page = route.view === "dead" ? "dead" : route.id || "overview";
  const pages = [
    ["overview", "Overview", link("operators")],
    ["sessions", "Conversations", listOfEverybody()],
    ["dead", "Set aside", link("dead")],
    ["explain", "Explain", link("operators", "explain")],
    ["people", "People", link("operators", "people")],
    ["declared", "Settings", link("operators", "declared")],
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
      : page === "sessions" ? html`<${Everybody} query=${route.query} />`
      : page === "explain" ? html`<${ExplainEvent} />`
      : page === "people" ? html`<${DataOfPerson} />`
      : page === "declared" ? html`<${Declarations} />`
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

/**
 * One conversation as an operator sees it: what is said, and what the service knows.
 * @param {{ id: string, around: number, showsRemoved: boolean }} props
 */
function Story({ id, around, showsRemoved }) {
  return html`<div class="story-view">
    <${Talk} api=${all} id=${id} around=${around} prefilled="" back=${listOfEverybody()} showsRemoved=${showsRemoved} onChanged=${() => {}} isOperator />
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
    <${Moves} id=${id} onChanged=${async () => setSession(await all.get(id))} />
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
