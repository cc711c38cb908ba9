// Keep the messages of an account within the rates that its platform allows.

import type { RetryAfter } from "../errors.js";
import { now, pause } from "../timing.js";

const MOST_CHATS = 10_000;

/** The rates of one account; without a number there is no limit. */
export interface Rates {
  perSecond?: number;
  perChatPerSecond?: number;
}

export class RateBudget {
  #freeAt = 0;
  #pausedUntil = 0;
  #chats = new Map<string, number>();

  constructor(private readonly rates: Rates = {}) {}

  /** Send nothing for as long as the platform asks, to the chat or to all. */
  pauseAfter(refusal: RetryAfter, chat: string): void {
    const until = now() + refusal.seconds * 1000;
    if (refusal.wholeAccount) this.#pausedUntil = Math.max(this.#pausedUntil, until);
    else this.#chats.set(chat, Math.max(this.#chats.get(chat) ?? 0, until));
  }

  /** Return for how many milliseconds the platform takes no call for a chat. */
  pausedFor(chat: string): number {
    return Math.max(0, Math.max(this.#pausedUntil, this.#chats.get(chat) ?? 0) - now());
  }

  /** Return when the next message to a chat may be sent; its place is reserved at once. */
  async wait(chat: string): Promise<void> {
    const { perSecond, perChatPerSecond } = this.rates;
    const at = Math.max(now(), this.#freeAt, this.#chats.get(chat) ?? 0);
    // Not `at`: a chat that has to wait takes no time from the others.
    if (perSecond) this.#freeAt = Math.max(now(), this.#freeAt) + 1000 / perSecond;
    if (perChatPerSecond) this.#chats.set(chat, at + 1000 / perChatPerSecond);
    if (this.#chats.size > MOST_CHATS) {
      this.#chats = new Map([...this.#chats].filter(([, free]) => free > now()));
    }
    if (at > now()) await pause(at - now());
    // The pause of the account may be extended meanwhile.
    while (this.#pausedUntil > now()) await pause(this.#pausedUntil - now());
  }
}
