// Conversations of everybody, for operators: filters, search, and a table.
import { all, service } from "../modules/api.js";
import { openCatalogue } from "../modules/catalogue.js";
import { count, exactTime, lastTime, listTime, sourceName, titleOf } from "../modules/format.js";
import { html, useEffect, useRef, useState, useValue } from "../modules/html.js";
import { go, link } from "../modules/route.js";
import { Labels } from "./labels.js";
import { Badges, Hits } from "./list.js";

const STATES = [
  ["", "Not archived"],
  ["running", "Running"],
  ["waiting", "Waiting"],
  ["read_only", "Read only"],
  ["archived", "Archived"],
];
const IN_ADDRESS = ["platform", "agent", "profile", "state"];
const TYPING_PAUSE_MS = 300;
const MAX_HITS = 20;
const MAX_TITLE_PART = 100;
// A page of a rare filter may be empty, and the next ones not.
const ENOUGH = 10;
const MOST_PAGES = 20;
const NO_WORDS = { text: "", label: "", person: "", account: "" };

// What people wrote, and who they are, is in no address: the browser keeps addresses in its history.
let words = { ...NO_WORDS };
let chosen = /** @type {Record<string, string>} */ ({});

/** Return the address of the list with the filters that were chosen last. */
export const listOfEverybody = () => link("operators", "sessions", chosen);

/** Return the filters of an address that have a value. @param {URLSearchParams} query */
function addressed(query) {
  const given = IN_ADDRESS.map((name) => [name, query.get(name) ?? ""]);
  return Object.fromEntries(given.filter(([name, value]) => value && (name !== "state" || STATES.some(([state]) => state === value))));
}

/** Return the filter as the API takes it. @param {Record<string, string>} given */
function filterOf({ platform, agent, profile, state }) {
  const isArchived = state === "archived";
  const [personPlatform, personAccount] = words.person ? words.account.split("/", 2) : [];
  return {
    ...{ platform, agent, profile },
    state: isArchived ? undefined : state,
    archived: isArchived ? true : state ? undefined : false,
    label: words.label || undefined,
    title_part: words.text.trim().slice(0, MAX_TITLE_PART) || undefined,
    person_id: words.person || undefined,
    person_platform: personPlatform || undefined,
    person_account: personAccount || undefined,
  };
}

