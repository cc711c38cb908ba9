// Dialogs and menus, with the focus where a keyboard expects it.
import { html, signal, useEffect, useRef, useState, useValue } from "../modules/html.js";
import { Icon } from "./icons.js";

/**
 * @typedef {{
 *   title: string, text?: string, label?: string, value?: string, maxLength?: number,
 *   action: string, isDanger?: boolean, choices?: { value: string, label: string }[],
 *   done: (value: string | null) => void
 * }} Asked
 */
const shown = signal(/** @type {Asked | null} */ (null));

/**
 * Ask the person in a dialog; the answer is null if the person leaves it.
 * @param {Omit<Asked, "done">} question
 * @returns {Promise<string | null>}
 */
export function ask(question) {
  return new Promise((resolve) => {
    shown.value = { ...question, done: resolve };
  });
}

/** Return whether the person agrees. @param {string} title @param {string} text @param {string} action */
export async function confirmed(title, text, action) {
  return (await ask({ title, text, action, isDanger: true })) !== null;
}

export function Dialog() {
  const asked = useValue(shown);
  const element = useRef(/** @type {any} */ (null));
  const [value, setValue] = useState("");
  useEffect(() => {
    if (!asked) return;
    setValue(asked.value ?? "");
    element.current.showModal();
  }, [asked]);
  if (!asked) return null;
  const finish = (/** @type {string | null} */ answer) => {
    element.current?.close();
    shown.value = null;
    asked.done(answer);
  };
  return html`<dialog ref=${element} aria-labelledby="dialog-title"
    onCancel=${(/** @type {Event} */ event) => {
      event.preventDefault();
      finish(null);
    }}>
    <h2 id="dialog-title">${asked.title}</h2>
    <form method="dialog" onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      finish(value);
    }}>
      ${asked.text && html`<p>${asked.text}</p>`}
      ${asked.label &&
      html`<label>${asked.label}
        ${asked.choices
          ? html`<select class="field" value=${value}
              onChange=${(/** @type {any} */ event) => setValue(event.target.value)}>
              ${asked.choices.map((choice) => html`<option value=${choice.value}>${choice.label}</option>`)}
            </select>`
          : html`<input class="field" value=${value} maxlength=${asked.maxLength ?? 100} autofocus
              onInput=${(/** @type {any} */ event) => setValue(event.target.value)} />`}
      </label>`}
      <div class="actions">
        <button type="button" class="button" onClick=${() => finish(null)}>Cancel</button>
        <button type="submit" class=${`button ${asked.isDanger ? "danger" : "main"}`}>${asked.action}</button>
      </div>
    </form>
  </dialog>`;
}

/**
 * @param {{ label: string, items: { label: string, isDanger?: boolean, act: () => void }[] }} props
 */
export function Menu({ label, items }) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef(/** @type {any} */ (null));
  useEffect(() => {
    if (!isOpen) return undefined;
    root.current.querySelector("[role=menuitem]")?.focus();
    const leave = (/** @type {any} */ event) => {
      if (!root.current?.contains(event.target)) setOpen(false);
    };
    addEventListener("pointerdown", leave);
    return () => removeEventListener("pointerdown", leave);
  }, [isOpen]);
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (!isOpen) return;
    const entries = [...root.current.querySelectorAll("[role=menuitem]")];
    const place = entries.indexOf(document.activeElement);
    if (event.key === "Escape") {
      setOpen(false);
      root.current.querySelector("button").focus();
    } else if (event.key === "ArrowDown") entries[(place + 1) % entries.length]?.focus();
    else if (event.key === "ArrowUp") entries.at(place - 1)?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="menu" ref=${root} onKeyDown=${onKey}>
    <button type="button" class="button plain icon" aria-haspopup="menu" aria-expanded=${String(isOpen)}
      aria-label=${label} title=${label} onClick=${() => setOpen(!isOpen)}><${Icon} name="more" /></button>
    ${isOpen &&
    html`<div class="menu-list" role="menu" aria-label=${label}>
      ${items.map(
        (item) =>
          html`<button type="button" role="menuitem" class=${item.isDanger ? "danger" : ""}
            onClick=${() => {
              setOpen(false);
              item.act();
            }}>${item.label}</button>`,
      )}
    </div>`}
  </div>`;
}
