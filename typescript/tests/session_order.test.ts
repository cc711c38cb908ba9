import assert from "node:assert/strict";
import { test } from "node:test";
import { SessionOrder } from "../src/delivery/session_order.js";

function arrival(order: SessionOrder<string>) {
  return (outSeq: number, options: { id?: string; mayLead?: boolean; until?: number } = {}) => {
    const id = options.id ?? `m${outSeq}`;
    const message = { sessionId: "s", outSeq, id };
    return order.admit(message, id, options.until ?? 10, options.mayLead ?? true);
  };
}

test("messages that arrive out of order leave in order", () => {
  const arrive = arrival(new SessionOrder());
  assert.deepEqual(arrive(1).ready, ["m1"]);
  assert.deepEqual(arrive(3), { place: "early", ready: [] });
  assert.deepEqual(arrive(2).ready, ["m2", "m3"]);
});

test("a repeat is dropped, also of a message that waits", () => {
  const arrive = arrival(new SessionOrder());
  arrive(1);
  arrive(3);
  assert.equal(arrive(1).place, "repeat");
  assert.equal(arrive(3).place, "repeat");
});

test("another message with a known number is delivered", () => {
  const arrive = arrival(new SessionOrder());
  arrive(1);
  assert.deepEqual(arrive(1, { id: "other" }), { place: "reused", ready: ["other"] });
});

test("a session does not begin in the middle while older messages may come", () => {
  const order = new SessionOrder<string>();
  const arrive = arrival(order);
  assert.equal(order.wouldLead("s", 5), true);
  assert.equal(arrive(5, { mayLead: false }).place, "early");
  assert.deepEqual(arrive(4).ready, ["m4", "m5"]);
  assert.equal(order.wouldLead("s", 6), false);
});

test("a gap is passed over in time, and what comes later is late and not lost", () => {
  const order = new SessionOrder<string>();
  const arrive = arrival(order);
  arrive(1);
  arrive(4, { until: 7 });
  assert.equal(order.nextDeadline(), 7);
  assert.deepEqual(order.passOverdue(6), []);
  assert.deepEqual(order.passOverdue(7), [{ sessionId: "s", missing: 2, ready: ["m4"] }]);
  assert.equal(order.nextDeadline(), undefined);
  assert.deepEqual(arrive(2), { place: "late", ready: ["m2"] });
  assert.equal(arrive(2).place, "repeat");
  assert.deepEqual(arrive(5).ready, ["m5"]);
});

test("sessions begin with what they have once no older message is on its way", () => {
  const order = new SessionOrder<string>();
  const arrive = arrival(order);
  arrive(8, { mayLead: false });
  arrive(7, { mayLead: false });
  assert.deepEqual(order.leadUnknown(), [{ sessionId: "s", missing: 0, ready: ["m7", "m8"] }]);
});

test("in any order of arrival with repeats, each message leaves once and in order", () => {
  let seed = 1;
  const random = () => {
    seed = (seed * 48271) % 2147483647;
    return seed / 2147483647;
  };
  for (let round = 0; round < 200; round += 1) {
    const numbers = Array.from({ length: 12 }, (_, place) => place + 1);
    const copies = [...numbers, ...numbers.filter(() => random() < 0.4)];
    copies.sort(() => random() - 0.5);
    const arrive = arrival(new SessionOrder());
    const left = copies.flatMap((number) => arrive(number, { mayLead: false }).ready);
    assert.deepEqual(
      left,
      numbers.map((number) => `m${number}`),
    );
  }
});
