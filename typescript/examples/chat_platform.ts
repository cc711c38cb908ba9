// The calls of a made-up chat platform, as the library of a real one has them.
//
// docs/writing-an-adapter.md describes its HTTP. Updates are kept until they are confirmed.

import type { Chat } from "../src/index.js";

/** The platform did not do what was asked; with `seconds` it wants a pause. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly seconds?: number,
  ) {
    super(message);
  }
}

export interface Update {
  id: number;
  kind: "message" | "edit" | "delete" | "reaction" | "press";
  value?: string;
  sender: { id: string; name: string };
  message: {
    id: string;
    text: string | null;
    topic: string | null;
    reply_to: string | null;
    photos: string[];
    album: string | null;
    version: number;
    chat: Chat;
  };
}

export interface Content {
  text?: string | null;
  topic?: string | null;
  reply_to?: string | null;
  photos?: string[];
  buttons?: object[];
}

export class ChatPlatform {
  constructor(private readonly url: string) {}

  /** Wait for updates; those up to `after` are confirmed and never come again. */
  async updates(after: number, signal: AbortSignal): Promise<Update[]> {
    const found = await this.#call("GET", `/updates?after=${after}`, undefined, signal);
    return found.updates as Update[];
  }

  /** Send a message and return its id. */
  async send(chat: string, content: Content): Promise<string> {
    return String((await this.#call("POST", `/chats/${chat}/messages`, content)).id);
  }

  /** Replace the text and the buttons of a message. */
  async edit(chat: string, id: string, content: Content): Promise<void> {
    await this.#call("PUT", `/chats/${chat}/messages/${id}`, content);
  }

  async delete(chat: string, id: string): Promise<void> {
    await this.#call("DELETE", `/chats/${chat}/messages/${id}`);
  }

  /** Show for five seconds that the bot is typing. */
  async showTyping(chat: string, topic: string | null): Promise<void> {
    await this.#call("POST", `/chats/${chat}/typing`, { topic });
  }

  async #call(method: string, path: string, body?: object, signal?: AbortSignal) {
    const answer = await fetch(`${this.url}${path}`, {
      method,
      ...(body && { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
      ...(signal && { signal }),
    });
    const fields = (await answer.json()) as Record<string, unknown>;
    if (answer.ok) return fields;
    throw new Refused(answer.status, String(fields.error), fields.seconds as number | undefined);
  }
}
