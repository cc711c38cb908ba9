// Keep the messages of an account within the rates that its platform allows.

import type { Source } from "../contract.js";
import type { RetryAfter } from "../errors.js";
import { now, pause } from "../timing.js";

const MOST_CHATS = 10_000;

/** The rates of one account; without a number there is no limit. */
export interface Rates {
  perSecond?: number;
  perChatPerSecond?: number;
}

/** Return the id of the chat of an address, by which its rate is counted. */
export function chatOf(target: Source): string {
  return String(target.chat?.id ?? target.sender?.id ?? "");
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

  /** Return in how many milliseconds a call for a chat is free; 0 if it is now. */
  busyFor(chat: string): number {
    return Math.max(this.pausedFor(chat), this.#freeAt - now());
  }

  /**
   * Take what a call for a chat needs if it is free now; it reserves nothing.
   *
   * Returns the milliseconds to wait before the next try; 0 if the call may be made.
   */
  tryTake(chat: string): number {
    const busyMs = this.busyFor(chat);
    if (busyMs <= 0) this.#take(chat, now());
    return Math.max(0, busyMs);
  }

  /** Return when the next message to a chat may be sent; its place is reserved at once. */
  async wait(chat: string): Promise<void> {
    const at = Math.max(now(), this.#freeAt, this.#chats.get(chat) ?? 0);
    this.#take(chat, at);
    if (at > now()) await pause(at - now());
    // The pause of the account may be extended meanwhile.
    while (this.#pausedUntil > now()) await pause(this.#pausedUntil - now());
  }

  #take(chat: string, at: number): void {
    const { perSecond, perChatPerSecond } = this.rates;
    // Not `at`: a chat that has to wait takes no time from the others.
    if (perSecond) this.#freeAt = Math.max(now(), this.#freeAt) + 1000 / perSecond;
    if (perChatPerSecond) this.#chats.set(chat, at + 1000 / perChatPerSecond);
    if (this.#chats.size > MOST_CHATS) {
      this.#chats = new Map([...this.#chats].filter(([, free]) => free > now()));
    }
  }
}
