// Markdown as elements. The library only reads the text; every element and every link is made here,
// so that text of a conversation can bring no markup, script or address of its own.
import { lexer } from "../vendor/marked.js";
import { html } from "./html.js";

const SCHEMES = new Set(["http:", "https:", "mailto:", "tel:"]);
const LONGEST = 200_000;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", "#39": "'" };

/** Return a text with the usual entities as characters; the result is a text node. @param {string} text */
function characters(text) {
  return text.replace(
    /&(amp|lt|gt|quot|apos|nbsp|#39);/g,
    (_, name) => ENTITIES[/** @type {keyof typeof ENTITIES} */ (name)],
  );
}

/** Return the address if a click on it is harmless, else nothing. @param {string} address */
export function safeAddress(address) {
  try {
    const url = new URL(address);
    return SCHEMES.has(url.protocol) ? url.href : "";
  } catch {
    return "";
  }
}

// Level of the last heading of the text that is being made.
let lastLevel = 1;

/** Return the elements of a text. @param {string} text @returns {any} */
export function markdown(text) {
  if (text.length > LONGEST) return html`<pre class="plain">${text}</pre>`;
  lastLevel = 1;
  try {
    return blocks(lexer(text, { gfm: true, breaks: true }));
  } catch {
    // A text that the library cannot read is shown as it is.
    return html`<pre class="plain">${text}</pre>`;
  }
}

/** @param {any[]} tokens @returns {any[]} */
function blocks(tokens) {
  return tokens.map(block);
}

/** @param {any} token @returns {any} */
function block(token) {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      // Below the heading of the page, and without gaps, so that a screen reader keeps its outline.
      lastLevel = Math.min(6, token.depth + 1, lastLevel + 1);
      const level = `h${lastLevel}`;
      return html`<${level}>${inline(token.tokens)}</${level}>`;
    }
    case "paragraph":
      return html`<p>${inline(token.tokens)}</p>`;
    case "code":
      return html`<pre tabindex="0"><code>${token.text}</code></pre>`;
    case "blockquote":
      return html`<blockquote>${blocks(token.tokens)}</blockquote>`;
    case "hr":
      return html`<hr />`;
    case "list": {
      const items = token.items.map(
        (/** @type {any} */ item) =>
          html`<li>${item.task ? (item.checked ? "☑ " : "☐ ") : ""}${blocks(item.tokens)}</li>`,
      );
      return token.ordered
        ? html`<ol start=${token.start || 1}>${items}</ol>`
        : html`<ul>${items}</ul>`;
    }
    case "table":
      return table(token);
    case "text":
      return token.tokens ? inline(token.tokens) : characters(token.text);
    case "checkbox":
      return null;
    default:
      // Also `html`: shown as the text that it is.
      return token.raw ? html`<p>${token.raw}</p>` : null;
  }
}

/** @param {any} token */
function table(token) {
  const cells = (/** @type {any[]} */ row, /** @type {string} */ kind) =>
    row.map((cell) =>
      kind === "th"
        ? html`<th scope="col">${inline(cell.tokens)}</th>`
        : html`<td>${inline(cell.tokens)}</td>`,
    );
  return html`<div class="table" tabindex="0" role="group" aria-label="Table">
    <table>
      <thead><tr>${cells(token.header, "th")}</tr></thead>
      <tbody>${token.rows.map((/** @type {any[]} */ row) => html`<tr>${cells(row, "td")}</tr>`)}</tbody>
    </table>
  </div>`;
}

/** @param {any[]} tokens @returns {any[]} */
function inline(tokens = []) {
  return tokens.map(piece);
}

/** @param {any} token @returns {any} */
function piece(token) {
  switch (token.type) {
    case "strong":
      return html`<strong>${inline(token.tokens)}</strong>`;
    case "em":
      return html`<em>${inline(token.tokens)}</em>`;
    case "del":
      return html`<del>${inline(token.tokens)}</del>`;
    case "codespan":
      return html`<code>${token.text}</code>`;
    case "br":
      return html`<br />`;
    case "link":
      return outward(token.href, inline(token.tokens));
    case "image":
      // A picture of another server would tell it who reads the conversation.
      return outward(token.href, token.text || token.href);
    case "checkbox":
      return null;
    case "text":
    case "escape":
      return token.tokens ? inline(token.tokens) : characters(token.text);
    default:
      return token.raw ?? "";
  }
}

/** Return a link that leaves the console, or only its text. @param {string} address @param {any} text */
export function outward(address, text) {
  const safe = safeAddress(address);
  if (!safe) return html`<span>${text}</span>`;
  return html`<a href=${safe} target="_blank" rel="noopener noreferrer nofollow" title=${safe}>${text}</a>`;
}
