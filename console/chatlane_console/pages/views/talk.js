// One conversation: head, rows, what runs, questions, and the composer.
import { compact, count, dayName, money, sourceName, titleOf } from "../modules/format.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState, useValue } from "../modules/html.js";
import { isOfRoom, keyOf, openConversation } from "../modules/conversation.js";
import { attempt, tell } from "../modules/messages.js";
import { outbox, send } from "../modules/outbox.js";
import { go, link } from "../modules/route.js";
import { keepReceipt } from "../modules/receipts.js";
import { changeSetting, setting } from "../modules/storage.js";
import { Composer } from "./composer.js";
import { ask, confirmed, Menu } from "./dialog.js";
import { moveToFolder } from "./folders.js";
import { Icon } from "./icons.js";
import { addLabel, Labels } from "./labels.js";
import { Badges } from "./list.js";
import { LiveTurn, OnItsWay } from "./live_turn.js";
import { Question } from "./question.js";
import { Removed } from "./removed.js";
import { Row } from "./row.js";

const NEAR_THE_EDGE = 120;
const HAND_OVER_ROUNDS = 10;
const NEARLY_FULL = 0.8;
const SUMMARY_REQUEST =
  "Summarise this conversation, so that I can go on in a new one: what is settled, what is open, and what comes next.";

/**
 * @param {{
 *   api: import("../modules/api.js").Conversations, id: string, around: number, prefilled: string,
 *   back?: string, showsRemoved: boolean, onChanged: () => void, isOperator?: boolean
 * }} props
 */
export function Talk({ api, id, around, prefilled, back = link("list"), showsRemoved, onChanged, isOperator = false }) {
  const [talk, setTalk] = useState(/** @type {any} */ (null));
  useEffect(() => {
    const opened = openConversation(api, id, around);
    if (setting("reasoning", "") === "on") opened.showReasoning(true);
    setTalk(opened);
    return () => opened.close();
  }, [api, id, around]);
  if (!talk || talk.id !== id) return html`<main class="talk" id="main" tabindex="-1"></main>`;
  return html`<${OpenTalk} key=${`${id}.${around}`} talk=${talk} around=${around} prefilled=${prefilled} back=${back}
    showsRemoved=${showsRemoved} onChanged=${onChanged} isOperator=${isOperator} />`;
}

/**
 * @param {{
 *   talk: import("../modules/conversation.js").Conversation, around: number, prefilled: string,
 *   back: string, showsRemoved: boolean, onChanged: () => void, isOperator: boolean
 * }} props
 */
