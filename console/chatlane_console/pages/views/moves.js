// An operator lets a chat continue in another conversation, sees before what will happen, and takes it back.
import { all } from "../modules/api.js";
import { titleOf } from "../modules/format.js";
import { html, useState } from "../modules/html.js";
import { link } from "../modules/route.js";

const ID = /[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}/i;
const AWAY = "away";
const HERE = "here";

/** @typedef {{ key: string, from: any, to: any }} Move A chat, the conversation that it leads to, and the one that it will lead to. */

/** @param {any} session */
const named = (session) => html`<a href=${link("story", session.id)}>${titleOf(session)}</a>`;

/** Return why a move cannot be made; empty if nothing is known against it. @param {Move} move */
function obstacle({ from, to }) {
  if (from.id === to.id) return "This is the same conversation.";
  if (to.read_only) return "The conversation can only be read, so that nothing could be answered there.";
  if (from.profile !== to.profile) return `The conversation is of the profile ${to.profile}, and the chat of ${from.profile}.`;
  return "";
}

/** What will happen. @param {{ move: Move }} props */
function Preview({ move }) {
  const { key, from, to } = move;
  return html`<ul>
    <li>The next message of the chat <span class="mono">${key}</span> is answered in ${named(to)}, with its history.</li>
    ${to.ended_at && html`<li>${named(to)} has ended, and is opened again.</li>`}
    ${from.agent !== to.agent && html`<li>The agent ${to.agent} answers, no longer ${from.agent}.</li>`}
    ${!from.ended_at && html`<li>${named(from)} ends, unless another chat leads to it. Its messages stay.</li>`}
    ${(from.is_busy || from.waiting?.count > 0) && html`<li>What runs and waits there is still answered there.</li>`}
    <li>People get no message about it. You can take the move back here.</li>
  </ul>`;
}

/** @param {{ id: string, onChanged: () => Promise<void> }} props */
export function Moves({ id, onChanged }) {
  const [direction, setDirection] = useState(AWAY);
  const [text, setText] = useState("");
  const [move, setMove] = useState(/** @type {Move | null} */ (null));
  const [done, setDone] = useState(/** @type {Move | null} */ (null));
  const [isActing, setActing] = useState(false);
  const [problem, setProblem] = useState("");
  const other = ID.exec(text)?.[0].toLowerCase() ?? "";

  const act = async (/** @type {() => Promise<void>} */ work) => {
    setActing(true);
    setProblem("");
    try {
      await work();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : "This did not work.");
    }
    setActing(false);
  };
  const preview = (/** @type {Event} */ event) => {
    event.preventDefault();
    void act(async () => {
      setDone(null);
      const [here, there] = await Promise.all([all.get(id), all.get(other)]);
      const [from, to] = direction === AWAY ? [here, there] : [there, here];
      const found = { key: from.session_key, from, to };
      setProblem(obstacle(found));
      setMove(obstacle(found) ? null : found);
    });
  };
  /** @param {Move} wanted @param {Move | null} undone The move that can be taken back afterwards. */
  const carryOut = (wanted, undone) =>
    act(async () => {
      await all.switchChat(wanted.to.id, wanted.key, wanted.from.id);
      setMove(null);
      setText("");
      setDone(undone);
      await onChanged();
    });
  return html`<section class="moves" aria-label="Move a chat">
    <h2>Move a chat</h2>
    ${problem && html`<p class="notice bad" role="alert">${problem}</p>`}
    ${done && html`<p class="notice" role="status"><span>The chat leads to ${named(done.to)} now.</span>
      <button type="button" class="button small" disabled=${isActing}
        onClick=${() => carryOut({ key: done.key, from: done.to, to: done.from }, null)}>Take back</button></p>`}
    ${move
      ? html`<div role="group" aria-label="What will happen">
          <${Preview} move=${move} />
          <div class="toolbar">
            <button type="button" class="button small danger" disabled=${isActing}
              onClick=${() => carryOut(move, move)}>Move</button>
            <button type="button" class="button small" disabled=${isActing} onClick=${() => setMove(null)}>Cancel</button>
          </div>
        </div>`
      : html`<form onSubmit=${preview}>
          <label>What to move <select class="field" value=${direction} onChange=${(/** @type {any} */ event) => setDirection(event.target.value)}>
            <option value=${AWAY}>This chat, to another conversation</option>
            <option value=${HERE}>Another chat, to this conversation</option>
          </select></label>
          <label>Id or address of the other conversation <input class="field" autocomplete="off" maxlength="300" value=${text}
            onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
          <button type="submit" class="button small" disabled=${isActing || !other}>Show what will happen</button>
        </form>`}
  </section>`;
}
