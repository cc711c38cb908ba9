// A question of the agent: buttons, a text, or a form.
import { clockTime } from "../modules/format.js";
import { html, useState } from "../modules/html.js";
import { attempt } from "../modules/messages.js";
import { Text } from "./row.js";

/** @param {{ talk: import("../modules/conversation.js").Conversation, question: any, isSaid: boolean }} props */
export function Question({ talk, question, isSaid }) {
  const [isSending, setSending] = useState(false);
  const [text, setText] = useState("");
  const [values, setValues] = useState(/** @type {Record<string, any>} */ ({}));
  const fields = question.fields ?? [];
  const options = question.options ?? [];
  const reply = async (/** @type {any} */ answer) => {
    if (isSending) return;
    setSending(true);
    const done = await attempt(() => talk.api.answer(talk.id, question.question_id, answer));
    setSending(false);
    if (done !== undefined) talk.question.value = null;
    void talk.read();
  };
  return html`<section class="question" aria-label="The agent asks">
    ${question.text && !isSaid && html`<${Text} text=${question.text} />`}
    ${options.length > 0 &&
    html`<div class="options">
      ${options.map(
        (/** @type {any} */ option) =>
          html`<button type="button" class="button" disabled=${isSending}
            onClick=${() => reply({ value: option.value })}>${option.label ?? option.value}</button>`,
      )}
    </div>`}
    ${fields.length > 0 &&
    html`<form onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      void reply({ values: filled(fields, values) });
    }}>
      ${fields.map((/** @type {any} */ field) => html`<${Field} field=${field} value=${values[field.name]}
        onChange=${(/** @type {any} */ value) => setValues({ ...values, [field.name]: value })} />`)}
      <div class="options"><button class="button main" disabled=${isSending}>Answer</button></div>
    </form>`}
    ${fields.length === 0 && options.length === 0 &&
    html`<form class="side-line" onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      if (text.trim()) void reply({ value: text });
    }}>
      <label class="hidden-text" for="answer">Answer</label>
      <input id="answer" class="field" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
      <button class="button main" disabled=${isSending || !text.trim()}>Answer</button>
    </form>`}
    <p class="soft">${question.default ? `Without an answer by ${clockTime(question.due_at)}: ${question.default}` : `Open until ${clockTime(question.due_at)}`}</p>
  </section>`;
}

/** Return what was filled in, without fields that stay empty. @param {any[]} fields @param {any} values */
function filled(fields, values) {
  return Object.fromEntries(
    fields
      .map((field) => [field.name, values[field.name] ?? field.default ?? (field.kind === "boolean" ? false : undefined)])
      .filter(([, value]) => value !== undefined && value !== "" && !Number.isNaN(value)),
  );
}

/** @param {{ field: any, value: any, onChange: (value: any) => void }} props */
function Field({ field, value, onChange }) {
  const label = `${field.label}${field.required === false ? " (may stay empty)" : ""}`;
  const shown = value ?? field.default ?? "";
  const isRequired = field.required !== false;
  if (field.options?.length) {
    return html`<label>${label}
      <select class="field" value=${shown} required=${isRequired} onChange=${(/** @type {any} */ event) => onChange(event.target.value)}>
        <option value="">Choose</option>
        ${field.options.map((/** @type {any} */ option) => html`<option value=${option.value}>${option.label ?? option.value}</option>`)}
      </select>
    </label>`;
  }
  if (field.kind === "boolean") {
    return html`<label><input type="checkbox" checked=${Boolean(shown)}
      onChange=${(/** @type {any} */ event) => onChange(event.target.checked)} /> ${label}</label>`;
  }
  const isNumber = field.kind === "number";
  return html`<label>${label}
    <input class="field" type=${isNumber ? "number" : "text"} step="any" value=${shown} required=${isRequired}
      min=${isNumber ? field.minimum : undefined} max=${isNumber ? field.maximum : undefined}
      onInput=${(/** @type {any} */ event) => onChange(isNumber ? Number(event.target.value) : event.target.value)} />
  </label>`;
}
