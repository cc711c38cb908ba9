// The list of conversations, at the side.
import { lastTime, listTime, sourceKind, sourceName, titleOf, exactTime } from "../modules/format.js";
import { html, useEffect, useRef, useValue } from "../modules/html.js";
import { link } from "../modules/route.js";
import { Dot, Folders } from "./folders.js";
import { Icon } from "./icons.js";
import { LabelFilter, Labels } from "./labels.js";

const NEAR_THE_END = 600;
// The service counts no further.
const MOST_UNREAD = 100;

/** @param {{ catalogue: import("../modules/catalogue.js").Catalogue, openId: string }} props */
export function List({ catalogue, openId }) {
  const sessions = useValue(catalogue.sessions);
  const cursor = useValue(catalogue.cursor);
  const isLoading = useValue(catalogue.isLoading);
  const failure = useValue(catalogue.failure);
  const query = useValue(catalogue.query);
  const hits = useValue(catalogue.hits);
  const isSearching = useValue(catalogue.isSearching);
  const filter = useValue(catalogue.filter);
  const box = useRef(/** @type {any} */ (null));

  // A tall window may show the whole page without a scroll bar.
  useEffect(() => {
    const place = box.current;
    if (cursor && place && place.scrollHeight <= place.clientHeight) void catalogue.readMore();
  }, [sessions, cursor]);
  const onScroll = () => {
    const place = box.current;
    if (!place) return;
    if (place.scrollHeight - place.scrollTop - place.clientHeight < NEAR_THE_END) void catalogue.readMore();
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...box.current.querySelectorAll("a")];
    const place = links.indexOf(document.activeElement);
    const next = links[place + (event.key === "ArrowDown" ? 1 : -1)];
    if (!next) return;
    next.focus();
    event.preventDefault();
  };

  const folders = useValue(catalogue.folders);
  // Of a list of one folder, the mark would be in each line.
  const marks = filter.project_id ? [] : folders;
  const words = query.trim();
  const named = useValue(catalogue.named);
  return html`<aside class="side" aria-label="Conversations">
    <div class="side-head">
      <div class="side-line">
        <div class="search-field">
          <label class="hidden-text" for="search">Search conversations</label>
          <input id="search" class="field" type="search" placeholder="Search conversations" autocomplete="off"
            value=${query} maxlength="300" onInput=${(/** @type {any} */ event) => catalogue.type(event.target.value)} />
        </div>
        <a class="button main icon" href=${link("new")} aria-label="New conversation" title="New conversation (Alt+N)">
          <${Icon} name="plus" />
        </a>
      </div>
      <div class="filters">
        <button type="button" class="filter" aria-pressed=${String(filter.archived === true)}
          onClick=${() => catalogue.choose({ archived: filter.archived ? false : true })}>Archived</button>
        <${LabelFilter} catalogue=${catalogue} />
        <a class="filter" href=${link("import")}>Import</a>
        <a class="filter" href=${link("data")}>Your data</a>
      </div>
      <${Folders} catalogue=${catalogue} />
    </div>
    <nav class="entries" ref=${box} onScroll=${onScroll} onKeyDown=${onKey} aria-label="Conversations">
      ${failure && html`<p class="notice bad" role="alert">${failure.message}</p>`}
      ${words
        ? html`<${Found} marks=${folders} named=${named} hits=${hits} isSearching=${isSearching} openId=${openId} />`
        : html`<${Groups} marks=${marks} sessions=${sessions} openId=${openId} />`}
      ${!words && !isLoading && !failure && sessions.length === 0 &&
      html`<p class="empty">${filter.project_id ? "The folder is empty." : filter.label ? "Nothing has this label." : filter.archived ? "Nothing is archived." : "No conversation yet."}</p>`}
      ${!words && isLoading && html`<p class="soft empty">Loading</p>`}
    </nav>
  </aside>`;
}

/** @param {{ marks: any[], sessions: any[], openId: string }} props */
function Groups({ marks, sessions, openId }) {
  const groups = grouped(sessions);
  return groups.map(
    ([name, members]) =>
      html`<section key=${name} aria-label=${name}>
        <h2>${name}</h2>
        <ul>${members.map((session) => html`<${Entry} key=${session.id} marks=${marks} session=${session} isOpen=${session.id === openId} />`)}</ul>
      </section>`,
  );
}

