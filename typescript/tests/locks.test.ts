import assert from "node:assert/strict";
import { test } from "node:test";
import { RateBudget } from "../src/delivery/rate_budget.js";
import { RetryAfter } from "../src/errors.js";
import { Locks } from "../src/locks.js";

test("work of one key happens in order, also after a failure, and other keys do not wait", async () => {
  const locks = new Locks();
  const done: string[] = [];
  let release = () => {};
  const first = locks.run("a", async () => {
    await new Promise<void>((resolve) => {
      release = resolve;
    });
    done.push("first");
    throw new RangeError("first");
  });
  const second = locks.run("a", async () => done.push("second"));
  await locks.run("b", async () => done.push("other"));
  release();
  await assert.rejects(first, RangeError);
  await second;
  assert.deepEqual(done, ["other", "first", "second"]);
});

test("a refusal of the platform pauses its chat, or all", () => {
  const budget = new RateBudget();
  budget.pauseAfter(new RetryAfter(60), "a");
  assert.ok(budget.pausedFor("a") > 0);
  assert.equal(budget.pausedFor("b"), 0);
  budget.pauseAfter(new RetryAfter(60, true), "a");
  assert.ok(budget.pausedFor("b") > 0);
});
