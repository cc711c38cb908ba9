// Publish the pieces of a running turn, and recaps for readers that join late.

import type { Subscription } from "@nats-io/transport-node";
import type { Connection } from "./connection.js";
import type { LivePiece, TurnFollow, TurnPiece, TurnRecap } from "./contract.js";
import { OversizedMessageError } from "./errors.js";
import type { Grant } from "./grant.js";
import * as subjects from "./subjects.js";
import { now, pause } from "./timing.js";
import { decode, publishUnstored, stamp } from "./wire.js";

const RECAP_EVERY_MS = 1000;
const MAX_RECAP_CHARACTERS = 32 * 1024;
const MAX_RECAP_PIECES = 1000;
const PIECE_CHARACTERS = 100;

/** Return the pieces with another one, which may continue or replace an earlier one. */
export function merged(pieces: readonly LivePiece[], piece: LivePiece): LivePiece[] {
  const last = pieces.at(-1);
  switch (piece.kind) {
    case "text":
    case "thought":
      if (last?.kind !== piece.kind) return [...pieces, piece];
      return [...pieces.slice(0, -1), { ...last, text: (last.text ?? "") + (piece.text ?? "") }];
    case "plan":
    case "usage":
    case "progress":
    case "tool_call": {
      const isCall = piece.kind === "tool_call";
      const place = pieces.findLastIndex(
        (it) => it.kind === piece.kind && (!isCall || it.tool_id === piece.tool_id),
      );
      if (place < 0) return [...pieces, piece];
      return pieces.with(place, isCall ? { ...pieces[place], ...piece } : piece);
    }
    default:
      return [...pieces, piece];
  }
}

/** Return the newest pieces that fit into a recap. */
export function shortened(pieces: readonly LivePiece[]): LivePiece[] {
  const kept: LivePiece[] = [];
  let room = MAX_RECAP_CHARACTERS;
  for (const piece of [...pieces].reverse()) {
    if (kept.length === MAX_RECAP_PIECES) break;
    const size = JSON.stringify(piece).length + PIECE_CHARACTERS;
    if (size > room) {
      // Of a single long text the end is shown.
      if (kept.length === 0 && piece.text)
        kept.push({ ...piece, text: piece.text.slice(-room / 2) });
      break;
    }
    room -= size;
    kept.push(piece);
  }
  return kept.reverse();
}

/** Publishes and numbers the pieces of one attempt at a turn. */
export class LiveOutput {
  readonly followSubject: string | undefined;
  readonly #path: subjects.LivePath | undefined;
  #nextIndex = 0;
  #pieces: LivePiece[] = [];
  #isShortened = false;
  #recapAt = Number.NEGATIVE_INFINITY;
  #isRecapDue = false;

  constructor(
    private readonly connection: Connection,
    private readonly agent: string,
    private readonly grant: Grant,
  ) {
    const { source, audience, sessionId } = grant;
    // A service of an earlier release does not say who talks in the session.
    if (audience === undefined) return;
    this.#path = { platform: source.platform, account: source.account, audience, sessionId };
    this.followSubject = subjects.follow(agent, this.#path);
  }

  /** Publish a piece to those who read now; it is not stored and may get lost. */
  show(piece: LivePiece): void {
    if (this.#path === undefined) return;
    const index = this.#nextIndex;
    this.#nextIndex += 1;
    this.#pieces = merged(this.#pieces, piece);
    if (this.#pieces.length > 2 * MAX_RECAP_PIECES) this.#shorten();
    const message: TurnPiece = { ...stamp(), ...this.#attempt, index, piece };
    publishUnstored(this.connection, subjects.piece(this.agent, this.#path), message);
  }

  /** Publish a recap, at most once a second; requests in between share the next one. */
  async repeat(): Promise<void> {
    if (this.#path === undefined || this.#isRecapDue) return;
    this.#isRecapDue = true;
    await pause(this.#recapAt + RECAP_EVERY_MS - now());
    this.#isRecapDue = false;
    this.#recapAt = now();
    this.#shorten();
    const message: TurnRecap = {
      ...stamp(),
      ...this.#attempt,
      next_index: this.#nextIndex,
      pieces: this.#pieces,
      is_shortened: this.#isShortened,
    };
    try {
      publishUnstored(this.connection, subjects.recap(this.agent, this.#path), message);
    } catch (error) {
      if (!(error instanceof OversizedMessageError)) throw error;
    }
  }

  get #attempt() {
    const { turnId, sessionId, attempt } = this.grant;
    return { turn_id: turnId, session_id: sessionId, attempt };
  }

  #shorten(): void {
    const kept = shortened(this.#pieces);
    this.#isShortened ||=
      kept.length < this.#pieces.length || kept[0]?.text !== this.#pieces[0]?.text;
    this.#pieces = kept;
  }
}

/** The running turns of this process by session, and the answers to readers that follow them. */
export class LiveOutputs {
  readonly #outputs = new Map<string, LiveOutput>();
  readonly #subscription: Subscription;

  constructor(
    private readonly connection: Connection,
    private readonly agent: string,
  ) {
    this.#subscription = connection.nats.subscribe(subjects.follow(agent, {}), {
      callback: (error, msg) => {
        if (error === null) this.#hear(msg.subject, msg.data);
      },
    });
  }

  open(grant: Grant): LiveOutput {
    const output = new LiveOutput(this.connection, this.agent, grant);
    this.#outputs.set(grant.sessionId, output);
    return output;
  }

  end(grant: Grant, output: LiveOutput): void {
    if (this.#outputs.get(grant.sessionId) === output) this.#outputs.delete(grant.sessionId);
  }

  close(): void {
    if (!this.connection.nats.isClosed()) this.#subscription.unsubscribe();
  }

  #hear(subject: string, data: Uint8Array): void {
    let output: LiveOutput | undefined;
    try {
      output = this.#outputs.get(decode<TurnFollow>(data).session_id);
    } catch {
      this.connection.log("follow_not_understood");
    }
    // A reader of another account may not ask: permissions hold for the subject only.
    if (output === undefined || output.followSubject !== subject) return;
    output.repeat().catch(() => this.connection.log("recap_failed"));
  }
}
