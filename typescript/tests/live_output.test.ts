import assert from "node:assert/strict";
import { test } from "node:test";
import type { LivePiece } from "../src/contract.js";
import { merged, shortened } from "../src/live_output.js";

const recap = (...pieces: LivePiece[]) => pieces.reduce(merged, [] as LivePiece[]);

test("text that continues is joined, and a thought between begins anew", () => {
  const pieces = recap(
    { kind: "text", text: "a" },
    { kind: "text", text: "b" },
    { kind: "thought", text: "c" },
    { kind: "text", text: "d" },
  );
  assert.deepEqual(
    pieces.map((it) => it.text),
    ["ab", "c", "d"],
  );
});

test("a tool call with a known id changes the earlier piece", () => {
  const pieces = recap(
    { kind: "tool_call", tool_id: "1", tool_name: "search", state: "running" },
    { kind: "tool_call", tool_id: "2", tool_name: "fetch", state: "running" },
    { kind: "tool_call", tool_id: "1", state: "done" },
  );
  assert.deepEqual(pieces[0], {
    kind: "tool_call",
    tool_id: "1",
    tool_name: "search",
    state: "done",
  });
  assert.equal(pieces.length, 2);
});

test("a note of progress replaces the one before", () => {
  const pieces = recap({ kind: "progress", text: "1" }, { kind: "progress", text: "2" });
  assert.deepEqual(pieces, [{ kind: "progress", text: "2" }]);
});

test("a recap keeps the newest pieces, and of a long text its end", () => {
  const long = `${"x".repeat(100_000)}end`;
  const [only] = shortened([{ kind: "text", text: long }]);
  assert.ok(only?.text?.endsWith("end"));
  assert.ok((only?.text?.length ?? 0) < 64 * 1024);
  const many = Array.from({ length: 5000 }, (_, place): LivePiece => {
    return { kind: "tool_result", tool_id: `${place}`, text: "x" };
  });
  assert.equal(shortened(many).at(-1)?.tool_id, "4999");
  assert.ok(shortened(many).length <= 1000);
});