function OpenTalk({ talk, around, prefilled, back, showsRemoved, onChanged, isOperator }) {
  const session = useValue(talk.session);
  const failure = useValue(talk.failure);
  const live = useValue(talk.live);
  const ofRoom = isOfRoom(session);
  const streamState = useValue(talk.connection);
  const connection = failure?.isWorthRepeating ? "lost" : ofRoom ? "live" : streamState;
  const [showsReasoning, setShowsReasoning] = useState(setting("reasoning", "") === "on");
  const [filled, setFilled] = useState(prefilled);
  const title = session ? titleOf(session) : "Conversation";
  const view = isOperator ? "story" : "session";
  useEffect(() => {
    document.title = `${title} · chatlane`;
  }, [title]);
  const isBusy = Boolean(session?.is_busy);
  const wasBusy = useRef(isBusy);
  useEffect(() => {
    if (wasBusy.current !== isBusy) onChanged();
    wasBusy.current = isBusy;
  }, [isBusy]);

  useReadMark(talk, isOperator ? () => {} : onChanged, isOperator || ofRoom);

  if (failure && !failure.isWorthRepeating && !session) {
    return html`<main class="talk" id="main" tabindex="-1"><p class="empty">
      ${failure.status === 404 ? "There is no such conversation." : failure.message}
    </p></main>`;
  }
  const act = async (/** @type {() => Promise<any>} */ work, done = "") => {
    const result = await attempt(work);
    if (result !== undefined && done) tell(done);
    void talk.read();
    onChanged();
    return result;
  };
  const actions = actionsOf(talk, session, act, setFilled, isOperator, back);
  const blocked = !session
    ? "Loading"
    : session.read_only
      ? "This conversation can only be read."
      : session.archived_at && session.ended_at
        ? "This conversation is archived."
        : "";
  return html`<main class="talk" id="main" tabindex="-1">
    <header class="talk-head">
      <a class=${`button plain icon back ${isOperator ? "is-shown" : ""}`} href=${back} aria-label="Back to the list"><${Icon} name="back" /></a>
      <div class="talk-name">
        <h1 dir="auto">${title}</h1>
        ${session && html`<${About} session=${session} putLabels=${ofRoom ? undefined : actions.putLabels} />`}
      </div>
      ${connection === "lost" && html`<span class="badge warn" role="status">reconnecting</span>`}
      ${!ofRoom &&
      html`<button type="button" class="filter" aria-pressed=${String(showsReasoning)} onClick=${() => {
        const wanted = !showsReasoning;
        setShowsReasoning(wanted);
        changeSetting("reasoning", wanted ? "on" : null);
        talk.showReasoning(wanted);
      }}>Reasoning</button>`}
      ${session && html`<${Menu} label="Actions of this conversation" items=${actions.menu} />`}
    </header>
    ${showsRemoved
      ? html`<${Removed} talk=${talk} view=${view} onChanged=${onChanged} />`
      : html`<${Log} talk=${talk} view=${view} around=${around} showsReasoning=${showsReasoning} isOnline=${connection !== "lost"}
          onEdit=${ofRoom ? undefined : actions.edit} onBranch=${ofRoom ? undefined : actions.branch} onText=${setFilled}
          onSummary=${!isOperator && !blocked ? () => send(talk.id, SUMMARY_REQUEST) : undefined} />`}
    ${ofRoom && html`<p class="notice">Said in a room that you are a member of. Write there to take part.</p>`}
    ${!isOperator && !ofRoom && !showsRemoved &&
    html`<${Composer} name=${talk.id} api=${talk.api} isRunning=${isBusy || Boolean(live)} isOnline=${connection !== "lost"} blocked=${blocked}
      prefilled=${filled}
      onSend=${(/** @type {string} */ text, /** @type {any[]} */ files) => {
        setFilled("");
        if (!talk.isAtEnd.value) talk.toEnd();
        send(talk.id, text, files);
      }}
      onCommand=${actions.command} onStop=${() => act(() => talk.api.stop(talk.id))} />`}
  </main>`;
}

/**
 * Mark what the person sees as read: the newest answer, while the window shows the end.
 * @param {import("../modules/conversation.js").Conversation} talk
 * @param {() => void} onMarked
 * @param {boolean} isOperator
 */
function useReadMark(talk, onMarked, isOperator) {
  const rows = useValue(talk.rows);
  const isAtEnd = useValue(talk.isAtEnd);
  const marked = useRef(-1);
  useEffect(() => {
    if (isOperator || !isAtEnd) return undefined;
    const mark = async () => {
      const session = talk.session.peek();
      if (!session || document.visibilityState !== "visible") return;
      const own = rows.filter((row) => row.role === "assistant" && (!row.session_id || row.session_id === talk.id));
      const newest = own.at(-1)?.seq ?? 0;
      if (newest <= marked.current || (session.unread === 0 && marked.current < 0)) return;
      const before = marked.current;
      marked.current = newest;
      try {
        await talk.api.markRead(talk.id, newest);
        onMarked();
      } catch {
        // The next row, or the next look, tries it again.
        marked.current = before;
      }
    };
    void mark();
    const onVisible = () => void mark();
    document.addEventListener("visibilitychange", onVisible);
    return () => document.removeEventListener("visibilitychange", onVisible);
  }, [rows, isAtEnd]);
}

/** @param {{ session: any, putLabels?: (labels: string[], done: string) => Promise<any> }} props */
function About({ session, putLabels }) {
  const usage = session.chain?.usage ?? session.usage ?? {};
  const costs = session.chain?.costs ?? session.costs ?? {};
  const used = session.gauges?.context_tokens;
  const limit = session.gauges?.context_limit;
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  const cost = costs.cost_usd === undefined ? "" : money(costs.cost_usd);
  return html`<p>
    <${Badges} session=${{ ...session, unread: 0 }} /><${Labels} session=${session} put=${putLabels} />
    <span>${sourceName(session)}</span>
    <span>${session.agent}${session.model ? ` · ${session.model}` : ""}</span>
    ${used !== undefined && limit > 0 &&
    html`<span title=${`${count(used)} of ${count(limit)} tokens of context`}>
      <meter min="0" max=${limit} high=${limit * 0.8} value=${used} aria-label="Used context"></meter> ${Math.round((100 * used) / limit)} %
    </span>`}
    ${tokens > 0 && html`<span class="optional" title="Tokens so far">${compact(tokens)} tokens</span>`}
    ${cost && html`<span class="optional" title="Cost so far">${cost}</span>`}
  </p>`;
}

