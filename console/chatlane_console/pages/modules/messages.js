// Short messages to the person at the edge of the window, also read out.
import { signal } from "./html.js";

const SHOWN_SECONDS = 8;
let last = 0;

/** @type {{ value: { id: number, text: string, isBad: boolean }[] }} */
export const messages = signal([]);
/** What a screen reader says once, such as that an answer is there. */
export const announced = signal("");

/** @param {string} text @param {boolean} [isBad] */
export function tell(text, isBad = false) {
  const id = ++last;
  messages.value = [...messages.value.slice(-2), { id, text, isBad }];
  setTimeout(() => dismiss(id), SHOWN_SECONDS * 1000);
}

/** @param {number} id */
export function dismiss(id) {
  messages.value = messages.value.filter((message) => message.id !== id);
}

/** Do something, and tell the person if it fails. @template T @param {() => Promise<T>} work */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    tell(error instanceof Error ? error.message : "This did not work.", true);
    return undefined;
  }
}
