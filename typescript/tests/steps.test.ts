import assert from "node:assert/strict";
import { test } from "node:test";
import { StepError } from "../src/errors.js";
import { TurnSteps } from "../src/steps.js";

/** Keeps results, and hands out attempts. */
class MemoryRouter {
  readonly kept = new Map<string, string>();
  readonly requests: string[] = [];
  attempt = 0;

  // biome-ignore lint/suspicious/noExplicitAny: any reply of the contract
  async request(noun: string, verb: string, request: any): Promise<any> {
    this.requests.push(`${noun}.${verb}`);
    if (verb === "keep" && !this.kept.has(request.name)) {
      this.kept.set(request.name, request.result);
    }
    return { result: this.kept.get(request.name) ?? null };
  }

  next(): TurnSteps {
    this.attempt += 1;
    const grant = { turnId: "t", sessionId: "s", attempt: this.attempt, token: "x" };
    return new TurnSteps(this, grant, new AbortController().signal);
  }
}

test("a later attempt gets the result without a call", async () => {
  const router = new MemoryRouter();
  for (const [name, result] of Object.entries({
    a: null,
    b: [1, { c: "Größe \u{1f600}" }],
    d: "",
  })) {
    let calls = 0;
    const step = () => {
      calls += 1;
      return result;
    };
    router.attempt = 0;
    assert.deepEqual(await router.next().run(name, step), result);
    assert.deepEqual(await router.next().run(name, step), result);
    assert.equal(calls, 1);
    assert.match(router.kept.get(name) ?? "", /^[\x20-\x7e]*$/);
  }
});

test("a result that would come back otherwise is refused", async () => {
  const endless: unknown[] = [];
  endless.push(endless);
  for (const result of [undefined, Number.NaN, 1n, new Date(), new Map(), [undefined], endless]) {
    await assert.rejects(
      new MemoryRouter().next().run("a", () => result),
      StepError,
    );
  }
  const large = "x".repeat(120 * 1024);
  await assert.rejects(
    new MemoryRouter().next().run("a", () => large),
    StepError,
  );
});

test("two steps of a name are an error, and a failure may be tried again", async () => {
  const steps = new MemoryRouter().next();
  const fail = () => {
    throw new RangeError("no");
  };
  await assert.rejects(steps.run("a", fail), RangeError);
  assert.equal(await steps.run("a", () => 1), 1);
  await assert.rejects(
    steps.run("a", () => 2),
    StepError,
  );
});