/**
 * Return what a person can do with a conversation.
 * @param {import("../modules/conversation.js").Conversation} talk
 * @param {any} session
 * @param {(work: () => Promise<any>, done?: string) => Promise<any>} act
 * @param {(text: string) => void} fill
 * @param {boolean} isOperator
 * @param {string} back Address of the list.
 */
function actionsOf(talk, session, act, fill, isOperator, back) {
  const { api, id } = talk;
  const version = session?.version;
  const rename = async (/** @type {string} */ given) => {
    const title =
      given ||
      (await ask({ title: "Name this conversation", label: "Title", value: session?.title ?? "", action: "Save" }));
    if (title !== null) await act(() => api.update(id, { title }, version));
  };
  const branch = async (/** @type {number | undefined} */ seq, text = "") => {
    const copy = await act(() => api.fork(id, seq));
    if (copy?.id) go(link(isOperator ? "story" : "session", copy.id), text);
  };
  const archive = () =>
    act(
      () => api.update(id, { archived: !session.archived_at }, version),
      session.archived_at ? "The conversation is back in the list." : "The conversation is archived.",
    );
  const remove = async () => {
    const agreed = await confirmed(
      "Delete this conversation?",
      "All of its messages are deleted. Branches keep their copies.",
      "Delete",
    );
    const deleted = agreed && (await act(() => api.remove(id)));
    if (!deleted) return;
    keepReceipt(deleted, isOperator);
    tell(`The conversation is deleted. ${isOperator ? "People" : "Your data"} has the receipt.`);
    go(back);
  };
  const beginAnew = async () => {
    const text = "This conversation ends, and the chat goes on in a new one, without its history.";
    if (!(await confirmed("Begin the chat anew?", text, "Begin anew"))) return;
    const next = await act(() => api.reset(id));
    if (next) go(link("story", next.id));
  };
  const undo = (turns = 1) => act(() => api.undo(id, turns), "The last turn is taken back. “Messages taken out” in the menu has it.");
  const putLabels = (/** @type {string[]} */ labels, /** @type {string} */ done) =>
    act(() => api.update(id, { labels }, version), done);
  const protect = async () => {
    const text = "Nothing can be written to it, and it is not opened again. It can be copied, and you can allow writing again.";
    if (!session.read_only && (await ask({ title: "Make this conversation read only?", text, action: "Make read only" })) === null) return;
    await act(
      () => api.update(id, { read_only: !session.read_only }, version),
      session.read_only ? "The conversation can be opened again." : "The conversation can only be read.",
    );
  };
  return {
    putLabels,
    branch: (/** @type {any} */ row) => branch(row.seq),
    // Another person than the author has nowhere to write the text.
    edit: isOperator ? undefined : async (/** @type {any} */ row) => {
      const before = talk.rows.value.filter((known) => known.seq < row.seq).at(-1);
      if (before) await branch(before.seq, row.content);
      else go(link("new"), row.content);
    },
    command: (/** @type {{ word: string, argument: string }} */ { word, argument }) => {
      if (word === "new") go(link("new"));
      else if (word === "stop") void act(() => api.stop(id));
      else if (word === "retry") void act(() => api.retry(id));
      else if (word === "undo") void undo(Math.max(1, Number.parseInt(argument, 10) || 1));
      else if (word === "branch") void branch(undefined);
      else if (word === "title") void rename(argument);
      else if (word === "archive") void archive();
      else if (word === "model") {
        void act(() => api.update(id, { model: argument || null }, version));
      }
    },
    menu: isOfRoom(session) ? [{ label: "Copy as text", act: () => void copyAll(talk, fill) }] : [
      { label: "Rename", act: () => void rename("") },
      ...("pinned" in (session ?? {})
        ? [
            {
              label: session.pinned ? "Take the pin off" : "Pin",
              act: () => void act(() => api.update(id, { pinned: !session.pinned }, version)),
            },
          ]
        : []),
      // The folders are those of the person who looks.
      ...(isOperator
        ? []
        : [
            {
              label: "Move to folder",
              act: () => void moveToFolder(session, (project) => act(() => api.update(id, { project_id: project }, version))),
            },
          ]),
      { label: "Add a label", act: () => void addLabel(session, putLabels) },
      { label: "Answer the last message again", act: () => void act(() => api.retry(id)) },
      { label: "Take the last turn back", act: () => void undo() },
      { label: "Messages taken out", act: () => go(link(isOperator ? "story" : "session", id, { show: "removed" })) },
      { label: "Branch", act: () => void branch(undefined) },
      { label: session?.archived_at ? "Take out of the archive" : "Archive", act: () => void archive() },
      ...(session?.ended_at && session.read_only
        ? []
        : session?.ended_at
          ? [{ label: "Open again", act: () => void act(() => api.reopen(id)) }]
          : [{ label: "End", act: () => void act(() => api.end(id), "The conversation has ended.") }]),
      // The service protects only what has ended.
      ...(session?.ended_at
        ? [{ label: session.read_only ? "Allow writing" : "Make read only", act: () => void protect() }]
        : []),
      ...(isOperator && !session?.ended_at
        ? [
            { label: "Stop the turn", act: () => void act(() => api.stop(id), "The turn and what waited are stopped.") },
            { label: "Begin the chat anew", isDanger: true, act: () => void beginAnew() },
          ]
        : []),
      { label: "Copy as text", act: () => void copyAll(talk, fill) },
      { label: "Delete", isDanger: true, act: () => void remove() },
    ],
  };
}

