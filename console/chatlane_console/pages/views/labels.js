// Labels of a conversation, and the filter of the list by them.
import { html, useValue } from "../modules/html.js";
import { tell } from "../modules/messages.js";
import { ask } from "./dialog.js";

const MAX_CHARACTERS = 64;
const MOST = 16;

/**
 * Ask for a label and add it.
 * @param {any} session
 * @param {(labels: string[], done: string) => Promise<any>} put
 */
export async function addLabel(session, put) {
  const labels = session.labels ?? [];
  if (labels.length >= MOST) {
    tell(`A conversation has at most ${MOST} labels. Remove one first.`, true);
    return;
  }
  const label = await ask({ title: "Add a label", label: "Label", maxLength: MAX_CHARACTERS, action: "Add" });
  if (label?.trim() && !labels.includes(label.trim())) await put([...labels, label.trim()], "The label is added.");
}

/** Labels that can be removed. @param {{ session: any, put?: (labels: string[], done: string) => Promise<any> }} props */
export function Labels({ session, put = undefined }) {
  const labels = session.labels ?? [];
  return labels.map(
    (/** @type {string} */ label) =>
      html`<span key=${label} class="badge label"><span class="hidden-text">Label </span><span dir="auto">${label}</span>
        ${put && html`<button type="button" aria-label=${`Remove the label ${label}`} title="Remove"
          onClick=${() => void put(labels.filter((/** @type {string} */ other) => other !== label), "The label is removed.")}>×</button>`}
      </span>`,
  );
}

/** A choice of a label, once there is one. @param {{ catalogue: import("../modules/catalogue.js").Catalogue }} props */
export function LabelFilter({ catalogue }) {
  const known = useValue(catalogue.labels);
  const filter = useValue(catalogue.filter);
  if (!known.length) return null;
  return html`<select class="filter label-filter" aria-label="Filter by label" value=${filter.label ?? ""}
    onChange=${(/** @type {any} */ event) => catalogue.choose({ label: event.target.value || undefined })}>
    <option value="">Any label</option>
    ${known.map((label) => html`<option key=${label} value=${label}>${label}</option>`)}
  </select>`;
}
