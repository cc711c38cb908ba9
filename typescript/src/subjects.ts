// The subjects of the protocol; no other module builds them.

import { createHash } from "node:crypto";
import type { InboundEvent, Source } from "./contract.js";

const ROOT = "chat.v1";
const NAME = /^[a-z0-9_-]{1,64}$/;

/** Return a token if it is a declared name. */
export function declaredName(token: string): string {
  if (!NAME.test(token)) throw new RangeError("not a declared name of 1 to 64 [a-z0-9_-]");
  return token;
}

/** Return the token of a chat, or of its sender where there is no chat id. */
export function chatToken(address: Pick<InboundEvent | Source, "chat" | "sender">): string {
  const { chat, sender } = address;
  const id = chat?.id || sender?.alt_id || sender?.id;
  if (!id) return "none";
  return createHash("sha256").update(String(id)).digest("hex").slice(0, 16);
}

export const inbound = (platform: string, account: string, chat: string) =>
  `${ROOT}.inbound.${declaredName(platform)}.${declaredName(account)}.${chat}`;

export const result = (agent: string, sessionId: string) =>
  `${ROOT}.result.${declaredName(agent)}.${sessionId}`;

export const control = (agent: string) => `${ROOT}.control.${declaredName(agent)}.*`;

export const deliverer = (platform: string, account: string) =>
  `${ROOT}.deliverer.${declaredName(platform)}.${declaredName(account)}`;

export const cursor = (platform: string, account: string, name: string) =>
  `${ROOT}.cursor.${declaredName(platform)}.${declaredName(account)}.${declaredName(name)}`;

/** Return the subject of a request about the sessions of an agent, or of all. */
export function api(principal: string, noun: string, verb: string, agent?: string): string {
  const subject = `${ROOT}.api.${declaredName(principal)}.${declaredName(noun)}.${declaredName(verb)}`;
  return agent === undefined ? subject : `${subject}.${declaredName(agent)}`;
}

/** Return the subject of a request for a person who talks to an account. */
export function apiForAccount(
  principal: string,
  noun: string,
  verb: string,
  platform: string,
  account: string,
): string {
  return `${api(principal, noun, verb)}.${declaredName(platform)}.${declaredName(account)}`;
}

/** The address of a live turn; what is missing stands for any. */
export interface LivePath {
  platform?: string;
  account?: string;
  audience?: string;
  sessionId?: string;
}

function live(head: string, path: LivePath): string {
  const { platform = "*", account = "*", audience = "*", sessionId = "*" } = path;
  return `${ROOT}.${head}.${platform}.${account}.${audience}.${sessionId}`;
}

/** Return a token if it is a declared name, or stands for any. */
const anyName = (token: string) => (token === "*" ? token : declaredName(token));

export const piece = (agent: string, path: LivePath) => live(`piece.${anyName(agent)}`, path);
export const recap = (agent: string, path: LivePath) => live(`recap.${anyName(agent)}`, path);
export const follow = (agent: string, path: LivePath) =>
  live(`follow.${declaredName(agent)}`, path);
/** Return the subject to ask for a recap of the turn whose piece came on a subject. */
export const followOf = (piece: string) => piece.replace(`${ROOT}.piece.`, `${ROOT}.follow.`);
export const turnEvent = (verb: string, path: LivePath) => live(`event.turn.${verb}`, path);

export const inboxPrefix = (principal: string) => `_INBOX.${declaredName(principal)}`;
export const outboundDurable = (platform: string, account: string) => `${platform}=${account}`;
export const routedDurable = (agent: string, slot: number) => `${declaredName(agent)}-${slot}`;
