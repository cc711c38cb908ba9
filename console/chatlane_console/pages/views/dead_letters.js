// What was set aside: by cause and account, with its content, to retry and to drop.
import { service } from "../modules/api.js";
import { age, count, exactTime } from "../modules/format.js";
import { html, useEffect, useState } from "../modules/html.js";
import { tell } from "../modules/messages.js";
import { link } from "../modules/route.js";
import { ask } from "./dialog.js";

const LETTERS = 50;
const AGES = [
  ["", "Any age"],
  ["3600", "Over an hour"],
  ["86400", "Over a day"],
  ["604800", "Over a week"],
];

/** @typedef {{ reason?: string, cause?: string, platform?: string, account?: string, olderThan?: string }} Filter */

/** Return the filter as the API takes it. @param {Filter} filter */
function query({ olderThan, ...filter }) {
  const before = olderThan ? new Date(Date.now() - Number(olderThan) * 1000).toISOString() : undefined;
  return { ...filter, before };
}

/** @param {number} number @param {string} one @param {string} many */
const numbered = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

/** @param {any} entry */
const accountOf = (entry) => (entry.platform ? `${entry.platform}/${entry.account ?? ""}` : "");

export function DeadLetters() {
  useEffect(() => {
    document.title = "Set aside · chatlane";
  }, []);
  const [filter, setFilter] = useState(/** @type {Filter} */ ({}));
  const [counts, setCounts] = useState(/** @type {any} */ (null));
  const [letters, setLetters] = useState(/** @type {any[]} */ ([]));
  const [cursor, setCursor] = useState(/** @type {string | null} */ (null));
  const [isLoading, setLoading] = useState(true);
  const [problem, setProblem] = useState("");
  const [isActing, setActing] = useState(false);

  const read = async (/** @type {string | null} */ from) => {
    setLoading(true);
    try {
      const wanted = query(filter);
      const [page, numbers] = await Promise.all([
        service.deadLetters({ ...wanted, limit: LETTERS, cursor: from }),
        from ? counts : service.letterCounts({}),
      ]);
      setLetters((known) => (from ? [...known, ...page.letters] : page.letters));
      setCursor(page.next_cursor ?? null);
      setCounts(numbers);
      setProblem("");
    } catch (error) {
      setProblem(error instanceof Error ? error.message : "no answer");
    }
    setLoading(false);
  };
  useEffect(() => void read(null), [filter]);

  /** @param {"retry" | "drop"} action @param {string[]} ids */
  const act = async (action, ids) => {
    const { results } = await service.settle(action, ids);
    const of = (/** @type {string} */ fate) => results.filter((/** @type {any} */ result) => result.fate === fate);
    const [done, stays, gone] = [of("done"), of("stays"), of("gone")];
    const said = [`${count(done.length)} ${action === "retry" ? "retried" : "dropped"}`];
    if (gone.length) said.push(`${count(gone.length)} no longer there`);
    if (stays.length) said.push(`${numbered(stays.length, "stays", "stay")}: ${stays[0].obstacle}`);
    tell(said.join(", "), stays.length > 0);
    await read(null);
  };
  /** @param {() => Promise<void>} work */
  const whileActing = async (work) => {
    setActing(true);
    try {
      await work();
    } catch (error) {
      tell(error instanceof Error ? error.message : "This did not work.", true);
    }
    setActing(false);
  };
  /** @param {"retry" | "drop"} action */
  const actOnAll = (action) =>
    whileActing(async () => {
      const preview = await service.letterPreview({ ...query(filter), action });
      if (preview.letter_ids.length === 0) {
        tell(action === "retry" ? "No retry can help these." : "There are none.");
        return;
      }
      const verb = action === "retry" ? "Retry" : "Drop";
      const title = `${verb} ${numbered(preview.letter_ids.length, "dead letter", "dead letters")}?`;
      if ((await ask({ title, text: consequence(action, preview), action: verb, isDanger: action === "drop" })) === null) return;
      await act(action, preview.letter_ids);
    });
  /** @param {"retry" | "drop"} action @param {string} id */
  const actOnOne = (action, id) =>
    whileActing(async () => {
      if (action === "drop") {
        const text = "Its body is deleted. The audit keeps its digest.";
        if ((await ask({ title: "Drop this dead letter?", text, action: "Drop", isDanger: true })) === null) return;
      }
      await act(action, [id]);
    });

  const isFiltered = Object.values(filter).some(Boolean);
  return html`
    <h1>Set aside</h1>
    <p class="soft">Dead letters: messages that the service could not decide or deliver. Fix the cause before you retry.</p>
    ${problem && html`<p class="notice bad" role="alert">${problem}</p>`}
    <${Groups} counts=${counts} onChoose=${(/** @type {any} */ group) =>
      setFilter({
        olderThan: filter.olderThan,
        reason: group.reason,
        platform: group.platform ?? "",
        account: group.account ?? "",
      })} />
    <div class="toolbar">
      <label>Age <select class="field" value=${filter.olderThan ?? ""}
        onChange=${(/** @type {any} */ event) => setFilter({ ...filter, olderThan: event.target.value })}>
        ${AGES.map(([value, name]) => html`<option value=${value}>${name}</option>`)}
      </select></label>
      ${isFiltered &&
      html`<span class="badge">${[filter.reason, accountOf(filter)].filter(Boolean).join(" of ") || "By age"}</span>
        <button type="button" class="button small plain" onClick=${() => setFilter({})}>Show all</button>`}
      <button type="button" class="button small" disabled=${isActing || letters.length === 0}
        onClick=${() => actOnAll("retry")}>Retry all shown by the filter</button>
      <button type="button" class="button small danger" disabled=${isActing || letters.length === 0}
        onClick=${() => actOnAll("drop")}>Drop all shown by the filter</button>
    </div>
    ${letters.length > 0 &&
    html`<div class="grid-table" tabindex="0" role="region" aria-label="Dead letters">
      <table>
        <thead><tr><th scope="col">When</th><th scope="col">Reason</th><th scope="col">Who has to act</th>
          <th scope="col">Account</th><th scope="col">Place</th><th scope="col" class="right">Bytes</th>
          <th scope="col">Detail</th><th scope="col">Actions</th></tr></thead>
        <tbody>${letters.map(
          (letter) => html`<${Letter} key=${letter.id} letter=${letter} isActing=${isActing} onAct=${actOnOne} />`,
        )}</tbody>
      </table>
    </div>`}
    ${!isLoading && !problem && letters.length === 0 &&
    html`<p class="empty">${isFiltered ? "Nothing matches." : "Nothing was set aside."}</p>`}
    ${cursor && html`<p class="older"><button type="button" class="button small" disabled=${isLoading}
      onClick=${() => read(cursor)}>Older</button></p>`}`;
}

