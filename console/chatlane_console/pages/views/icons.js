// Drawn icons; they have the colour of their text and are silent for screen readers.
import { html } from "../modules/html.js";

const PATHS = {
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14ZM20 20l-4-4",
  send: "M5 12h13M12 5l7 7-7 7",
  stop: "M7 7h10v10H7z",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  back: "M15 5l-7 7 7 7",
  down: "M12 5v14M6 13l6 6 6-6",
  theme: "M12 4a8 8 0 1 0 0 16V4Z",
  pin: "M9 4h6l-1 6 3 3H7l3-3-1-6ZM12 13v7",
  attach: "M20 11l-8 8a5 5 0 0 1-7-7l8-8a3.5 3.5 0 0 1 5 5l-8 8a2 2 0 0 1-3-3l7-7",
  file: "M7 3h7l4 4v14H7zM14 3v4h4",
  lock: "M7 11h10v9H7zM9 11V8a3 3 0 0 1 6 0v3",
  check: "M5 13l4 4L19 7",
  branch: "M7 4v16M7 12c6 0 10-1 10-7M17 5v.01",
  // Sources
  telegram: "M4 11l16-7-3 16-5-5-3 4-1-6 8-6",
  discord: "M6 7c4-2 8-2 12 0l2 9c-2 2-4 2-5 2l-1-2h-4l-1 2c-1 0-3 0-5-2zM9.5 12h.01M14.5 12h.01",
  matrix: "M7 4H4v16h3M17 4h3v16h-3M9 16v-6M12 16v-6M15 16v-6",
  slack: "M9 4v16M15 4v16M4 9h16M4 15h16",
  whatsapp: "M12 4a8 8 0 0 0-7 12l-1 4 4-1a8 8 0 1 0 4-15ZM9 9c0 3 3 6 6 6",
  mail: "M4 6h16v12H4zM4 7l8 6 8-6",
  console: "M4 5h16v14H4zM4 9h16",
  acp: "M8 7l-5 5 5 5M16 7l5 5-5 5M13 5l-2 14",
  cron: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM12 8v4l3 2",
  chat: "M4 5h16v11H10l-5 4v-4H4z",
};

/** @param {{ name: string }} props */
export function Icon({ name }) {
  const path = PATHS[/** @type {keyof typeof PATHS} */ (name)] ?? PATHS.chat;
  return html`<svg class="icon" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.7"
    stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false"><path d=${path} /></svg>`;
}