/** @param {import("../modules/conversation.js").Conversation} talk @param {(text: string) => void} _fill */
async function copyAll(talk, _fill) {
  const text = talk.rows.value
    .filter((row) => row.content && row.role !== "tool")
    .map((row) => `${row.author_name ?? row.role}: ${row.content}`)
    .join("\n\n");
  await attempt(async () => {
    await navigator.clipboard.writeText(text);
    tell("The messages that are shown are copied.");
  });
}

/**
 * @param {{
 *   talk: import("../modules/conversation.js").Conversation, view: string, around: number, showsReasoning: boolean,
 *   isOnline: boolean, onEdit?: (row: any) => void, onBranch?: (row: any) => void, onText: (text: string) => void,
 *   onSummary?: () => void
 * }} props
 */
function Log({ talk, view, around, showsReasoning, isOnline, onEdit, onBranch, onText, onSummary }) {
  const rows = useValue(talk.rows);
  const olderPage = useValue(talk.olderPage);
  const isLoadingOlder = useValue(talk.isLoadingOlder);
  const isAtEnd = useValue(talk.isAtEnd);
  const live = useValue(talk.live);
  const question = useValue(talk.question);
  const session = useValue(talk.session);
  const endNote = useValue(talk.endNote);
  const mine = useValue(outbox).filter((message) => message.sessionId === talk.id);
  const box = useRef(/** @type {any} */ (null));
  const before = useRef({ height: 0, first: "", isLow: true, isPlaced: false });
  const [isLow, setLow] = useState(true);
  const results = useMemo(() => {
    const byCall = new Map();
    for (const row of rows) if (row.role === "tool" && row.tool_call_id) byCall.set(row.tool_call_id, row);
    return byCall;
  }, [rows]);

  // Keeps what a person reads in its place: older rows grow upwards, new ones follow at the end.
  useLayoutEffect(() => {
    const place = box.current;
    const kept = before.current;
    const first = rows.length ? keyOf(rows[0]) : "";
    if (around && !kept.isPlaced && rows.length) {
      document.getElementById(`row-${around}`)?.scrollIntoView({ block: "center" });
      kept.isPlaced = true;
    } else if (kept.first && first !== kept.first && !kept.isLow) {
      place.scrollTop += place.scrollHeight - kept.height;
    } else if (kept.isLow && !around) {
      place.scrollTop = place.scrollHeight;
    }
    kept.first = first;
    kept.height = place.scrollHeight;
  });
  const onScroll = () => {
    const place = box.current;
    // The event may come after the view is gone.
    if (!place) return;
    const low = place.scrollHeight - place.scrollTop - place.clientHeight < NEAR_THE_EDGE;
    before.current.isLow = low && talk.isAtEnd.value;
    setLow(low);
    if (place.scrollTop < NEAR_THE_EDGE && before.current.height > place.clientHeight) void talk.readOlder();
  };

  const shownCalls = new Set(rows.flatMap((row) => (row.tool_calls ?? []).map((/** @type {any} */ call) => call.id)));
  let day = "";
  /** @type {any[]} */
  const elements = [];
  for (const row of rows) {
    if (row.role === "tool" && shownCalls.has(row.tool_call_id)) continue;
    const name = dayName(row.created_at);
    // Flat and with keys, so that older rows above leave the elements of the others alone.
    if (name !== day) elements.push(html`<p class="day" key=${`day.${row.created_at}`}>${name}</p>`);
    day = name;
    elements.push(html`<${Row} key=${keyOf(row)} row=${row} results=${results} isFound=${around === row.seq}
      addressOf=${(/** @type {number} */ place) => talk.api.file(row.session_id ?? talk.id, row.seq, place)}
      canChange=${!row.session_id || row.session_id === talk.id} onEdit=${onEdit} onBranch=${onBranch} />`);
  }
  const isEmpty = session && !rows.length && !mine.length && !live;
  return html`<div class="log" ref=${box} onScroll=${onScroll} tabindex="0" role="log" aria-live="off" aria-label="Messages">
    <div class="column">
      ${olderPage &&
      html`<p class="older"><button type="button" class="button small" disabled=${isLoadingOlder}
        onClick=${() => talk.readOlder()}>${isLoadingOlder ? "Loading" : "Older messages"}</button></p>`}
      ${elements}
      ${live && html`<${LiveTurn} turn=${withoutStored(live, rows)} showsReasoning=${showsReasoning} />`}
      ${!live && session?.is_busy && html`<p class="working"><span class="pulse"></span>The agent is working</p>`}
      ${mine.map((message) => html`<${OnItsWay} key=${message.key} message=${message} isOnline=${isOnline} onEdit=${onText} />`)}
      ${question && html`<${Question} talk=${talk} question=${question} isSaid=${rows.at(-1)?.content === question.text} />`}
      ${endNote && html`<p class="notice bad" role="alert">${endNote}</p>`}
      ${isEmpty && html`<p class="empty">Nothing has been said yet.</p>`}
      ${onSummary && offersAnother(rows, session?.gauges ?? {}) && html`<${Offer} rows=${rows} onSummary=${onSummary} />`}
      ${(!isAtEnd || !isLow) &&
      html`<p class="to-newest"><button type="button" class="button small" onClick=${() => {
        before.current.isLow = true;
        if (talk.isAtEnd.value) box.current.scrollTop = box.current.scrollHeight;
        else {
          go(link(view, talk.id));
        }
      }}><${Icon} name="down" /> Newest messages</button></p>`}
    </div>
  </div>`;
}

