import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Msg } from "@nats-io/transport-node";
import type { Connection } from "../src/connection.js";
import type { ClaimReply, ClaimRequest } from "../src/contract.js";
import { ClaimClient } from "../src/grant.js";
import { decode, encode, stamp } from "../src/wire.js";

/** Answers each claim after a time, by the clock of a test. */
class SlowService {
  waits: number[] = [];
  readonly asked = new Set<string>();
  #now = 0;

  constructor(
    context: TestContext,
    public takesMs: number,
  ) {
    context.mock.method(performance, "now", () => this.#now);
  }

  get connection(): Connection {
    const nats = {
      request: async (_: string, body: Uint8Array, options: { timeout: number }) => {
        const request = decode<ClaimRequest>(body);
        this.asked.add(request.id);
        this.waits.push(options.timeout);
        // Whole milliseconds, so that differences are exact.
        this.#now += Math.round(Math.min(this.takesMs, options.timeout));
        if (this.takesMs > options.timeout) throw new Error("no answer");
        const reply: ClaimReply = { ...stamp(), status: "taken", turn_id: request.turn_id };
        return { data: encode(reply) } as Msg;
      },
    };
    return {
      nats,
      untilConnected: async () => true,
      requireOpen: () => {},
    } as unknown as Connection;
  }

  /** Claim a turn; return how long the worker would have waited for each answer. */
  async claimed(client: ClaimClient): Promise<number[]> {
    this.waits = [];
    this.asked.clear();
    assert.equal(await client.claim("t", new AbortController().signal), "taken");
    assert.equal(this.asked.size, 1);
    return this.waits;
  }
}

test("a busy service is asked again only after twice its last time", async (context) => {
  const service = new SlowService(context, 1500);
  const client = new ClaimClient(service.connection, "main", "worker", "w1");
  const waits = await service.claimed(client);
  assert.ok(waits.length > 1);
  // Short at first: the answer may have been lost.
  assert.ok((waits[0] ?? 0) <= 1000);
  assert.deepEqual(
    waits,
    waits.toSorted((one, other) => one - other),
  );
  assert.deepEqual(await service.claimed(client), [3000]);
  service.takesMs = 3000;
  assert.deepEqual(await service.claimed(client), [3000]);
  // It may be dead.
  assert.deepEqual(await service.claimed(client), [4000]);
  service.takesMs = 5;
  await service.claimed(client);
  assert.ok(((await service.claimed(client))[0] ?? 0) <= 1000);
});
