// The console: who has signed in, which view the address names, and what surrounds every view.
import { account, ApiFailure, newKey, onSignedOut, own } from "./modules/api.js";
import { openCatalogue, readEarly } from "./modules/catalogue.js";
import { html, render, signal, useEffect, useRef, useState, useValue } from "./modules/html.js";
import { announced, dismiss, messages, tell } from "./modules/messages.js";
import { openOutbox, send } from "./modules/outbox.js";
import { go, link, route } from "./modules/route.js";
import { changeSetting, forgetPerson, keepFor, setting } from "./modules/storage.js";
import { allowFiles, attachmentsOf } from "./views/attachments.js";
import { Composer } from "./views/composer.js";
import { Dialog } from "./views/dialog.js";
import { Icon } from "./views/icons.js";
import { List } from "./views/list.js";
import { Talk } from "./views/talk.js";

const THEMES = ["", "light", "dark"];
const THEME_NAMES = { "": "as the system", light: "light", dark: "dark" };
const RETRY_SECONDS = 2;

// Views that few people open are loaded when they are opened.
const Imports = later(async () => (await import("./views/imports.js")).Imports);
const OwnData = later(async () => (await import("./views/data.js")).OwnData);
const Operators = later(async () => (await import("./views/operators.js")).Operators);

const me = signal(/** @type {any} */ (null));
const isSignedOut = signal(false);
const isAway = signal(false);

async function start() {
  try {
    const found = await account.me();
    keepFor(`${found.platform}.${found.account}.${found.person_id}`);
    openOutbox();
    allowFiles(found.files);
    me.value = found;
    isAway.value = false;
  } catch (error) {
    if (error instanceof ApiFailure && !error.isWorthRepeating) {
      isSignedOut.value = true;
      return;
    }
    isAway.value = true;
    setTimeout(start, RETRY_SECONDS * 1000);
  }
}

function App() {
  const person = useValue(me);
  const signedOut = useValue(isSignedOut);
  const away = useValue(isAway);
  if (signedOut) return html`<${SignIn} />`;
  if (!person) return html`<p class="starting" role="status">${away ? "The server does not answer. Trying again." : "Loading conversations"}</p>`;
  return html`<${Frame} person=${person} />`;
}

function SignIn() {
  useEffect(() => {
    document.title = "Sign in · chatlane";
  }, []);
  return html`<main class="sign-in" id="main">
    <h1>chatlane</h1>
    <p class="soft">Sign in to see your conversations.</p>
    <p><a class="button main" href="/sign-in">Sign in</a></p>
    <p class="soft">On your own machine, open the link that <code>chatlane console</code> has printed.</p>
  </main>`;
}

