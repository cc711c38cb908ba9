// Serve a stream agent: each message of a session once and in order.

import { type Connection, type ConnectionOptions, openConnection } from "./connection.js";
import type { Attachment, Button, ResultMessage, RoutedMessage, TextFormat } from "./contract.js";
import { ConnectionClosedError, DecodeError, PermanentError } from "./errors.js";
import { described } from "./logs.js";
import { type Delivered, Pull, PullError } from "./pull.js";
import { result, routedDurable } from "./subjects.js";
import { backoff, pause } from "./timing.js";
import { decode, publishStored, stamp } from "./wire.js";

const DEFAULT_SLOTS = 32;
const PULL_FOR_MS = 1000;

/** An answer of a stream worker. */
export interface StreamAnswer {
  text?: string;
  attachments?: Attachment[];
  format?: TextFormat;
  buttons?: Button[];
}

/** Answers a routed message; null leaves it without an answer. */
export type StreamHandler = (
  message: RoutedMessage,
) => string | StreamAnswer | null | Promise<string | StreamAnswer | null>;

export interface StreamWorkerOptions {
  agent: string;
  /**
   * Answers a message within `ack_wait` of the agent. A message whose handler throws comes again
   * after that time, and is a dead letter after five deliveries.
   */
  handler: StreamHandler;
  /** `router.slots` of the service, 32 by default: sessions of a slot that nobody reads wait. */
  slots?: number;
}

/** Return the answer to a routed message; one that is published again is stored once. */
export function answerTo(
  routed: RoutedMessage,
  answer: string | StreamAnswer,
  part = 0,
): ResultMessage {
  return {
    ...stamp(),
    id: `${routed.id}:${part}`,
    session_id: routed.session_id,
    reply_to: routed.id,
    part,
    ...(typeof answer === "string" ? { text: answer } : answer),
  };
}

export class StreamWorker {
  readonly #stopping = new AbortController();

  constructor(
    private readonly connection: Connection,
    private readonly options: StreamWorkerOptions,
  ) {}

  /** Take no new message; `run` returns when those in work are answered. */
  stop(): void {
    this.#stopping.abort();
  }

  /** Answer messages until stopped; throws only if the connection is closed for good. */
  async run(): Promise<void> {
    const slots = Array.from({ length: this.options.slots ?? DEFAULT_SLOTS }, (_, slot) => slot);
    try {
      await Promise.all(
        slots.map(async (slot) => {
          try {
            await this.#serve(slot);
          } finally {
            // If a slot cannot be served any more, all end.
            this.stop();
          }
        }),
      );
    } finally {
      this.stop();
    }
  }

  async #serve(slot: number): Promise<void> {
    const stopping = this.#stopping.signal;
    const source = new Pull(this.connection, "ROUTED", routedDurable(this.options.agent, slot));
    const pauses = backoff();
    let said = "";
    try {
      while (!stopping.aborted) {
        try {
          if (!(await this.connection.untilConnected(PULL_FOR_MS, stopping))) continue;
          const delivered = await source.take(PULL_FOR_MS, stopping);
          if (delivered !== null) await this.#answer(delivered);
        } catch (error) {
          if (!(error instanceof PullError)) throw error;
          // The durable does not exist, or the server is not ready yet.
          if (error.message !== said) {
            const { agent } = this.options;
            this.connection.log("messages_unavailable", { agent, slot, error: error.message });
          }
          said = error.message;
          await pause(pauses.next().value, stopping);
        }
      }
    } finally {
      await source.close();
    }
  }

  /** Acknowledge once the answer is stored. */
  async #answer(delivered: Delivered): Promise<void> {
    try {
      const routed = decode<RoutedMessage>(delivered.data);
      const answer = await this.options.handler(routed);
      if (answer !== null) {
        const subject = result(this.options.agent, routed.session_id);
        await publishStored(this.connection, subject, answerTo(routed, answer));
      }
      delivered.ack();
    } catch (error) {
      if (error instanceof ConnectionClosedError) throw error;
      const isOurs = error instanceof DecodeError || error instanceof PermanentError;
      const event = isOurs ? "message_unanswered" : "handler_failed";
      this.connection.log(event, { agent: this.options.agent, ...described(error) });
      // Not acknowledged: it comes again after `ack_wait`, before newer ones of its session.
    }
  }
}

/** Open a connection, answer messages until SIGTERM or SIGINT, and close the connection. */
export async function runStreamWorker(
  options: StreamWorkerOptions & ConnectionOptions,
): Promise<void> {
  const { agent, principal = agent } = options;
  const connection = await openConnection({ name: `${agent} worker`, ...options, principal });
  const worker = new StreamWorker(connection, options);
  const stop = () => worker.stop();
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  try {
    await worker.run();
  } finally {
    process.off("SIGTERM", stop);
    process.off("SIGINT", stop);
    await connection.close();
  }
}
