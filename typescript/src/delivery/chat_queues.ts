// Deliver the messages of each chat in order, without one chat holding up the others.
//
// The server hands out only so many unacknowledged messages, and this process has only so much
// memory. So a chat that has to wait gives its messages back to the server, and keeps their places.

import type { Connection } from "../connection.js";
import type { OutboundMessage } from "../contract.js";
import type { Delivered } from "../pull.js";
import { now, pause } from "../timing.js";
import type { Entry, MessageSender, Outcome } from "./message_sender.js";

// A chat that pauses longer than this gives its messages back.
export const PARKED_FROM_MS = 2000;
// Until the durable has been read.
const ACK_WAIT_MS = 5000;
// However many messages wait, the server delivers only so many of them again in a second.
const RETURNS_PER_SECOND = 500;
const LONGEST_SET_BACK_MS = 60_000;
// Messages of one chat that are in memory while its first one is sent.
const AT_HAND = 32;
// A message that was called back and does not come is called back again.
const COMES_WITHIN_MS = 2000;

/**
 * Return how long the server keeps a message that is given back, if it keeps so many.
 *
 * A process that follows a killed one waits as long for messages that it does not have.
 */
export function setBackMs(ackWaitMs: number, count: number): number {
  const returningMs = (count / RETURNS_PER_SECOND) * 1000;
  return Math.min(Math.max(ackWaitMs, returningMs), LONGEST_SET_BACK_MS);
}

/** The messages of one chat in their order; those without a body are with the server. */
class Queue {
  readonly entries: Entry[] = [];
  bodies = 0;
  pausedUntil = 0;

  get pauseMs(): number {
    return Math.max(0, this.pausedUntil - now());
  }

  /** Return whether the body of a message is wanted now. */
  hasRoomFor(entry: Entry): boolean {
    if (this.pauseMs > PARKED_FROM_MS) return false;
    return this.bodies < AT_HAND || this.entries[0] === entry;
  }
}

export class ChatQueues {
  /** The messages that this process has and has not acknowledged, by id. */
  readonly held = new Map<string, Entry>();
  /** How many of them are in memory. */
  bodies = 0;
  /** Time after which the server delivers an unacknowledged message again. */
  ackWaitMs = ACK_WAIT_MS;
  readonly #queues = new Map<string, Queue>();
  readonly #serving = new Set<Promise<void>>();
  #failure: unknown;

  constructor(
    private readonly connection: Pick<Connection, "requireOpen">,
    private readonly sender: Pick<MessageSender, "attempt">,
    private readonly ending: AbortSignal,
    private readonly fail: () => void,
    private readonly showPause: (message: OutboundMessage, signal: AbortSignal) => void,
  ) {}

  /** How many messages the server keeps for this process. */
  get setBack(): number {
    return this.held.size - this.bodies;
  }

  /** Keep a message that arrived; it is not in the queue of its chat yet. */
  hold(entry: Entry): void {
    this.held.set(entry.id, entry);
    this.bodies += 1;
  }

  /** Append a held message to the queue of its chat. */
  put(entry: Entry): void {
    const chat = entry.raw.subject;
    const known = this.#queues.get(chat);
    const queue = known ?? new Queue();
    queue.entries.push(entry);
    queue.bodies += 1;
    if (known === undefined) this.#begin(chat, queue);
    else if (!queue.hasRoomFor(entry)) this.#setBack(entry, queue);
  }

  /** Take another copy of a held message, which the server has delivered again. */
  takeCopy(entry: Entry, message: OutboundMessage, raw: Delivered): void {
    entry.raw = raw;
    const queue = this.#queues.get(raw.subject);
    if (entry.message !== undefined || queue === undefined) return;
    entry.message = message;
    this.bodies += 1;
    queue.bodies += 1;
    if (queue.hasRoomFor(entry)) entry.came.set();
    else this.#setBack(entry, queue);
  }

  /** Return once what is being sent is sent; give the rest back to the server, in order. */
  async close(): Promise<void> {
    await Promise.all(this.#serving);
    const held = [...this.held.values()];
    held.sort((one, other) => one.raw.streamSequence - other.raw.streamSequence);
    for (const entry of held) entry.raw.nak();
    if (this.#failure !== undefined) throw this.#failure;
  }

  #begin(chat: string, queue: Queue): void {
    this.#queues.set(chat, queue);
    const serving = this.#serve(chat, queue)
      .catch((error) => {
        this.#failure ??= error;
        this.fail();
      })
      .finally(() => this.#serving.delete(serving));
    this.#serving.add(serving);
  }

  /** Deliver the messages of a chat until there are no more. */
  async #serve(chat: string, queue: Queue): Promise<void> {
    try {
      while (!this.ending.aborted) {
        const [head] = queue.entries;
        if (head === undefined) return;
        const { message } = head;
        if (message === undefined) {
          await this.#callBack(head, queue);
          continue;
        }
        const before = message.pause_before_ms ?? 0;
        if (before > 0 && !head.hasPaused && head.givenUp === undefined) {
          head.hasPaused = true;
          const over = new AbortController();
          this.showPause(message, over.signal);
          await this.#pause(queue, before).finally(() => over.abort());
          continue;
        }
        const outcome = await this.sender.attempt(head, message);
        if (outcome.kind === "stopped") return;
        await this.#apply(outcome, head, queue);
      }
    } finally {
      // In the step that saw the queue empty: nobody would serve what is put into it afterwards.
      this.#queues.delete(chat);
    }
  }

  async #apply(outcome: Outcome, head: Entry, queue: Queue): Promise<void> {
    if (outcome.kind === "retry") {
      await this.#pause(queue, outcome.ms);
      return;
    }
    if (outcome.kind === "given_up" && outcome.isChatGone) {
      for (const entry of queue.entries) entry.givenUp = outcome.failure;
    }
    queue.entries.shift();
    queue.bodies -= 1;
    this.held.delete(head.id);
    this.bodies -= 1;
    // If this gets lost, the message comes again and is dropped as a repeat.
    head.raw.ack();
  }

  /** Let a chat wait; if that takes long, the server keeps its messages meanwhile. */
  async #pause(queue: Queue, ms: number): Promise<void> {
    queue.pausedUntil = now() + ms;
    if (ms > PARKED_FROM_MS) {
      for (const entry of queue.entries) this.#setBack(entry, queue);
    }
    await pause(ms, this.ending);
    this.connection.requireOpen();
  }

  /** Give the body of a message back to the server; it keeps its place in the queue. */
  #setBack(entry: Entry, queue: Queue): void {
    if (entry.message === undefined) return;
    entry.message = undefined;
    entry.came.clear();
    this.bodies -= 1;
    queue.bodies -= 1;
    const ms = setBackMs(this.ackWaitMs, this.setBack);
    const { pauseMs } = queue;
    entry.raw.nak(pauseMs > PARKED_FROM_MS ? Math.min(ms, pauseMs) : ms);
  }

  /** Ask the server for the next messages of a chat, and wait for the first one. */
  async #callBack(head: Entry, queue: Queue): Promise<void> {
    for (const entry of queue.entries.slice(0, AT_HAND)) {
      if (entry.message === undefined) entry.raw.nak();
    }
    await head.came.wait(COMES_WITHIN_MS, this.ending);
    this.connection.requireOpen();
  }
}
