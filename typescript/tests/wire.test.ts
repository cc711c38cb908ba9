import assert from "node:assert/strict";
import { test } from "node:test";
import { DecodeError } from "../src/errors.js";
import { backoff, Flag, pause } from "../src/timing.js";
import { decode, encode, stamp } from "../src/wire.js";

test("a message keeps its fields, those that are unknown as well", () => {
  const message = { ...stamp(), later: { field: null } };
  assert.deepEqual(decode(encode(message)), message);
});

test("another version and a body that is no message are refused", () => {
  for (const body of ["", "null", "[]", "{}", '{"v":2,"id":"x"}', '{"v":1}']) {
    assert.throws(() => decode(new TextEncoder().encode(body)), DecodeError);
  }
});

test("pauses grow up to the longest", () => {
  const pauses = backoff(100, 400);
  const ms = Array.from({ length: 20 }, () => pauses.next().value);
  assert.ok(ms.every((it) => it >= 50 && it <= 400));
  assert.ok((ms.at(-1) ?? 0) >= 200);
});

test("an abort ends a pause and a wait for a flag", async () => {
  const abort = new AbortController();
  const both = Promise.all([pause(1e6, abort.signal), new Flag().wait(undefined, abort.signal)]);
  abort.abort();
  await both;
});
