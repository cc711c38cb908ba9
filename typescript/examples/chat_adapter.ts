// A whole adapter: topics, edits, reactions, photos, albums, replies, buttons, rate limits.
//
// Its platform is made up; chat_platform.ts has the calls that the library of a real one would have.

import {
  type AdapterClient,
  ChatGone,
  deleted,
  edited,
  type InboundEvent,
  type Piece,
  pressed,
  RetryAfter,
  reacted,
  runAdapter,
  Undeliverable,
} from "../src/index.js";
import { ChatPlatform, Refused, type Update } from "./chat_platform.js";

const platform = new ChatPlatform(process.env.CHAT_URL ?? "http://127.0.0.1:8080");

/** Send or edit one message, and return the platform's id of it. */
async function send(piece: Piece): Promise<string> {
  const { chat, sender, thread_id } = piece.message.target;
  const id = String(chat?.id ?? sender?.id);
  const { text = null, buttons, edits, replyTo } = piece;
  try {
    if (edits !== undefined) {
      await platform.edit(id, edits, { text, buttons });
      return edits;
    }
    return await platform.send(id, {
      text,
      buttons,
      topic: thread_id == null ? null : String(thread_id),
      reply_to: replyTo ?? null,
      photos: piece.attachments.flatMap((file) => file.url ?? []),
    });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 429) throw new RetryAfter(error.seconds ?? 1);
    if (error.status === 403) throw new ChatGone(error.message, "blocked");
    throw new Undeliverable(error.message);
  }
}

/** Publish what happens on the platform, and confirm it once it is stored. */
async function receive(adapter: AdapterClient, signal: AbortSignal): Promise<void> {
  let after = 0;
  while (!signal.aborted) {
    for (const update of await platform.updates(after, signal)) {
      await adapter.publish(eventOf(adapter, update), { waitsForRoom: true });
      after = update.id;
    }
  }
}

function eventOf(adapter: AdapterClient, update: Update): InboundEvent {
  const { message, sender, kind, value = "" } = update;
  const event = adapter.event({
    message_id: message.id,
    chat: message.chat,
    thread_id: message.topic,
    sender,
    reply_to: message.reply_to,
    text: message.text,
    attachments: message.photos.map((url) => ({ url, media_type: "image/png" })),
    album_id: message.album,
  });
  switch (kind) {
    case "edit":
      return edited(event, { version: message.version });
    case "delete":
      return deleted(event);
    case "reaction":
      return reacted(event, value, { eventId: update.id });
    case "press":
      return pressed(event, { value }, update.id);
    default:
      return event;
  }
}

await runAdapter({
  servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222",
  platform: process.env.PLATFORM ?? "scripted",
  account: process.env.ACCOUNT ?? "main",
  principal: process.env.PRINCIPAL,
  nkeySeedFile: process.env.NKEY_SEED_FILE,
  tlsCaFile: process.env.TLS_CA_FILE,
  rates: { perSecond: 30, perChatPerSecond: 20 },
  limit: { size: 4096, unit: "utf16" },
  send,
  receive,
});
