import assert from "node:assert/strict";
import { test } from "node:test";
import type { OutboundMessage } from "../src/contract.js";
import { isBlank, measured, piecesOf, splitText, type TextLimit } from "../src/delivery/pieces.js";
import { stamp } from "../src/wire.js";

const message = (fields: Partial<OutboundMessage>): OutboundMessage => ({
  ...stamp(),
  session_id: "s",
  out_seq: 1,
  agent: "main",
  target: { platform: "x", account: "y" },
  ...fields,
});

const letters = (text: string) => text.replaceAll(/\s|`/g, "");

test("a text is cut between paragraphs, else lines, else words", () => {
  const limit: TextLimit = { size: 12, unit: "utf16" };
  assert.deepEqual(splitText("one two\n\nthree four", limit), ["one two", "three four"]);
  assert.deepEqual(splitText("one two\nthree four", limit), ["one two", "three four"]);
  assert.deepEqual(splitText("alpha beta gamma", limit), ["alpha beta", "gamma"]);
});

test("characters that are seen as one stay whole, in each unit", () => {
  const family = "👨‍👩‍👧";
  for (const unit of ["utf16", "code_points", "bytes"] as const) {
    const size = measured(family, unit) * 2;
    const parts = splitText(family.repeat(7), { size, unit });
    assert.equal(parts.join(""), family.repeat(7));
    for (const part of parts) assert.equal(part.length % family.length, 0);
  }
});

test("a code block is closed and opened again", () => {
  const text = `\`\`\`js\n${"line of code\n".repeat(20)}\`\`\``;
  const parts = splitText(text, { size: 100, unit: "utf16" });
  assert.ok(parts.length > 1);
  for (const part of parts) {
    assert.ok(part.startsWith("```js\n"), part);
    assert.ok(part.trimEnd().endsWith("```"), part);
  }
});

test("each part fits, no letter is lost, and the parts are the same each time", () => {
  const words = ["alpha", "a".repeat(90), "🎉", "e\u0301", "\n\n", "\n"];
  // A fence with words behind it would be repeated with them.
  const linesOnly = [...words, "```", "```py", "~~~"];
  let seed = 7;
  for (let round = 0; round < 300; round += 1) {
    const picked = Array.from({ length: 60 }, () => {
      seed = (seed * 48271) % 2147483647;
      const choice = round % 2 ? words : linesOnly;
      return choice[seed % choice.length];
    });
    const text = picked.join(round % 2 ? " " : "\n");
    for (const unit of ["utf16", "code_points", "bytes"] as const) {
      const limit: TextLimit = { size: 64, unit };
      const parts = splitText(text, limit);
      assert.deepEqual(splitText(text, limit), parts);
      for (const part of parts) assert.ok(measured(part, unit) <= 64, JSON.stringify(part));
      const kept = letters(parts.join("")).replaceAll("py", "").replaceAll("~~~", "");
      assert.equal(kept, letters(text).replaceAll("py", "").replaceAll("~~~", ""));
    }
  }
});

test("files and buttons come with the last piece, and the reply with the first", () => {
  const pieces = piecesOf(
    message({
      text: "one two three",
      reply_to: "7",
      attachments: [{ url: "http://x", media_type: "image/png" }],
      buttons: [{ label: "yes" }],
    }),
    { size: 8, unit: "utf16" },
  );
  assert.deepEqual(
    pieces.map((it) => [it.text, it.replyTo, it.attachments.length, it.buttons.length]),
    [
      ["one two", "7", 0, 0],
      ["three", undefined, 1, 1],
    ],
  );
});

test("without buttons they are numbered lines, and a message that says nothing has no piece", () => {
  const buttons = [{ label: "yes" }, { label: "site", url: "http://x" }];
  const [piece] = piecesOf(message({ text: "Go on?", buttons }), undefined, false);
  assert.equal(piece?.text, "Go on?\n\n1. yes\n2. site: http://x");
  assert.deepEqual(piece?.buttons, []);
  assert.deepEqual(piecesOf(message({ text: "\u200b \n" })), []);
  assert.equal(isBlank("\u200d"), true);
  assert.equal(isBlank("🎉"), false);
});
