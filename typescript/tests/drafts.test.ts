import assert from "node:assert/strict";
import { test } from "node:test";
import type { OutboundMessage, Source } from "../src/contract.js";
import { RateBudget } from "../src/delivery/rate_budget.js";
import { RetryAfter } from "../src/errors.js";
import { Drafts } from "../src/live/drafts.js";
import type { TurnUpdate } from "../src/live/turn_reader.js";
import { pause } from "../src/timing.js";
import { stamp } from "../src/wire.js";

const source: Source = { platform: "telegram", account: "bot", chat: { id: "1", kind: "dm" } };
const about = { ...stamp(), turn_id: "t1", session_id: "s1", agent: "main", attempt: 1 };
const started = (draft?: string) => ({ type: "started", source, ...about, draft }) as TurnUpdate;
const text = (words: string) =>
  ({ type: "piece", ...about, index: 0, piece: { kind: "text", text: words } }) as TurnUpdate;
const ended = (ids: string[]) => ({ type: "ended", ...about, outbound_ids: ids }) as TurnUpdate;
const message = (fields: Partial<OutboundMessage> = {}) =>
  ({ turn_id: "t1", kind: "answer", text: "answer", target: source, ...fields }) as OutboundMessage;

/** A platform that keeps its messages, and fails with the next errors. */
class Platform {
  readonly shown = new Map<string, string>();
  readonly errors: Error[] = [];
  readonly refusals: Error[] = [];
  readonly reported: string[] = [];
  sent = 0;

  readonly drafts = new Drafts({
    platform: this,
    budget: new RateBudget(),
    log: () => {},
    report: async (_, __, messageId) => void this.reported.push(messageId),
    intervalMs: 1,
  });

  async send(_: Source, words: string): Promise<string> {
    this.sent += 1;
    this.#fail();
    this.shown.set(`m${this.sent}`, words);
    return `m${this.sent}`;
  }

  async edit(_: Source, messageId: string, words: string): Promise<void> {
    this.#fail();
    this.shown.set(messageId, words);
  }

  async delete(_: Source, messageId: string): Promise<void> {
    const refusal = this.refusals.shift();
    if (refusal !== undefined) throw refusal;
    this.shown.delete(messageId);
  }

  update(...updates: TurnUpdate[]): void {
    for (const update of updates) this.drafts.update(update);
  }

  async until(holds: () => boolean): Promise<void> {
    for (let tries = 0; !holds(); tries += 1) {
      assert.ok(tries < 2000, "not in time");
      await pause(5);
    }
  }

  #fail(): void {
    const error = this.errors.shift();
    if (error !== undefined) throw error;
  }
}

test("a draft is sent once, edited, and becomes the answer", async () => {
  const platform = new Platform();
  platform.update(started(), text("one "));
  await platform.until(() => platform.shown.get("m1") === "one ");
  platform.update(text("two"));
  await platform.until(() => platform.shown.get("m1") === "one two");
  assert.deepEqual(platform.reported, ["m1"]);
  platform.update(ended(["o1"]));
  assert.equal((await platform.drafts.replacing(message())).draft, "m1");
  platform.update(text("late"));
  assert.equal((await platform.drafts.replacing(message())).draft, "m1");
  assert.equal(platform.sent, 1);
});

test("the draft of an earlier attempt is edited, also by another process", async () => {
  const platform = new Platform();
  platform.update(started("m0"), text("again"));
  await platform.until(() => platform.shown.get("m0") === "again");
  assert.equal((await platform.drafts.replacing(message({ draft: "m0" }))).draft, "m0");
  assert.equal(platform.sent, 0);
});

test("a first call with an unknown outcome is not repeated, a refused one is", async () => {
  const platform = new Platform();
  platform.errors.push(new RetryAfter(0.01), new Error("the connection was lost"));
  platform.update(started(), text("one"));
  await platform.until(() => platform.sent === 2);
  platform.update(text("two"));
  assert.equal((await platform.drafts.replacing(message())).draft, undefined);
  assert.equal(platform.sent, 2);
});

test("without an answer the draft is deleted", async () => {
  const platform = new Platform();
  platform.update(started(), text("one"));
  await platform.until(() => platform.shown.size === 1);
  platform.update(ended([]));
  await platform.until(() => platform.shown.size === 0);
});

test("a draft without an answer is deleted when the platform asked to wait", async () => {
  const platform = new Platform();
  platform.update(started(), text("one"));
  await platform.until(() => platform.shown.size === 1);
  platform.refusals.push(new RetryAfter(0.01));
  platform.update(ended([]));
  await platform.until(() => platform.shown.size === 0);
});

test("the answer waits until a draft before another message is deleted", async () => {
  const platform = new Platform();
  platform.update(started(), text("one"));
  await platform.until(() => platform.shown.has("m1"));
  platform.drafts.noteSent(message({ is_interim: true }));
  platform.refusals.push(new RetryAfter(0.01));
  await assert.rejects(platform.drafts.replacing(message()), RetryAfter);
  assert.equal((await platform.drafts.replacing(message())).draft, null);
  assert.equal(platform.shown.size, 0);
});

test("the end does not wait for a platform that deletes nothing", async () => {
  const platform = new Platform();
  platform.update(started(), text("one"));
  await platform.until(() => platform.shown.size === 1);
  platform.refusals.push(new RetryAfter(60));
  platform.update(ended([]));
  await platform.until(() => platform.refusals.length === 0);
  const before = performance.now();
  await platform.drafts.close();
  assert.ok(performance.now() - before < 5000);
});

test("behind another message of the turn the draft begins again", async () => {
  const platform = new Platform();
  platform.update(started(), text("one"));
  await platform.until(() => platform.shown.has("m1"));
  await platform.drafts.noteSent(message({ is_interim: true }));
  platform.update(text(" two"));
  await platform.until(() => !platform.shown.has("m1") && platform.shown.get("m2") === "one two");
  await platform.drafts.noteSent(message({ is_interim: true }));
  // Nothing more is shown, so the answer is another message, and then the draft is deleted.
  assert.equal((await platform.drafts.replacing(message())).draft, null);
  await platform.drafts.noteSent(message());
  assert.equal(platform.shown.size, 0);
});
