import assert from "node:assert/strict";
import { test } from "node:test";
import type { SessionView } from "../src/contract.js";
import { ConflictingRequestError, StaleRequestError } from "../src/errors.js";
import { Flag } from "../src/timing.js";
import { SessionTitles, type TitleMaker } from "../src/titles.js";
import { stamp } from "../src/wire.js";

/** Keeps the titles of sessions as the service does: unique, and only of the version that was read. */
class MemorySessions {
  readonly titles = new Map<string, string>();
  readonly looks: string[] = [];

  async get(id: string): Promise<SessionView> {
    this.looks.push(id);
    const title = this.titles.get(id) ?? null;
    return { id, title, version: `v ${title}` } as SessionView;
  }

  // biome-ignore lint/suspicious/noExplicitAny: any request of the contract
  async request(noun: string, verb: string, fields: any) {
    assert.deepEqual([noun, verb, fields.by_model], ["session", "title", true]);
    if (fields.expected_version !== `v ${this.titles.get(fields.session_id) ?? null}`) {
      throw new StaleRequestError("changed meanwhile");
    }
    if ([...this.titles.values()].includes(fields.title))
      throw new ConflictingRequestError("taken");
    this.titles.set(fields.session_id, fields.title);
    return stamp();
  }
}

/** Return titles, what they log, and a function that returns once all that was asked for is done. */
function open(make: TitleMaker, patienceMs?: number) {
  const sessions = new MemorySessions();
  const logged: Array<Record<string, unknown> | undefined> = [];
  const log = (_: string, fields?: Record<string, unknown>) => logged.push(fields);
  const titles = new SessionTitles(sessions, make, log, patienceMs);
  const settled = () => new Promise((resolve) => setImmediate(resolve));
  return { sessions, logged, titles, settled };
}

/** Return a title that comes when the test gives it. */
function held() {
  let give: (title: string) => void = () => {};
  const title = new Promise<string>((resolve) => {
    give = resolve;
  });
  return { title, give: (made: string) => give(made) };
}

test("a session without a title gets one, on one line, and is not asked about again", async () => {
  const asked: string[][] = [];
  const { sessions, titles, settled } = open((question, answer) => {
    asked.push([question, answer]);
    return ` A\n\t${"plan".repeat(30)} `;
  });
  titles.noteAnswer("s", "hello", "hi");
  titles.noteAnswer("s", "hello", "hi");
  await settled();
  titles.noteAnswer("s", "more", "yes");
  titles.noteAnswer("t", " ", "words");
  await settled();
  assert.deepEqual(asked, [["hello", "hi"]]);
  assert.deepEqual(sessions.looks, ["s"]);
  assert.equal(sessions.titles.get("s"), `A ${"plan".repeat(30)}`.slice(0, 100));
});

test("a title that exists stays, and none is made", async () => {
  const { sessions, titles, settled } = open(() => assert.fail("asked for a title"));
  sessions.titles.set("s", "Mine");
  titles.noteAnswer("s", "hello", "hi");
  await settled();
  assert.deepEqual([...sessions.titles.values()], ["Mine"]);
});

test("a title that a person gives meanwhile stays", async () => {
  const { sessions, logged, titles, settled } = open(async () => {
    sessions.titles.set("s", "Mine");
    return "Other";
  });
  titles.noteAnswer("s", "hello", "hi");
  await settled();
  assert.deepEqual([...sessions.titles.values()], ["Mine"]);
  assert.deepEqual(logged, [{ session_id: "s", reason: "StaleRequestError" }]);
});

test("a title of another session is not asked for again", async () => {
  const { sessions, logged, titles, settled } = open(() => "Plan");
  sessions.titles.set("other", "Plan");
  for (let answers = 0; answers < 2; answers += 1) {
    titles.noteAnswer("s", "hello", "hi");
    await settled();
  }
  assert.deepEqual(sessions.looks, ["s"]);
  assert.deepEqual(logged, []);
});

test("after a failure, and after no title, the next answer asks again", async () => {
  const { sessions, logged, titles, settled } = open((question) => {
    if (question === "broken") throw new RangeError(`secret ${question}`);
    return question === "early" ? null : question === "blank" ? " \u200b" : "Plan";
  });
  for (const question of ["broken", "early", "blank", "now"]) {
    assert.equal(sessions.titles.size, 0);
    titles.noteAnswer("s", question, "hi");
    await settled();
  }
  assert.deepEqual([...sessions.titles.values()], ["Plan"]);
  assert.deepEqual(logged, [{ session_id: "s", reason: "RangeError" }]);
});

test("a title that takes too long is dropped, and its signal aborted", async () => {
  const late = held();
  const ended = new Flag();
  const make: TitleMaker = (_question, _answer, signal) => {
    signal.addEventListener("abort", () => ended.set());
    return late.title;
  };
  const { sessions, logged, titles, settled } = open(make, 1);
  titles.noteAnswer("s", "hello", "hi");
  await ended.wait(10_000);
  late.give("Plan");
  await settled();
  assert.equal(sessions.titles.size, 0);
  assert.deepEqual(logged, [{ session_id: "s", reason: "TimeoutError" }]);
});

test("a worker that ends drops what it has asked for, silently", async () => {
  const late = held();
  const { sessions, logged, titles, settled } = open(() => late.title);
  titles.noteAnswer("s", "hello", "hi");
  await settled();
  titles.close();
  late.give("Plan");
  titles.noteAnswer("t", "hello", "hi");
  await settled();
  assert.deepEqual(sessions.looks, ["s"]);
  assert.equal(sessions.titles.size, 0);
  assert.deepEqual(logged, []);
});
