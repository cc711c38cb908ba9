// A whole adapter: topics, edits, reactions, photos, albums, buttons, typing, drafts, rate limits.
//
// Its platform is made up; chat_platform.ts has the calls that the library of a real one would have.

import {
  type AdapterClient,
  ChatGone,
  type DraftPlatform,
  deleted,
  edited,
  type InboundEvent,
  type Piece,
  pressed,
  RetryAfter,
  reacted,
  runAdapter,
  type Source,
  Undeliverable,
} from "../src/index.js";
import { ChatPlatform, Refused, type Update } from "./chat_platform.js";

const platform = new ChatPlatform(process.env.CHAT_URL ?? "http://127.0.0.1:8080");

/** Send or edit one message, and return the platform's id of it. */
async function send(piece: Piece): Promise<string> {
  const { target } = piece.message;
  const { text = null, buttons, edits, replyTo } = piece;
  if (edits !== undefined) {
    await called(platform.edit(chatOf(target), edits, { text, buttons }));
    return edits;
  }
  const photos = piece.attachments.flatMap((file) => file.url ?? []);
  const content = { text, buttons, reply_to: replyTo ?? null, photos, topic: topicOf(target) };
  return await called(platform.send(chatOf(target), content));
}

/** Show an answer while it is written; `send` edits the draft when it sends the answer. */
const drafts: DraftPlatform = {
  send: (target, text) => called(platform.send(chatOf(target), { text, topic: topicOf(target) })),
  edit: (target, id, text) => called(platform.edit(chatOf(target), id, { text })),
  delete: (target, id) => called(platform.delete(chatOf(target), id)),
};

const showTyping = (target: Source) => called(platform.showTyping(chatOf(target), topicOf(target)));

const chatOf = ({ chat, sender }: Source) => String(chat?.id ?? sender?.id);
const topicOf = ({ thread_id: topic }: Source) => (topic == null ? null : String(topic));

/** Return the result of a call, or throw what its refusal means for the message. */
async function called<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
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
  showTyping,
  drafts,
});
