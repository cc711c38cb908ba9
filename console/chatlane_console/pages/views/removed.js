// Messages that were taken out of a conversation, and how they come back.
import { ApiFailure } from "../modules/api.js";
import { count, exactTime, listTime } from "../modules/format.js";
import { html, useEffect, useState, useValue } from "../modules/html.js";
import { tell } from "../modules/messages.js";
import { go, link } from "../modules/route.js";
import { confirmed } from "./dialog.js";
import { Row } from "./row.js";

const PAGE = 100;
const REASONS = { undone: "Taken back", replaced: "Replaced by a summary or by other messages" };
const NO_RESULTS = new Map();

/** Return rows under the changes that took them out, the last change first. @param {any[]} rows */
function byChange(rows) {
  /** @type {Map<number, any[]>} */
  const groups = new Map();
  for (const row of rows) groups.set(row.removal, [row, ...(groups.get(row.removal) ?? [])]);
  return [...groups];
}

/** @param {number} rows */
const messages = (rows) => `${count(rows)} ${rows === 1 ? "message" : "messages"}`;

/**
 * @param {{
 *   talk: import("../modules/conversation.js").Conversation, view: string, onChanged: () => void
 * }} props
 */
export function Removed({ talk, view, onChanged }) {
  const session = useValue(talk.session);
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const [cursor, setCursor] = useState(/** @type {string | null} */ (null));
  const [version, setVersion] = useState("");
  const [isLoading, setLoading] = useState(true);
  const [isActing, setActing] = useState(false);
  const [problem, setProblem] = useState("");
  const conversation = link(view, talk.id);

  const read = async (/** @type {string | null} */ from) => {
    setLoading(true);
    try {
      const page = await talk.api.removed(talk.id, { limit: PAGE, cursor: from });
      setRows((known) => (from ? [...known, ...page.rows] : page.rows));
      setCursor(page.next_cursor ?? null);
      setVersion(page.version ?? "");
    } catch (error) {
      setProblem(error instanceof Error ? error.message : "The server did not answer.");
    }
    setLoading(false);
  };
  useEffect(() => void read(null), [talk]);

  /** @param {number} removal @param {any[]} members */
  const putBack = async (removal, members) => {
    if (members[0].reason === "replaced") {
      const text = "What took their place is taken out, and can be put back in the same way.";
      if (!(await confirmed("Put these messages back?", text, "Put back"))) return;
    }
    setActing(true);
    setProblem("");
    try {
      const done = await talk.api.restore(talk.id, removal, version);
      void talk.read();
      onChanged();
      tell(`${messages(done.restored_rows)} put back.`);
      go(conversation);
    } catch (error) {
      setActing(false);
      if (error instanceof ApiFailure && error.status === 412) {
        setProblem("The conversation has changed meanwhile, for example in another window. This list is new: look at it, and press again.");
        await read(null);
      } else setProblem(error instanceof Error ? error.message : "This did not work.");
    }
  };

  const obstacle = session?.read_only
    ? "This conversation can only be read."
    : session?.ended_at
      ? "The conversation has ended. Open it again to put messages back."
      : "";
  return html`<div class="log" tabindex="0" role="region" aria-label="Messages that were taken out">
    <div class="column removed">
      <p><a href=${conversation}>Back to the messages</a></p>
      <h2>Messages that were taken out</h2>
      ${obstacle && html`<p class="notice">${obstacle}</p>`}
      ${problem && html`<p class="notice bad" role="alert">${problem}</p>`}
      ${byChange(rows).map(
        ([removal, members]) =>
          html`<section key=${removal} aria-label=${`${REASONS[/** @type {keyof typeof REASONS} */ (members[0].reason)] ?? "Taken out"}, ${exactTime(members[0].removed_at)}`}>
            <header class="removed-head">
              <h3>${REASONS[/** @type {keyof typeof REASONS} */ (members[0].reason)] ?? "Taken out"}</h3>
              <span class="soft">change ${removal}</span>
              <time datetime=${members[0].removed_at} title=${exactTime(members[0].removed_at)}>${listTime(members[0].removed_at)}</time>
              <button type="button" class="button small" disabled=${isActing || isLoading || Boolean(obstacle)}
                onClick=${() => void putBack(removal, members)}>Put back</button>
            </header>
            ${members.map((row) => html`<${Row} key=${row.seq} row=${row} results=${NO_RESULTS} isFound=${false} canChange=${false} />`)}
          </section>`,
      )}
      <p class="empty" role="status">${isLoading ? "Loading" : rows.length === 0 && !problem ? "Nothing was taken out." : ""}</p>
      ${cursor && html`<p class="older"><button type="button" class="button small" disabled=${isLoading}
        onClick=${() => void read(cursor)}>More</button></p>`}
    </div>
  </div>`;
}
