// An operator talks to a chat in place of its agent, and hands it back.
import { newKey, service } from "../modules/api.js";
import { clockTime, exactTime } from "../modules/format.js";
import { html, useRef, useState } from "../modules/html.js";
import { tell } from "../modules/messages.js";

const MINUTES = [
  [15, "15 minutes"],
  [60, "an hour"],
  [480, "8 hours"],
];

/** Return until when the team talks; empty if it does not. @param {any} outlook @returns {string} */
function talksUntil(outlook) {
  const fact = outlook?.facts.find((/** @type {any} */ found) => found.name === "team_talks_until");
  return fact?.values?.[0] ?? "";
}

/** @param {{ id: string, outlook: any, isEnded: boolean, onChanged: () => Promise<void> }} props */
export function Takeover({ id, outlook, isEnded, onChanged }) {
  const [minutes, setMinutes] = useState(60);
  const [text, setText] = useState("");
  const [isActing, setActing] = useState(false);
  // The same message keeps its key until it is sent, so that pressing again sends it once.
  const press = useRef({ text: "", key: "" });
  const until = talksUntil(outlook);
  if (!outlook || isEnded) return null;
  const act = async (/** @type {() => Promise<any>} */ work) => {
    setActing(true);
    try {
      await work();
      await onChanged();
    } catch (error) {
      tell(error instanceof Error ? error.message : "This did not work.", true);
    }
    setActing(false);
  };
  const send = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (press.current.text !== text) press.current = { text, key: newKey() };
    void act(async () => {
      await service.speak(id, text, press.current.key);
      press.current = { text: "", key: "" };
      setText("");
    });
  };
  return html`<section class="takeover" aria-label="Takeover">
    <h2>Takeover</h2>
    ${until
      ? html`<p role="status">The agent waits until <time datetime=${until} title=${exactTime(until)}>${clockTime(until)}</time>. Messages of the chat are kept.</p>
        <form onSubmit=${send}>
          <label for="speak">Write to the chat as the team</label>
          <textarea id="speak" class="field" rows="3" maxlength="60000" value=${text}
            onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>
          <div class="toolbar">
            <button type="submit" class="button small main" disabled=${isActing || !text.trim()}>Send to the chat</button>
            <button type="button" class="button small" disabled=${isActing} onClick=${() => act(() => service.handBack(id))}>Hand back</button>
          </div>
        </form>`
      : html`<p class="soft">Let the agent wait, and write to the chat yourself. The agent later sees what was said.</p>`}
    <div class="toolbar">
      <label>For <select class="field" value=${minutes} onChange=${(/** @type {any} */ event) => setMinutes(Number(event.target.value))}>
        ${MINUTES.map(([value, name]) => html`<option value=${value}>${name}</option>`)}
      </select></label>
      <button type="button" class="button small" disabled=${isActing}
        onClick=${() => act(() => service.takeOver(id, minutes))}>${until ? "Set a new end" : "Take over"}</button>
    </div>
  </section>`;
}