/** @param {{ query: URLSearchParams }} props */
export function Everybody({ query }) {
  const given = addressed(query);
  const [catalogue] = useState(() => openCatalogue(all, { isOperator: true, filter: filterOf(given) }));
  const [hits, setHits] = useState(/** @type {any[] | null} */ (null));
  const [declared, setDeclared] = useState(/** @type {any} */ (null));
  const [typed, setTyped] = useState(words);
  const pages = useRef(0);
  const timer = useRef(0);
  const searching = useRef(/** @type {AbortController | null} */ (null));
  const sessions = useValue(catalogue.sessions);
  const cursor = useValue(catalogue.cursor);
  const isLoading = useValue(catalogue.isLoading);
  const failure = useValue(catalogue.failure);
  const address = new URLSearchParams(given).toString();

  const search = async () => {
    searching.current?.abort();
    const text = words.text.trim();
    if (!text) {
      setHits(null);
      return;
    }
    const abort = new AbortController();
    searching.current = abort;
    try {
      const found = await all.search({ q: /[\s"*]$/.test(text) ? text : `${text}*`, agent: chosen.agent, limit: MAX_HITS }, abort.signal);
      if (!abort.signal.aborted) setHits(found.hits);
    } catch {
      // The table says what is wrong with the server.
      if (!abort.signal.aborted) setHits([]);
    }
  };
  const choose = () => {
    pages.current = 0;
    catalogue.choose(filterOf(chosen));
    void search();
  };
  useEffect(() => {
    document.title = "Conversations of everybody · chatlane";
    service.declarations().then(setDeclared, () => {
      // The filters then offer what is chosen.
    });
    return () => {
      clearTimeout(timer.current);
      searching.current?.abort();
      catalogue.close();
    };
  }, []);
  const isOpened = useRef(false);
  useEffect(() => {
    chosen = given;
    // The catalogue reads its first filter by itself.
    if (isOpened.current) choose();
    else void search();
    isOpened.current = true;
  }, [address]);
  useEffect(() => {
    if (!cursor || isLoading || sessions.length >= ENOUGH || pages.current >= MOST_PAGES) return;
    pages.current += 1;
    void catalogue.readMore();
  }, [cursor, isLoading, sessions]);

  /** @param {string} name @param {string} value */
  const put = (name, value) => {
    const { [name]: _, ...others } = given;
    go(link("operators", "sessions", value ? { ...others, [name]: value } : others));
  };
  /** @param {Partial<typeof NO_WORDS>} changed */
  const say = (changed, pause = 0) => {
    words = { ...words, ...changed };
    setTyped(words);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(choose, pause);
  };
  const clear = () => {
    say(NO_WORDS);
    go(link("operators", "sessions"));
  };
  const isFiltered = Boolean(address) || Object.values(typed).some(Boolean);
  const platforms = (declared?.platforms ?? []).map((/** @type {any} */ found) => found.platform);
  const agents = (declared?.agents ?? []).map((/** @type {any} */ found) => found.agent);
  const profiles = [...new Set((declared?.agents ?? []).flatMap((/** @type {any} */ found) => found.profiles))];
  const accounts = (declared?.platforms ?? []).flatMap((/** @type {any} */ found) =>
    found.accounts.map((/** @type {any} */ account) => `${found.platform}/${account.account}`),
  );
  return html`
    <h1>Conversations of everybody</h1>
    <p class="soft">What you open and search here is written to the audit.</p>
    <form class="toolbar choices" role="search" aria-label="Conversations of everybody" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>Search <input class="field" type="search" autocomplete="off" maxlength="300" placeholder="Titles and messages" value=${typed.text}
        onInput=${(/** @type {any} */ event) => say({ text: event.target.value }, TYPING_PAUSE_MS)} /></label>
      <${Choice} name="State" value=${given.state} choices=${STATES} onChoose=${(/** @type {string} */ value) => put("state", value)} />
      <${Choice} name="Platform" value=${given.platform} choices=${offered(platforms, given.platform)} onChoose=${(/** @type {string} */ value) => put("platform", value)} />
      <${Choice} name="Agent" value=${given.agent} choices=${offered(agents, given.agent)} onChoose=${(/** @type {string} */ value) => put("agent", value)} />
      <${Choice} name="Profile" value=${given.profile} choices=${offered(profiles, given.profile)} onChoose=${(/** @type {string} */ value) => put("profile", value)} />
      <${Words} name="Label" value=${typed.label} onChoose=${(/** @type {string} */ label) => say({ label })} />
      <${Words} name="Person" hint="Id on the platform" value=${typed.person} onChoose=${(/** @type {string} */ person) => say({ person })} />
      <${Choice} name="Account of the person" value=${typed.account} choices=${offered(accounts, typed.account, "That of the console")}
        onChoose=${(/** @type {string} */ account) => say({ account })} />
      ${isFiltered && html`<button type="button" class="button small plain" onClick=${clear}>Clear filters</button>`}
    </form>
    ${failure && html`<p class="notice bad" role="alert">${refusal(failure)}</p>`}
    <p class="soft" role="status">${isLoading ? "Loading" : `${count(sessions.length)}${cursor ? " or more" : ""} ${sessions.length === 1 ? "conversation" : "conversations"}`}</p>
    ${sessions.length > 0 &&
    html`<div class="grid-table" tabindex="0" role="region" aria-label="Conversations">
      <table>
        <thead><tr><th scope="col">Conversation</th><th scope="col">Agent</th><th scope="col">Source</th>
          <th scope="col">State</th><th scope="col" class="right">Rows</th><th scope="col">Last message</th></tr></thead>
        <tbody>
          ${sessions.map(
            (session) =>
              html`<tr key=${session.id}>
                <td><a href=${link("story", session.id)}>${titleOf(session)}</a><br /><span class="mono soft">${session.id}</span></td>
                <td>${session.agent}</td><td>${sourceName(session)}</td>
                <td><${Badges} session=${session} />
                  ${session.archived_at && html` <span class="badge">archived</span>`}
                  <${Labels} session=${session} /></td>
                <td class="right">${count(session.message_count)}</td>
                <td><time datetime=${lastTime(session)} title=${exactTime(lastTime(session))}>${listTime(lastTime(session))}</time></td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>`}
    ${!isLoading && !failure && sessions.length === 0 &&
    html`<p class="empty">${!isFiltered ? "No conversation yet." : hits?.length ? "No title matches." : "Nothing matches."}</p>`}
    ${cursor && html`<p class="older"><button type="button" class="button small" disabled=${isLoading}
      onClick=${() => catalogue.readMore()}>More</button></p>`}
    ${hits && hits.length > 0 &&
    html`<section aria-label="Messages"><h2>Messages in ${given.agent ? `conversations of ${given.agent}` : "all conversations"}</h2>
      <${Hits} hits=${hits} view="story" /></section>`}`;
}

/** Return what a filter offers: any value, and those that are known. @param {string[]} known @param {string | undefined} value */
function offered(known, value, any = "Any") {
  const values = value && !known.includes(value) ? [...known, value] : known;
  return [["", any], ...values.map((name) => [name, name])];
}

/** @param {import("../modules/api.js").ApiFailure} failure */
function refusal(failure) {
  const fields = failure.problem?.fields ?? [];
  return fields.length ? fields.map((/** @type {any} */ field) => `${field.field}: ${field.problem}`).join("; ") : failure.message;
}

/** @param {{ name: string, value?: string, choices: string[][], onChoose: (value: string) => void }} props */
function Choice({ name, value = "", choices, onChoose }) {
  return html`<label>${name} <select class="field" value=${value} onChange=${(/** @type {any} */ event) => onChoose(event.target.value)}>
    ${choices.map(([key, label]) => html`<option key=${key} value=${key}>${label}</option>`)}
  </select></label>`;
}

/** A filter of words, which counts when the person leaves the field or presses Enter. @param {{ name: string, hint?: string, value: string, onChoose: (value: string) => void }} props */
function Words({ name, hint = "", value, onChoose }) {
  return html`<label>${name} <input class="field" autocomplete="off" maxlength="255" placeholder=${hint} value=${value}
    onChange=${(/** @type {any} */ event) => onChoose(event.target.value.trim())} /></label>`;
}