/** @param {"retry" | "drop"} action @param {any} preview */
function consequence(action, preview) {
  const total = `${count(preview.letters)}${preview.is_complete ? "" : "+"}`;
  const said = [`${total} match, of ${numbered(preview.conversations, "conversation", "conversations")}.`];
  const ids = preview.letter_ids.length;
  if (ids + preview.left_out < preview.letters) said.push(`This handles the ${count(ids)} oldest; press again for more.`);
  if (action === "drop") said.push("Their bodies are deleted, and the people get no answer.");
  else {
    said.push("Messages are handled again, after newer ones of their chats; failed turns go to the workers again.");
    if (preview.left_out) said.push(`${numbered(preview.left_out, "stays", "stay")}, because no retry can help.`);
  }
  return said.join(" ");
}

/** @param {{ counts: any, onChoose: (group: any) => void }} props */
function Groups({ counts, onChoose }) {
  if (!counts || counts.groups.length === 0) return null;
  return html`<h2>By cause</h2>
    <div class="grid-table" tabindex="0" role="region" aria-label="Dead letters by cause">
      <table>
        <thead><tr><th scope="col">Who has to act</th><th scope="col">Reason</th><th scope="col">Account</th>
          <th scope="col" class="right">Number</th><th scope="col" class="right">Oldest</th><th scope="col">Filter</th></tr></thead>
        <tbody>${counts.groups.map(
          (/** @type {any} */ group) =>
            html`<tr key=${`${group.reason} ${accountOf(group)}`}>
              <td>${group.cause}</td><td class="mono">${group.reason}</td><td>${accountOf(group) || "–"}</td>
              <td class="right">${count(group.letters)}</td>
              <td class="right"><time datetime=${group.oldest_at} title=${exactTime(group.oldest_at)}>${age(group.oldest_at)}</time></td>
              <td><button type="button" class="button small" aria-label=${`Show ${group.reason} of ${accountOf(group) || "no account"}`}
                onClick=${() => onChoose(group)}>Show</button></td>
            </tr>`,
        )}</tbody>
      </table>
    </div>
    ${!counts.is_complete && html`<p class="soft">There are more; the newest were counted.</p>`}`;
}