/** Return the conversations under their headings: pinned ones, then by day. @param {any[]} sessions */
function grouped(sessions, now = new Date()) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  const today = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  for (const session of sessions) {
    const days = Math.ceil((today - Date.parse(lastTime(session))) / 86_400_000);
    const name = session.pinned
      ? "Pinned"
      : days <= 0
        ? "Today"
        : days === 1
          ? "Yesterday"
          : days <= 7
            ? "Last seven days"
            : days <= 30
              ? "Last thirty days"
              : "Earlier";
    const members = groups.get(name);
    if (members) members.push(session);
    else groups.set(name, [session]);
  }
  return [...groups];
}

/** @param {{ marks: any[], session: any, isOpen: boolean }} props */
function Entry({ marks, session, isOpen }) {
  const folder = marks.find((known) => known.id === session.project_id);
  const time = lastTime(session);
  return html`<li>
    <a class=${`entry ${session.unread > 0 ? "unread" : ""}`} href=${link("session", session.id)}
      aria-current=${isOpen ? "page" : undefined}>
      <span class="source" title=${sourceName(session)}><${Icon} name=${sourceKind(session)} /></span>
      <span class="title">${titleOf(session)}</span>
      <time class="time number" datetime=${time} title=${exactTime(time)}>${listTime(time)}</time>
      <span class="about">
        ${folder && html`<${Dot} folder=${folder} /><span class="hidden-text">In ${folder.name}</span>`}
        <span class="text">${sourceName(session)} · ${session.agent}</span>
        <${Badges} session=${session} /><${Labels} session=${session} />
      </span>
    </a>
  </li>`;
}

/** @param {{ session: any }} props */
export function Badges({ session }) {
  return html`
    ${session.is_busy && html`<span class="badge run"><span class="pulse"></span>running</span>`}
    ${session.waiting?.count > 0 && html`<span class="badge warn">${session.waiting.count} waiting</span>`}
    ${session.unread > 0 && html`<span class="badge run">${session.unread < MOST_UNREAD ? session.unread : `${MOST_UNREAD - 1}+`} new</span>`}
    ${session.access === "member"
      ? html`<span class="badge" title="You see it as a member of its room">room</span>`
      : session.read_only && html`<span class="badge">read only</span>`}
    ${session.is_suspended && html`<span class="badge warn">suspended</span>`}
    ${session.ended_at && html`<span class="badge">ended</span>`}
  `;
}

/** Return found messages under their conversations, the best one first. @param {any[]} hits @returns {[string, any[]][]} */
function byConversation(hits) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const hit of hits) {
    const members = groups.get(hit.session_id);
    if (members) members.push(hit);
    else groups.set(hit.session_id, [hit]);
  }
  return [...groups];
}

/** @param {{ marks: any[], named: any[], hits: any[] | null, isSearching: boolean, openId: string }} props */
function Found({ marks, named, hits, isSearching, openId }) {
  const isEmpty = !isSearching && named.length === 0 && (hits ?? []).length === 0;
  return html`
    ${named.length > 0 &&
    html`<section aria-label="Titles"><h2>Titles</h2>
      <ul>${named.map((session) => html`<${Entry} key=${session.id} marks=${marks} session=${session} isOpen=${session.id === openId} />`)}</ul>
    </section>`}
    ${hits && hits.length > 0 &&
    html`<section aria-label="Messages"><h2>Messages</h2><${Hits} hits=${hits} view="session" /></section>`}
    <p class="empty" role="status">${isEmpty ? "Nothing found." : isSearching ? "Searching" : ""}</p>
  `;
}

/** Found messages under their conversations. @param {{ hits: any[], view: "session" | "story" }} props */
export function Hits({ hits, view }) {
  return html`<ul class="hits">${byConversation(hits).map(
    ([id, members]) =>
      html`<li key=${id}>
        <h3>${members[0].title || "Conversation without a title"}</h3>
        <ul>${members.map(
          (hit) =>
            html`<li key=${hit.seq}>
              <a class="hit" href=${link(view, id, { at: String(hit.seq) })}>
                <span class="about">${listTime(hit.created_at)}</span>
                <span class="snippet"> ${hit.snippet}</span>
              </a>
            </li>`,
        )}</ul>
      </li>`,
  )}</ul>`;
}