/** @param {{ person: any }} props */
function Frame({ person }) {
  const shown = useValue(route);
  const isOperator = person.roles.includes("operator");
  const isOperating = isOperator && ["operators", "story", "dead"].includes(shown.view);
  useEffect(() => {
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "k") {
        document.getElementById("search")?.focus();
        event.preventDefault();
      } else if (event.altKey && event.key === "n") {
        go(link("new"));
        event.preventDefault();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return html`<div class="frame">
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      document.getElementById("main")?.focus();
    }}>Skip to the content</a>
    <header class="top">
      <a class="brand" href=${link("list")} aria-label="chatlane: conversations"><img src="/icon.svg" alt="" /><span>chatlane</span></a>
      ${isOperator &&
      html`<nav aria-label="Areas">
        <a href=${link("list")} aria-current=${isOperating ? undefined : "page"}>Conversations</a>
        <a href=${link("operators")} aria-current=${isOperating ? "page" : undefined}>Operation</a>
      </nav>`}
      <span class="space"></span>
      <span class="who">${person.name}</span>
      <${ThemeButton} />
      ${person.can_sign_out && html`<button type="button" class="button plain small" onClick=${signOut}>Sign out</button>`}
    </header>
    ${isOperating ? html`<${Operators} route=${shown} />` : html`<${People} person=${person} route=${shown} />`}
    <${Messages} />
    <${Dialog} />
  </div>`;
}

/** @param {{ person: any, route: import("./modules/route.js").Route }} props */
function People({ person, route: shown }) {
  const [catalogue] = useState(() => openCatalogue(own));
  useEffect(() => () => catalogue.close(), []);
  const isTalk = shown.view === "session" && Boolean(shown.id);
  const isList = !isTalk && shown.view !== "new" && shown.view !== "import" && shown.view !== "data";
  const around = Number.parseInt(shown.query.get("at") ?? "", 10) || 0;
  const showsRemoved = shown.query.get("show") === "removed";
  useEffect(() => {
    if (shown.view === "list") document.title = "Conversations · chatlane";
  }, [shown]);
  return html`<div class=${`people ${isList ? "shows-list" : "shows-talk"}`}>
    <${List} catalogue=${catalogue} openId=${isTalk ? shown.id : ""} />
    ${isTalk && html`<${Talk} key=${shown.id} api=${own} id=${shown.id} around=${around} prefilled=${shown.say} showsRemoved=${showsRemoved} onChanged=${catalogue.readAll} />`}
    ${shown.view === "new" && html`<${NewTalk} prefilled=${shown.say} onOpened=${catalogue.readAll} />`}
    ${shown.view === "import" && html`<${Imports} onImported=${catalogue.readAll} />`}
    ${shown.view === "data" && html`<${OwnData} />`}
    ${isList &&
    html`<main class="talk" id="main" tabindex="-1"><div class="empty">
      <h1 class="hidden-text">Conversations</h1>
      <p>Hello ${person.name}. Choose a conversation, or begin one.</p>
      <p><a class="button main" href=${link("new")}>New conversation</a></p>
    </div></main>`}
  </div>`;
}

/** A conversation that exists once something is said in it. @param {{ prefilled: string, onOpened: () => void }} props */
function NewTalk({ prefilled, onOpened }) {
  // One id for this view: a repeated press opens one conversation.
  const key = useRef(newKey());
  const [isOpening, setOpening] = useState(false);
  useEffect(() => {
    document.title = "New conversation · chatlane";
  }, []);
  const open = async (/** @type {string} */ text, /** @type {any[]} */ files) => {
    setOpening(true);
    try {
      const session = await own.create({}, key.current);
      send(session.id, text, files);
      onOpened();
      go(link("session", session.id));
    } catch (error) {
      tell(error instanceof Error ? error.message : "This did not work.", true);
      changeDraft(text);
      attachmentsOf("new").giveBack(files);
      setOpening(false);
    }
  };
  const [draft, changeDraft] = useState(prefilled);
  return html`<main class="talk" id="main" tabindex="-1">
    <header class="talk-head">
      <a class="button plain icon back" href=${link("list")} aria-label="Back to the list"><${Icon} name="back" /></a>
      <div class="talk-name"><h1>New conversation</h1></div>
    </header>
    <div class="log"><p class="empty">${isOpening ? "Opening" : "Write the first message."}</p></div>
    <${Composer} name="new" isRunning=${false} isOnline=${true} blocked=${isOpening ? "Opening" : ""} prefilled=${draft}
      onSend=${open} onCommand=${() => tell("This command needs a conversation.")} onStop=${() => {}} />
  </main>`;
}

/**
 * Return a view whose script is loaded when it is first shown.
 * @param {() => Promise<any>} load
 */
function later(load) {
  const loaded = signal(/** @type {any} */ (null));
  return (/** @type {any} */ props) => {
    const View = useValue(loaded);
    const [isMissing, setMissing] = useState(false);
    const read = async () => {
      setMissing(false);
      try {
        loaded.value = await load();
      } catch {
        setMissing(true);
      }
    };
    useEffect(() => {
      if (!loaded.peek()) void read();
    }, []);
    if (View) return html`<${View} ...${props} />`;
    return html`<main class="talk" id="main" tabindex="-1"><p class="empty" role="status">
      ${isMissing ? html`The server does not answer. <button type="button" class="button small" onClick=${read}>Try again</button>` : "Loading"}
    </p></main>`;
  };
}

function ThemeButton() {
  const [theme, setTheme] = useState(setting("theme", ""));
  const name = THEME_NAMES[/** @type {keyof typeof THEME_NAMES} */ (theme)] ?? THEME_NAMES[""];
  return html`<button type="button" class="button plain icon" aria-label=${`Theme: ${name}`} title=${`Theme: ${name}`} onClick=${() => {
    const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    changeSetting("theme", next || null);
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    setTheme(next);
  }}><${Icon} name="theme" /></button>`;
}

async function signOut() {
  try {
    await account.signOut();
  } catch {
    tell("You could not be signed out. Try again.", true);
    return;
  }
  forgetPerson();
  location.replace("/");
}

function Messages() {
  const shown = useValue(messages);
  const spoken = useValue(announced);
  return html`<div class="messages">
    <p class="hidden-text" role="status">${spoken}</p>
    ${shown.map(
      (message) =>
        html`<div key=${message.id} class=${`notice ${message.isBad ? "bad" : ""}`} role=${message.isBad ? "alert" : "status"}>
          <span>${message.text}</span>
          <button type="button" class="button plain small" onClick=${() => dismiss(message.id)}>Close</button>
        </div>`,
    )}
  </div>`;
}

onSignedOut(() => {
  if (me.peek()) isSignedOut.value = true;
});
const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.textContent = "";
render(html`<${App} />`, root);
if (!["operators", "story", "dead"].includes(route.peek().view)) readEarly(own);
void start();
