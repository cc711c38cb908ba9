// What a running turn shows before its answer is stored, and messages on their way.
import { clockTime } from "../modules/format.js";
import { html } from "../modules/html.js";
import { forget, sendAgain } from "../modules/outbox.js";
import { attachmentsOf } from "./attachments.js";
import { Files, Text, Thought, Tool } from "./row.js";

const WAITS = {
  error: "The last try failed. The agent tries again",
  lost: "The worker of the agent was lost. Another one goes on",
  unavailable: "The agent is not available. It is tried again",
  handed_back: "The worker stops. Another one goes on",
};

/** @param {{ turn: import("../modules/live.js").LiveTurn, showsReasoning: boolean }} props */
export function LiveTurn({ turn, showsReasoning }) {
  const last = turn.parts.at(-1);
  return html`<article class="row assistant live" aria-label="Answer that is being written" aria-busy="true">
    <header class="row-head"><span class="name">Agent</span></header>
    ${turn.hasGap && html`<p class="notice">A part is not shown here; the complete answer follows.</p>`}
    ${turn.parts.map((part, place) => {
      if (part.kind === "tool") {
        return html`<${Tool} key=${`tool-${part.id}`} name=${part.name} title=${part.title} given="" result=${part.result || null} state=${part.state} />`;
      }
      if (part.kind === "thought") {
        return showsReasoning ? html`<${Thought} key=${place} text=${part.text} isOpen=${part === last} />` : null;
      }
      return html`<${Text} key=${place} text=${part.text} />`;
    })}
    ${turn.plan.length > 0 && html`<${Plan} entries=${turn.plan} />`}
    <p class="working"><span class="pulse"></span>${statusOf(turn)}</p>
  </article>`;
}

/** @param {import("../modules/live.js").LiveTurn} turn */
function statusOf(turn) {
  if (turn.waiting) {
    const text = WAITS[/** @type {keyof typeof WAITS} */ (turn.waiting.reason)] ?? "The agent tries again";
    return turn.waiting.until ? `${text} at ${clockTime(turn.waiting.until)}.` : `${text}.`;
  }
  if (turn.progress) return turn.progress;
  const last = turn.parts.at(-1);
  if (last?.kind === "tool" && last.state === "running") return `Working: ${last.title || last.name}`;
  return last?.kind === "text" ? "Writing" : "Thinking";
}

/** @param {{ entries: any[] }} props */
function Plan({ entries }) {
  return html`<ul class="plan" aria-label="Plan">
    ${entries.map(
      (entry) =>
        html`<li class=${entry.state}><span aria-hidden="true">${entry.state === "done" ? "☑" : "☐"}</span>
          <span>${entry.text}${entry.state === "running" ? " (now)" : ""}</span></li>`,
    )}
  </ul>`;
}

/**
 * @param {{ message: import("../modules/outbox.js").Message, isOnline: boolean, onEdit: (text: string) => void }} props
 */
export function OnItsWay({ message, isOnline, onEdit }) {
  return html`<article class="row person" aria-label="Your message">
    <header class="row-head"><span class="name">You</span><time datetime=${message.at}>${clockTime(message.at)}</time></header>
    <div class="said" dir="auto">
      ${message.text && html`<div class="text"><p class="as-written">${message.text}</p></div>`}
      <${Files} files=${(message.files ?? []).map((file) => ({ name: file.name, size_bytes: file.size }))} />
    </div>
    <div class="row-marks">
      ${message.state === "sending" && html`<span class="badge">${isOnline ? "sending" : "is sent when the connection is back"}</span>`}
      ${message.state === "sent" && html`<span class="badge run">waits for the agent</span>`}
      ${message.state === "refused" && html`<span class="badge bad">not sent: ${message.reason}</span>`}
    </div>
    ${message.state === "refused" &&
    html`<div class="row-marks">
      <button type="button" class="button small" onClick=${() => sendAgain(message)}>Send again</button>
      <button type="button" class="button small" onClick=${() => {
        forget(message.key);
        attachmentsOf(message.sessionId).giveBack(message.files ?? []);
        onEdit(message.text);
      }}>Edit</button>
      <button type="button" class="button small" onClick=${() => forget(message.key)}>Remove</button>
    </div>`}
  </article>`;
}
