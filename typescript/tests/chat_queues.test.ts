import assert from "node:assert/strict";
import { test } from "node:test";
import type { Connection } from "../src/connection.js";
import type { OutboundMessage } from "../src/contract.js";
import { ChatQueues, setBackMs } from "../src/delivery/chat_queues.js";
import type { Entry, Outcome } from "../src/delivery/message_sender.js";
import { Delivered } from "../src/pull.js";
import { Flag, now, pause } from "../src/timing.js";

const LATER = /^-NAK \{"delay": (\d+)\}$/;
const DELIVERED: Outcome = { kind: "delivered" };

/** The queues of an account, beside a server that delivers again what is called back. */
class Deliveries {
  readonly sent: string[] = [];
  readonly delays: number[] = [];
  readonly returned: string[] = [];
  readonly acknowledged: string[] = [];
  /** The outcomes of the next calls for a chat; then its messages are delivered. */
  readonly outcomes = new Map<string, Outcome[]>();
  readonly ending = new AbortController();
  answers = true;
  attempt: (entry: Entry) => Promise<void> = async () => {};
  #sequence = 0;

  readonly #connection = {
    isConnected: true,
    requireOpen: () => {},
    nats: { publish: (id: string, word: string) => this.#settle(id, word) },
  } as unknown as Connection;

  readonly queues = new ChatQueues(
    this.#connection,
    {
      attempt: async (entry) => {
        await this.attempt(entry);
        const outcome = this.outcomes.get(entry.raw.subject)?.shift() ?? DELIVERED;
        if (outcome.kind === "delivered") this.sent.push(entry.id);
        return outcome;
      },
    },
    this.ending.signal,
    () => assert.fail("the queues failed"),
    () => {},
  );

  put(chat: string, id: string): void {
    this.#sequence += 1;
    const raw = this.#copy(chat, id, this.#sequence);
    const message = { id, text: id } as OutboundMessage;
    const entry: Entry = {
      ...{ id, sessionId: chat, outSeq: this.#sequence, message, raw },
      ...{ wasHanded: false, hasPaused: false, attempts: 0 },
      ...{ givenUp: undefined, progress: undefined, came: new Flag() },
    };
    this.queues.hold(entry);
    this.queues.put(entry);
  }

  async until(holds: () => boolean): Promise<void> {
    const end = now() + 30_000;
    while (!holds()) {
      assert.ok(now() < end, "not in time");
      await pause(1);
    }
  }

  #copy(chat: string, id: string, sequence: number): Delivered {
    const reply = `$JS.ACK.OUTBOUND.test.1.${sequence}.${sequence}.0.0`;
    const msg = { subject: chat, reply: `${reply} ${id}`, data: new Uint8Array() };
    return new Delivered(this.#connection, msg as never);
  }

  #settle(reply: string, word: string): void {
    const id = reply.slice(reply.indexOf(" ") + 1);
    const delay = LATER.exec(word)?.[1];
    if (word === "+ACK") this.acknowledged.push(id);
    else if (delay !== undefined) this.delays.push(Number(delay) / 1e6);
    else this.returned.push(id);
    if (word !== "-NAK" || !this.answers) return;
    setImmediate(() => {
      const held = this.queues.held.get(id);
      if (held === undefined) return;
      const { subject, streamSequence } = held.raw;
      const message = { id, text: id } as OutboundMessage;
      this.queues.takeCopy(held, message, this.#copy(subject, id, streamSequence));
    });
  }
}

const ids = (count: number, chat = "m") =>
  Array.from({ length: count }, (_, place) => `${chat}${place + 1}`);

test("a chat has few messages in memory, and sends all of them in order", async () => {
  const deliveries = new Deliveries();
  const mayGoOn = new Flag();
  deliveries.attempt = async () => await mayGoOn.wait();
  for (const id of ids(200)) deliveries.put("chat", id);
  assert.equal(deliveries.queues.bodies, 31);
  assert.equal(deliveries.queues.setBack, 169);
  assert.deepEqual(new Set(deliveries.delays), new Set([5000]));
  mayGoOn.set();
  await deliveries.until(() => deliveries.acknowledged.length === 200);
  assert.deepEqual(deliveries.sent, ids(200));
  assert.deepEqual(deliveries.acknowledged, ids(200));
  assert.equal(deliveries.queues.bodies, 0);
  assert.equal(deliveries.queues.held.size, 0);
});

test("a chat that pauses for long gives all its messages back, and others go on", async () => {
  const deliveries = new Deliveries();
  deliveries.outcomes.set("bad", [{ kind: "retry", ms: 3_600_000, failure: "rate_limited" }]);
  for (const id of ids(50, "bad")) deliveries.put("bad", id);
  await deliveries.until(() => deliveries.queues.bodies === 0);
  deliveries.put("bad", "bad51");
  assert.equal(deliveries.queues.setBack, 51);
  deliveries.put("good", "good1");
  await deliveries.until(() => deliveries.sent.length === 1);
  assert.deepEqual(deliveries.sent, ["good1"]);
  // Until the next process calls, the messages are with the server, in the order of the stream.
  deliveries.answers = false;
  deliveries.ending.abort();
  await deliveries.queues.close();
  assert.deepEqual(deliveries.returned, ids(51, "bad"));
});

test("a chat that may go on calls its messages back and sends them in order", async () => {
  const deliveries = new Deliveries();
  deliveries.outcomes.set("chat", [{ kind: "retry", ms: 3000, failure: "rate_limited" }]);
  for (const id of ids(100)) deliveries.put("chat", id);
  await deliveries.until(() => deliveries.queues.bodies === 0);
  assert.ok(deliveries.delays.slice(-31).every((ms) => ms <= 3000));
  await deliveries.until(() => deliveries.sent.length === 100);
  assert.deepEqual(deliveries.sent, ids(100));
});

test("what waits for a chat that is gone is given up, also what the server keeps", async () => {
  const deliveries = new Deliveries();
  const mayGoOn = new Flag();
  const givenUp: string[] = [];
  deliveries.attempt = async (entry) => {
    await mayGoOn.wait();
    if (entry.givenUp === "gone") givenUp.push(entry.id);
  };
  const gone: Outcome = { kind: "given_up", failure: "gone", isChatGone: true };
  deliveries.outcomes.set("chat", [gone]);
  for (const id of ids(40)) deliveries.put("chat", id);
  mayGoOn.set();
  await deliveries.until(() => deliveries.acknowledged.length === 40);
  assert.deepEqual(givenUp, ids(40).slice(1));
});

test("a message that arrives while the last one ends is sent", async () => {
  for (let steps = 0; steps < 12; steps += 1) {
    const deliveries = new Deliveries();
    deliveries.put("chat", "m1");
    for (let step = 0; step < steps; step += 1) await Promise.resolve();
    deliveries.put("chat", "m2");
    await deliveries.until(() => deliveries.acknowledged.length === 2);
    assert.deepEqual(deliveries.sent, ["m1", "m2"]);
  }
});

test("the more the server keeps, the later it delivers a message again", () => {
  assert.equal(setBackMs(5000, 10), 5000);
  assert.equal(setBackMs(5000, 10_000), 20_000);
  assert.equal(setBackMs(5000, 100_000), 60_000);
});
