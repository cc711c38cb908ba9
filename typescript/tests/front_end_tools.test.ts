import assert from "node:assert/strict";
import { test } from "node:test";
import type { FrontEndCall } from "../src/contract.js";
import { FrontEndCallError } from "../src/errors.js";
import { FrontEndTools } from "../src/front_end_tools.js";

/** A turn whose front end runs tools, and keeps the results for the next attempt. */
class Page {
  readonly frontEnd = { tools: [{ name: "set_colour" }] };
  readonly results = new Map<string, string>();
  readonly calls: FrontEndCall[] = [];
  running = 0;
  isAway = false;

  async callFrontEnd(call: FrontEndCall) {
    this.running += 1;
    assert.equal(this.running, 1);
    await new Promise(setImmediate);
    this.running -= 1;
    const answer = { isDefault: false, values: undefined };
    if (this.isAway) return { ...answer, value: undefined };
    const known = this.results.get(call.id);
    if (known !== undefined) return { ...answer, value: known };
    this.calls.push(call);
    const value = `run ${this.calls.length}`;
    this.results.set(call.id, value);
    return { ...answer, value };
  }
}

const fails = (call: Promise<string>, reason: string) =>
  assert.rejects(call, (error) => error instanceof FrontEndCallError && error.message === reason);

test("calls are made one after the other, and the same one twice is two calls", async () => {
  const page = new Page();
  const tools = new FrontEndTools(page);
  assert.deepEqual([...tools.declared.keys()], ["set_colour"]);
  const blue = { colour: "blue" };
  const results = await Promise.all([1, 2].map(() => tools.call("set_colour", blue)));
  assert.deepEqual(results, ["run 1", "run 2"]);
});

test("another attempt gets the results, whatever the order of the properties", async () => {
  const page = new Page();
  const first = new FrontEndTools(page);
  await first.call("set_colour", { colour: "blue", depth: 2, never: undefined });
  const second = new FrontEndTools(page);
  assert.equal(await second.call("set_colour", { depth: 2, colour: "blue" }), "run 1");
  assert.equal(page.calls.length, 1);
});

test("ids and arguments are those of the Python client", async () => {
  const page = new Page();
  await new FrontEndTools(page).call("set_colour", { b: [1, true, null, "é\n"], a: { x: 1.5 } });
  assert.deepEqual(page.calls, [
    {
      id: "75dc1d55cac680561186e9facdc5afa6",
      name: "set_colour",
      arguments: '{"a": {"x": 1.5}, "b": [1, true, null, "\\u00e9\\n"]}',
    },
  ]);
});

test("a call without a result says why", async () => {
  const page = new Page();
  const tools = new FrontEndTools(page);
  await fails(tools.call("unknown"), "the front end has no such tool");
  const cycle: Record<string, unknown> = {};
  cycle.self = cycle;
  const values = [Number.NaN, 1n, new Date(), () => "", "x".repeat(70_000), [undefined]];
  for (const args of [cycle, ...values.map((colour) => ({ colour }))]) {
    await fails(tools.call("set_colour", args), "the arguments are no JSON, or too large");
  }
  page.isAway = true;
  await fails(tools.call("set_colour"), "the front end has not answered in time");
});
