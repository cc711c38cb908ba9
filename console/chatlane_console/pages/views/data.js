// All data of a person: export them, ask for their erasure, and show the receipts.
import { newKey, people } from "../modules/api.js";
import { count, exactTime } from "../modules/format.js";
import { html, useEffect, useRef, useState } from "../modules/html.js";
import { attempt } from "../modules/messages.js";
import { receiptsOf, withReceipt } from "../modules/receipts.js";
import { link } from "../modules/route.js";
import { store, stored } from "../modules/storage.js";
import { ask } from "./dialog.js";
import { Icon } from "./icons.js";

const LOOK_AGAIN_SECONDS = 3;
const WORD = "erase";

/** The page of a person about the own data. */
export function OwnData() {
  useEffect(() => {
    document.title = "Your data · chatlane";
  }, []);
  const receipts = useErasures(receiptsOf(false), people.erasure);
  return html`<main class="talk" id="main" tabindex="-1">
    <header class="talk-head">
      <a class="button plain icon back" href=${link("list")} aria-label="Back to the list"><${Icon} name="back" /></a>
      <div class="talk-name"><h1>Your data</h1></div>
    </header>
    <div class="log"><div class="column data">
      <h2>Export</h2>
      <p>A file with your folders and conversations, one JSON object per line. Files are named, not copied.</p>
      <p><a class="button main" href=${people.exportAddress} download="conversations.jsonl">Export my conversations</a></p>
      <h2>Erase</h2>
      <p>Everything that you said here and in the chats of this account is deleted, with its files. Conversations with others keep what
        the others wrote. To delete one conversation, use its menu.</p>
      <p><button type="button" class="button danger" onClick=${() => receipts.request("Erase everything?", "All of your conversations", () => people.erase(newKey()))}>Erase everything</button></p>
      <${Receipts} erasures=${receipts.erasures} />
    </div></div>
  </main>`;
}

/** The page of an operator about the data of a person. */
export function DataOfPerson() {
  useEffect(() => {
    document.title = "People · chatlane";
  }, []);
  const [person, setPerson] = useState({ id: "", platform: "", account: "", scope: "" });
  const receipts = useErasures(receiptsOf(true), people.erasureOfPerson);
  const given = Object.fromEntries(Object.entries(person).filter(([, value]) => value.trim()));
  const isNamed = Boolean(given.id);
  const field = (/** @type {"id" | "platform" | "account" | "scope"} */ name, /** @type {string} */ label) =>
    html`<label>${label} <input class="field" value=${person[name]} maxlength="200" autocomplete="off"
      onInput=${(/** @type {any} */ event) => setPerson({ ...person, [name]: event.target.value })} /></label>`;
  return html`
    <h1>People</h1>
    <p class="soft">Export or erase the conversations of one person. The audit keeps that you did. Without a platform and an account, the
      person is one of this console.</p>
    <div class="toolbar">${field("id", "Id")} ${field("platform", "Platform")} ${field("account", "Account")} ${field("scope", "Workspace")}</div>
    <div class="toolbar">
      ${isNamed
        ? html`<a class="button small" href=${people.exportOfPerson(given)} download="conversations.jsonl">Export</a>`
        : html`<button type="button" class="button small" disabled>Export</button>`}
      <button type="button" class="button small danger" disabled=${!isNamed}
        onClick=${() => receipts.request(`Erase ${given.id}?`, "All conversations of this person", () => people.erasePerson(given, newKey()))}>Erase</button>
    </div>
    <${Receipts} erasures=${receipts.erasures} />`;
}

/**
 * Return the erasures that were requested in this browser, and what requests another one.
 * @param {string} name
 * @param {(id: string) => Promise<any>} read
 */
function useErasures(name, read) {
  const [erasures, setErasures] = useState(/** @type {any[]} */ (stored(name, [])));
  const timer = useRef(0);
  const keep = (/** @type {any[]} */ next) => {
    store(name, next);
    setErasures(next);
  };
  useEffect(() => {
    const isOpen = erasures.some((erasure) => !erasure.finished_at);
    if (!isOpen) return undefined;
    timer.current = window.setTimeout(async () => {
      const known = await Promise.all(
        erasures.map((erasure) => (erasure.finished_at ? erasure : read(erasure.id).catch(() => ({ ...erasure })))),
      );
      keep(known);
    }, LOOK_AGAIN_SECONDS * 1000);
    return () => clearTimeout(timer.current);
  }, [erasures]);
  return {
    erasures,
    /** @param {string} title @param {string} what @param {() => Promise<any>} send */
    async request(title, what, send) {
      const text = `${what}, their files and all traces of them are deleted for good. Nothing can bring them back.`;
      const answer = await ask({ title, text, label: `Type “${WORD}” to confirm`, action: "Erase", isDanger: true });
      if (answer === null) return;
      if (answer.trim().toLowerCase() !== WORD) {
        await ask({ title: "Nothing was erased", text: `The word was not “${WORD}”.`, action: "Close" });
        return;
      }
      const erasure = await attempt(send);
      if (erasure) keep(withReceipt(erasures, erasure));
    },
  };
}

/** @param {{ erasures: any[] }} props */
function Receipts({ erasures }) {
  if (!erasures.length) return null;
  return html`<section aria-label="Receipts">
    <h2>Receipts</h2>
    ${erasures.map(
      (erasure) => html`<article key=${erasure.id} class="receipt">
        <p><strong>${erasure.what ?? "Erasure"} <span class="mono">${erasure.id}</span></strong></p>
        <p role="status">Requested <time datetime=${erasure.requested_at}>${exactTime(erasure.requested_at)}</time>${erasure.finished_at
          ? html`, finished <time datetime=${erasure.finished_at}>${exactTime(erasure.finished_at)}</time>.`
          : ". It waits for the erasure job."}</p>
        ${erasure.problem && html`<p class="notice warn">${erasure.problem}</p>`}
        ${erasure.finished_at && html`<ul>${Object.entries(erasure.deleted ?? {}).map(
          ([name, number]) => html`<li key=${name}>${count(number)} ${name.replaceAll("_", " ")}</li>`,
        )}</ul>`}
      </article>`,
    )}
  </section>`;
}
