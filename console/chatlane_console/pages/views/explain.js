// What the service would decide about an event, and what a conversation waits for.
import { service } from "../modules/api.js";
import { age, exactTime, duration } from "../modules/format.js";
import { html, useEffect, useState } from "../modules/html.js";
import { link } from "../modules/route.js";

const EXAMPLE = '{"v": 1, "id": "...", "at": "...", "platform": "...", "account": "...", "kind": "message", ...}';

/** @param {{ facts: { name: string, values?: string[] }[] }} props */
function FactList({ facts }) {
  return html`<dl class="facts">${facts.map(
    (fact) => html`<dt>${fact.name.replaceAll("_", " ")}</dt><dd>${(fact.values ?? []).join("; ") || "none"}</dd>`,
  )}</dl>`;
}

/** A page on which an operator pastes an event. */
export function ExplainEvent() {
  const [text, setText] = useState("");
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  const [isAsking, setAsking] = useState(false);
  useEffect(() => {
    document.title = "Explain an event · chatlane";
  }, []);
  const explain = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setAsking(true);
    setFound(null);
    try {
      setFound(await service.explainEvent(text));
      setProblem("");
    } catch (error) {
      setProblem(error instanceof Error ? error.message : "no answer");
    }
    setAsking(false);
  };
  return html`
    <h1>Explain an event</h1>
    <p class="soft">Paste an event as an adapter publishes it. The service says which conversation it would reach now, and by which rules. Nothing is stored.</p>
    <form class="explain" onSubmit=${explain}>
      <label for="event">Event as JSON</label>
      <textarea id="event" class="field mono" rows="10" spellcheck="false" maxlength="200000" placeholder=${EXAMPLE} value=${text}
        onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>
      <button type="submit" class="button main" disabled=${isAsking || !text.trim()}>Explain</button>
    </form>
    ${problem && html`<p class="notice bad" role="alert">${problem}</p>`}
    ${found &&
    html`<section class="explained" aria-label="Explanation" role="status">
      ${found.refusal && html`<p class="notice bad">${found.refusal}</p>`}
      ${found.unknown_fields.length > 0 && html`<p class="notice">Unknown fields, which routers ignore: ${found.unknown_fields.join(", ")}</p>`}
      ${found.session_id && html`<p><a href=${link("story", found.session_id)}>The conversation that it would reach</a></p>`}
      <${FactList} facts=${found.facts} />
    </section>`}`;
}

/** Return when something happens, as people say it. @param {string} iso */
function when(iso) {
  const seconds = (Date.parse(iso) - Date.now()) / 1000;
  return seconds > 0 ? `in ${duration(seconds)}` : `due for ${age(iso)}`;
}

/** Why a conversation has no answer yet. @param {{ found: any }} props */
export function Outlook({ found }) {
  if (!found) return null;
  return html`<section class="outlook" aria-label="What it waits for">
    <h2>What it waits for</h2>
    <p><span class="badge">${found.state}</span> ${found.why}</p>
    ${found.next && html`<p><b>Next:</b> ${found.next}
      ${found.next_at && html` <time datetime=${found.next_at} title=${exactTime(found.next_at)}>(${when(found.next_at)})</time>`}</p>`}
    ${found.facts.length > 0 && html`<details><summary>Facts</summary><${FactList} facts=${found.facts} /></details>`}
  </section>`;
}