/**
 * Return a live turn without the parts that rows already show: they come before the news of its end.
 * @param {import("../modules/live.js").LiveTurn} turn
 * @param {any[]} rows
 */
function withoutStored(turn, rows) {
  const its = rows.filter((row) => row.turn_id === turn.turnId && row.role === "assistant");
  if (!its.length) return turn;
  const calls = new Set(its.flatMap((row) => (row.tool_calls ?? []).map((/** @type {any} */ call) => call.id)));
  const isStored = (/** @type {any} */ part) =>
    part.kind === "tool" ? calls.has(part.id) : its.some((row) => row.content?.includes(part.text.trim()));
  return { ...turn, parts: turn.parts.filter((part) => !isStored(part)) };
}

/**
 * Return whether to offer another conversation: after some rounds, unless the agent reports that the context has room.
 * @param {any[]} rows
 * @param {Record<string, number>} gauges
 */
function offersAnother(rows, gauges) {
  if (roundsOf(rows) < HAND_OVER_ROUNDS) return false;
  return !gauges.context_limit || gauges.context_tokens > NEARLY_FULL * gauges.context_limit;
}

/**
 * Offer another conversation, which may begin with a summary of this one that the agent wrote.
 * @param {{ rows: any[], onSummary: () => void }} props
 */
function Offer({ rows, onSummary }) {
  const asked = rows.findLastIndex((row) => row.role === "user");
  const isAsked = rows[asked]?.content === SUMMARY_REQUEST;
  const summary = isAsked ? rows.slice(asked).findLast((row) => row.role === "assistant" && row.content)?.content : "";
  return html`<p class="notice warn">
    <span>The conversation is long.</span>
    ${summary && html`<a href=${link("new")} onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      go(link("new"), summary);
    }}>Begin another conversation with this summary</a>`}
    ${!isAsked && html`<button type="button" class="button small" onClick=${onSummary}>Ask for a summary</button>`}
    ${!isAsked && html`<a href=${link("new")}>Begin another conversation</a>`}
  </p>`;
}

/** Return how often a person spoke and the agent answered. @param {any[]} rows */
function roundsOf(rows) {
  let rounds = 0;
  let isAsked = false;
  for (const row of rows) {
    if (row.role === "user") isAsked = true;
    else if (row.role === "assistant" && row.content && isAsked) {
      rounds += 1;
      isAsked = false;
    }
  }
  return rounds;
}
