// Deliver the messages of each chat in order, without one chat holding up the others.

import type { Connection } from "../connection.js";
import type { OutboundMessage } from "../contract.js";
import { pause } from "../timing.js";
import type { Entry, MessageSender, Outcome } from "./message_sender.js";

// A chat that pauses longer than this gives its messages back to the server, and keeps their places.
export const PARKED_FROM_MS = 2000;
const LONGEST_SET_BACK_MS = 60_000;

export class ChatQueues {
  /** The messages that this process has and has not acknowledged, by id. */
  readonly held = new Map<string, Entry>();
  readonly #queues = new Map<string, Entry[]>();
  readonly #serving = new Set<Promise<void>>();
  #failure: unknown;

  constructor(
    private readonly connection: Connection,
    private readonly sender: MessageSender,
    private readonly ending: AbortSignal,
    private readonly fail: () => void,
    private readonly showPause: (message: OutboundMessage, signal: AbortSignal) => void,
  ) {}

  /** Append a held message to the queue of its chat. */
  put(entry: Entry): void {
    const chat = entry.raw.subject;
    const queue = this.#queues.get(chat);
    if (queue !== undefined) {
      queue.push(entry);
      return;
    }
    const begun = [entry];
    this.#queues.set(chat, begun);
    const serving = this.#serve(begun)
      .catch((error) => {
        this.#failure ??= error;
        this.fail();
      })
      .finally(() => {
        this.#queues.delete(chat);
        this.#serving.delete(serving);
      });
    this.#serving.add(serving);
  }

  /** Tell the server that a message is done with. */
  acknowledge(entry: Entry): void {
    this.held.delete(entry.id);
    // If this gets lost, the message comes again and is dropped as a repeat.
    entry.raw.ack();
  }

  /** Return once what is being sent is sent; give the rest back to the server, in order. */
  async close(): Promise<void> {
    await Promise.all(this.#serving);
    const held = [...this.held.values()];
    held.sort((one, other) => one.raw.streamSequence - other.raw.streamSequence);
    for (const entry of held) entry.raw.nak();
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #serve(queue: Entry[]): Promise<void> {
    while (!this.ending.aborted) {
      const [head] = queue;
      if (head === undefined) return;
      const before = head.message.pause_before_ms ?? 0;
      if (before > 0 && !head.hasPaused && head.givenUp === undefined) {
        head.hasPaused = true;
        const over = new AbortController();
        this.showPause(head.message, over.signal);
        await this.#pause(queue, before).finally(() => over.abort());
        continue;
      }
      const outcome = await this.sender.attempt(head);
      if (outcome.kind === "stopped") return;
      await this.#apply(outcome, head, queue);
    }
  }

  async #apply(outcome: Outcome, head: Entry, queue: Entry[]): Promise<void> {
    if (outcome.kind === "retry") {
      await this.#pause(queue, outcome.ms);
      return;
    }
    if (outcome.kind === "given_up" && outcome.isChatGone) {
      for (const entry of queue) entry.givenUp = outcome.failure;
    }
    queue.shift();
    this.acknowledge(head);
  }

  /** Let a chat wait; the server need not deliver its messages again meanwhile. */
  async #pause(queue: Entry[], ms: number): Promise<void> {
    if (ms > PARKED_FROM_MS) {
      for (const entry of queue) entry.raw.nak(Math.min(ms, LONGEST_SET_BACK_MS));
    }
    await pause(ms, this.ending);
    this.connection.requireOpen();
  }
}
