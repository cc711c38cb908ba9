// Where a person writes: the draft, commands with completion, send and stop.
import { commandOf, completions } from "../modules/commands.js";
import { openDraft } from "../modules/drafts.js";
import { html, useEffect, useMemo, useRef, useState, useValue } from "../modules/html.js";
import { tell } from "../modules/messages.js";
import { AttachButton, attachmentsOf, Chips, takesFiles } from "./attachments.js";
import { Icon } from "./icons.js";

const MAX_CHARACTERS = 60_000;
const MAX_ROWS = 10;
const SHOWN_CHARACTERS = 120;

/**
 * @param {{
 *   name: string, api?: import("../modules/api.js").Conversations | null, isRunning: boolean, isOnline: boolean, blocked: string, prefilled: string,
 *   onSend: (text: string, files: import("./attachments.js").SentFile[]) => void, onCommand: (command: any) => void, onStop: () => void
 * }} props
 */
export function Composer({ name, api = null, isRunning, isOnline, blocked, prefilled, onSend, onCommand, onStop }) {
  const draftName = `draft.${name}`;
  const draft = useMemo(() => openDraft(name, api), [name, api]);
  const attached = useMemo(() => attachmentsOf(name), [name]);
  const files = useValue(attached.files);
  const text = useValue(draft.text);
  const other = useValue(draft.other);
  const [chosen, setChosen] = useState(0);
  const [isStopping, setStopping] = useState(false);
  const field = useRef(/** @type {any} */ (null));
  useEffect(() => {
    // A keyboard on the screen would cover the conversation.
    if (matchMedia("(hover: hover)").matches) field.current?.focus({ preventScroll: true });
    return () => draft.close();
  }, [draft]);
  useEffect(() => {
    if (!prefilled) return;
    write(prefilled);
    field.current?.focus();
  }, [prefilled]);
  useEffect(() => {
    if (!isRunning) setStopping(false);
  }, [isRunning]);
  useEffect(() => {
    // The draft of another window of the same person.
    const onStorage = (/** @type {StorageEvent} */ event) => {
      if (event.key?.endsWith(draftName) && document.activeElement !== field.current) draft.reload();
    };
    addEventListener("storage", onStorage);
    return () => removeEventListener("storage", onStorage);
  }, [draft]);

  useEffect(() => {
    // The whole conversation takes files: a browser would leave the page for a file that is dropped beside the field.
    const place = field.current?.closest("main");
    if (!place || !takesFiles() || blocked) return undefined;
    const hasFiles = (/** @type {DragEvent} */ event) => Boolean(event.dataTransfer?.types.includes("Files"));
    const onDrag = (/** @type {DragEvent} */ event) => {
      if (hasFiles(event)) event.preventDefault();
    };
    const onDrop = (/** @type {DragEvent} */ event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      attached.addAll(event.dataTransfer?.files ?? []);
    };
    place.addEventListener("dragover", onDrag);
    place.addEventListener("drop", onDrop);
    return () => {
      place.removeEventListener("dragover", onDrag);
      place.removeEventListener("drop", onDrop);
    };
  }, [attached, blocked]);

  const found = completions(text, isRunning);
  const place = Math.min(chosen, found.length - 1);

  /** @param {string} value */
  function write(value) {
    draft.type(value);
    setChosen(0);
  }
  function submit() {
    // From the field: a second press may come before the page shows that the first one emptied it.
    const whole = (field.current?.value ?? text).trim();
    if ((!whole && !attached.files.peek().length) || blocked) return;
    const command = commandOf(whole);
    if (!command && attached.isSending()) {
      tell("A file is still being sent. Send the message after that.");
      return;
    }
    if (field.current) field.current.value = "";
    write("");
    if (command) onCommand(command);
    else onSend(whole, attached.take());
    field.current?.focus();
  }
  /** @param {number} at */
  function complete(at) {
    const command = found[at];
    write(`/${command.word}${command.argument ? " " : ""}`);
    field.current?.focus();
  }
  /** @param {KeyboardEvent} event */
  function onKey(event) {
    if (event.isComposing) return;
    if (found.length && !commandOf(text)) {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        setChosen((place + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length);
        event.preventDefault();
        return;
      }
      if (event.key === "Tab" || event.key === "Enter") {
        complete(place);
        event.preventDefault();
        return;
      }
    }
    if (event.key === "Escape" && found.length) {
      write("");
      event.stopPropagation();
    } else if (event.key === "Enter" && !event.shiftKey) {
      submit();
      event.preventDefault();
    }
  }

  /** @param {ClipboardEvent} event */
  function onPaste(event) {
    // Copied text may come with a picture of itself.
    const pasted = event.clipboardData;
    if (!pasted?.files.length || pasted.types.includes("text/plain") || !takesFiles()) return;
    event.preventDefault();
    attached.addAll(pasted.files);
  }

  return html`<form class="composer" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    submit();
  }}>
    <div class="column composer-box">
      ${found.length > 0 && !commandOf(text) &&
      html`<ul class="commands" role="listbox" id="commands" aria-label="Commands">
        ${found.map(
          (command, at) =>
            html`<li role="option" id=${`command-${command.word}`} aria-selected=${String(at === place)}
              onPointerDown=${(/** @type {Event} */ event) => {
                event.preventDefault();
                complete(at);
              }}>
              <span class="mono">/${command.word} ${command.argument}</span><span class="does">${command.does}</span>
            </li>`,
        )}
      </ul>`}
      ${other &&
      html`<div class="notice warn" role="alert">
        <span>Another window has typed something else here: <q dir="auto">${other.text.slice(0, SHOWN_CHARACTERS)}</q></span>
        <button type="button" class="button small" onClick=${draft.takeOther}>Take that</button>
        <button type="button" class="button small" onClick=${draft.keepOwn}>Keep this</button>
      </div>`}
      <label class="hidden-text" for="message">Message</label>
      <textarea id="message" ref=${field} rows=${Math.min(MAX_ROWS, text.split("\n").length)} dir="auto" maxlength=${MAX_CHARACTERS} value=${text}
        placeholder=${blocked || "Write a message, or / for a command"} disabled=${Boolean(blocked)}
        aria-autocomplete="list" aria-controls=${found.length ? "commands" : undefined}
        aria-activedescendant=${found.length ? `command-${found[place]?.word}` : undefined}
        onInput=${(/** @type {any} */ event) => write(event.target.value)} onKeyDown=${onKey} onPaste=${onPaste}></textarea>
      <${Chips} attached=${attached} />
      <div class="composer-line">
        <${AttachButton} attached=${attached} isBlocked=${Boolean(blocked)} />
        <span class="hint">${isOnline ? (isRunning ? "A message now is taken into the answer, or answered next." : "Enter sends, Shift+Enter begins a line") : "Without connection. Messages are kept and sent later."}</span>
        ${isRunning &&
        html`<button type="button" class="button icon" aria-label="Stop the answer" title="Stop the answer"
          disabled=${isStopping} onClick=${() => {
            setStopping(true);
            onStop();
          }}><${Icon} name="stop" /></button>`}
        <button type="submit" class="button main icon" aria-label="Send" title="Send" disabled=${(!text.trim() && !files.length) || Boolean(blocked)}>
          <${Icon} name="send" />
        </button>
      </div>
    </div>
  </form>`;
}
