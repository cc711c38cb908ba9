import assert from "node:assert/strict";
import { test } from "node:test";
import type { RoutedMessage, SessionView, TranscriptEntry, TurnEnded } from "../src/contract.js";
import { answered, type Submission } from "../src/session_api.js";
import { answerTo } from "../src/stream_worker.js";
import { stamp } from "../src/wire.js";

const submission: Submission = {
  session: { id: "s" } as SessionView,
  messageId: "m",
  turnId: undefined,
};

const row = (seq: number, fields: Partial<TranscriptEntry>): TranscriptEntry => ({
  seq,
  role: "assistant",
  created_at: new Date().toISOString(),
  ...fields,
});

const own = row(1, { role: "user", message_id: "m", turn_id: "t" });
const none = new Map<string, TurnEnded>();

test("a message that no turn has taken has no answer yet", () => {
  assert.equal(answered(submission, [], none, false), undefined);
  const waiting = row(1, { role: "user", message_id: "m" });
  assert.equal(answered(submission, [waiting], none, false), undefined);
});

test("what the turn says is the answer once the session is not busy any more", () => {
  const rows = [
    own,
    row(2, { turn_id: "t", content: "a" }),
    row(3, { turn_id: "t", content: "b" }),
  ];
  assert.equal(answered(submission, rows, none, true), undefined);
  const found = answered(submission, rows, none, false);
  assert.equal(found?.answer, "a\n\nb");
  assert.equal(found?.outcome, "ok");
});

test("the event says how the turn ended, and a later turn that it is over", () => {
  const ended: TurnEnded = {
    ...stamp(),
    turn_id: "t",
    session_id: "s",
    agent: "main",
    attempt: 1,
    outcome: "failed",
    notice: "sorry",
  };
  const failed = answered(submission, [own], new Map([["t", ended]]), true);
  assert.deepEqual([failed?.outcome, failed?.notice], ["failed", "sorry"]);
  const later = answered(submission, [own, row(2, { turn_id: "u" })], none, true);
  assert.equal(later?.outcome, "no_reply");
});

test("a message that was stopped is cancelled", () => {
  const stopped = { ...own, unanswered: "stopped" as const };
  assert.equal(answered(submission, [stopped], none, true)?.outcome, "cancelled");
});

test("an answer to a routed message has the same id each time", () => {
  const routed = { ...stamp(), session_id: "s" } as RoutedMessage;
  const first = answerTo(routed, "hello");
  assert.equal(answerTo(routed, { text: "hello" }).id, first.id);
  assert.equal(first.reply_to, routed.id);
  assert.notEqual(answerTo(routed, "more", 1).id, first.id);
});
