// Import conversations of other programs from their files.
import { ApiFailure, imports } from "../modules/api.js";
import { conversationsIn, leftOutAsTooLarge, packed } from "../modules/exports.js";
import { html, useEffect, useRef, useState } from "../modules/html.js";
import { link } from "../modules/route.js";
import { Icon } from "./icons.js";

const OUTCOMES = { new: "new", continued: "with new messages", unchanged: "unchanged" };

/** @param {{ onImported: () => void }} props */
export function Imports({ onImported }) {
  const [report, setReport] = useState(/** @type {any} */ (null));
  const [isContinued, setContinued] = useState(false);
  const isLeft = useRef(false);
  useEffect(() => {
    document.title = "Import · chatlane";
    return () => {
      isLeft.current = true;
    };
  }, []);

  /** @param {File[]} files */
  async function read(files) {
    const total = files.reduce((sum, file) => sum + file.size, 0);
    const state = { total, read: 0, isDone: false, failure: "", messages: 0, counts: /** @type {any} */ ({}), leftOut: new Map() };
    const show = () => {
      if (!isLeft.current) setReport({ ...state });
    };
    const leaveOut = (/** @type {string} */ what, /** @type {string} */ reason, count = 1) => {
      const name = `${what}: ${reason}`;
      state.leftOut.set(name, (state.leftOut.get(name) ?? 0) + count);
    };
    const onRead = (/** @type {number} */ bytes) => {
      state.read += bytes;
      show();
    };
    show();
    try {
      for (const file of files) {
        for await (const found of conversationsIn(file, onRead)) {
          if (isLeft.current) return;
          if ("reason" in found) leaveOut(found.what, found.reason);
          else await send(found, state, leaveOut);
          show();
        }
      }
      state.read = total;
    } catch (error) {
      state.failure = error instanceof Error ? error.message : "This did not work.";
    }
    state.isDone = true;
    show();
    onImported();
  }

  /** @param {any} found @param {any} state @param {(what: string, reason: string, count?: number) => void} leaveOut */
  async function send(found, state, leaveOut) {
    const body = await packed(found);
    if (!body) {
      const left = leftOutAsTooLarge();
      leaveOut(left.what, left.reason);
      return;
    }
    try {
      const done = await imports.add({ ...body, is_continued: isContinued });
      state.counts[done.outcome] = (state.counts[done.outcome] ?? 0) + 1;
      state.messages += done.rows;
      for (const left of done.left_out) leaveOut(left.what, left.reason, left.count);
    } catch (error) {
      if (!(error instanceof ApiFailure) || ![409, 413, 422].includes(error.status)) throw error;
      leaveOut("conversation", error.problem?.detail ?? error.message);
    }
  }

  const isRunning = Boolean(report) && !report.isDone;
  return html`<main class="talk" id="main" tabindex="-1">
    <header class="talk-head">
      <a class="button plain icon back" href=${link("list")} aria-label="Back to the list"><${Icon} name="back" /></a>
      <div class="talk-name"><h1>Import conversations</h1></div>
    </header>
    <div class="log"><div class="column imports">
      <p>Choose the archive or the <code>conversations.json</code> that ChatGPT exports, the JSON file of Open WebUI, or the
        <code>.jsonl</code> files of Claude Code (<code>~/.claude/projects</code>). The same file again adds what is new.</p>
      <p class="soft">A conversation may have 16 MiB, and 700 kB compressed. Your operator imports larger ones with <code>chatlane import</code>.</p>
      <p><label><input type="checkbox" checked=${isContinued} disabled=${isRunning}
        onChange=${(/** @type {any} */ event) => setContinued(event.target.checked)} /> Let the conversations go on. Without this they can only be read and copied.</label></p>
      <p><label class=${`button main ${isRunning ? "disabled" : ""}`}>Choose files
        <input class="hidden-text" type="file" multiple accept=".zip,.json,.jsonl" disabled=${isRunning}
          onChange=${(/** @type {any} */ event) => {
            const files = [...event.target.files];
            event.target.value = "";
            if (files.length) void read(files);
          }} /></label></p>
      ${report && html`<${Report} report=${report} />`}
    </div></div>
  </main>`;
}

/** @param {{ report: any }} props */
function Report({ report }) {
  const share = report.total ? Math.min(1, report.read / report.total) : 1;
  const counts = Object.entries(OUTCOMES).filter(([outcome]) => report.counts[outcome]);
  return html`<section aria-label="Progress" aria-busy=${String(!report.isDone)}>
    <progress max="1" value=${report.isDone && !report.failure ? 1 : share} aria-label="Part of the files that is imported"></progress>
    ${report.failure && html`<p class="notice bad" role="alert">${report.failure} What was imported stays. Choose the same files again to go on.</p>`}
    ${report.isDone && !report.failure && html`<p role="status">The import is finished.</p>`}
    <ul>
      ${counts.map(([outcome, name]) => html`<li key=${outcome}>${report.counts[outcome]} ${report.counts[outcome] === 1 ? "conversation" : "conversations"} ${name}</li>`)}
      ${report.messages > 0 && html`<li>${report.messages} messages</li>`}
    </ul>
    ${report.leftOut.size > 0 &&
    html`<h2>Left out</h2>
      <ul>${[...report.leftOut].map(([name, count]) => html`<li key=${name}>${count} × ${name}</li>`)}</ul>`}
  </section>`;
}
