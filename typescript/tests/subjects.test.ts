import assert from "node:assert/strict";
import { test } from "node:test";
import * as subjects from "../src/subjects.js";

test("a chat is named by the start of its digest, else its sender is", () => {
  const digest = "0cf2ad0c5f5a2a1e".length;
  assert.equal(subjects.chatToken({ chat: { id: "ann", kind: "dm" } }).length, digest);
  assert.equal(
    subjects.chatToken({ sender: { id: "ann" } }),
    subjects.chatToken({ chat: { id: "ann", kind: "dm" } }),
  );
  assert.equal(
    subjects.chatToken({ sender: { id: "other", alt_id: "ann" } }),
    subjects.chatToken({ sender: { id: "ann" } }),
  );
  assert.equal(subjects.chatToken({}), "none");
});

test("a name with other characters never enters a subject", () => {
  assert.throws(() => subjects.result("a.b", "1"), RangeError);
  assert.throws(() => subjects.api("a", "turn", "*"), RangeError);
});

test("what is missing of a live turn stands for any", () => {
  assert.equal(subjects.piece("main", { platform: "x" }), "chat.v1.piece.main.x.*.*.*");
});