/** @param {{ letter: any, isActing: boolean, onAct: (action: "retry" | "drop", id: string) => void }} props */
function Letter({ letter, isActing, onAct }) {
  const [content, setContent] = useState(/** @type {any} */ (null));
  const inspect = async () => {
    if (content) {
      setContent(null);
      return;
    }
    try {
      setContent(await service.deadLetter(letter.id));
    } catch (error) {
      tell(error instanceof Error ? error.message : "no answer", true);
    }
  };
  const place = [letter.log ?? letter.stage, letter.partition, letter.sequence].filter((part) => part !== null && part !== undefined);
  return html`
    <tr id=${`letter-${letter.id}`}>
      <td><time datetime=${letter.at} title=${exactTime(letter.at)}>${age(letter.at)} ago</time></td>
      <td class="mono">${letter.reason}</td><td>${letter.cause}</td><td>${accountOf(letter) || "–"}</td>
      <td class="mono">${place.join(" ")}</td>
      <td class="right">${count(letter.size_bytes)}</td><td>${letter.detail ?? ""}</td>
      <td class="row-actions">
        <button type="button" class="button small" aria-expanded=${String(content !== null)} onClick=${inspect}>Inspect</button>
        <button type="button" class="button small" disabled=${isActing || !letter.is_retriable}
          onClick=${() => onAct("retry", letter.id)}>Retry</button>
        <button type="button" class="button small danger" disabled=${isActing} onClick=${() => onAct("drop", letter.id)}>Drop</button>
      </td>
    </tr>
    ${content && html`<tr><td colspan="8"><${Content} content=${content} /></td></tr>`}`;
}

/** @param {{ content: any }} props */
function Content({ content }) {
  return html`<div class="letter-content">
    <p class="soft">The audit names what you open here.
      ${content.letter.session_id && html` <a href=${link("story", content.letter.session_id)}>Its conversation</a>`}</p>
    ${content.obstacle && html`<p class="notice">A retry is not possible now: ${content.obstacle}</p>`}
    ${content.texts.map((/** @type {any} */ text) => html`<p>${text.author && html`<b>${text.author}: </b>`}${text.text}</p>`)}
    ${content.first_texts.map((/** @type {string} */ text) => html`<p><b>First message with this id: </b>${text}</p>`)}
    <dl class="facts"><dt>Id</dt><dd>${content.letter.id}</dd>
      ${content.subject && html`<dt>Subject</dt><dd>${content.subject}</dd>`}
      ${content.digest && html`<dt>SHA-256</dt><dd>${content.digest}</dd>`}</dl>
    ${content.body === null || content.body === undefined
      ? html`<p class="soft">The body is gone, or too large to be shown.</p>`
      : html`<pre tabindex="0" aria-label="Body">${content.body}</pre>`}
  </div>`;
}
