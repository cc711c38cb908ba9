import assert from "node:assert/strict";
import { test } from "node:test";
import type { RenewReply } from "../src/contract.js";
import { UnansweredRequestError } from "../src/errors.js";
import { Lease } from "../src/lease.js";
import { now } from "../src/timing.js";
import { stamp } from "../src/wire.js";

const reply = (fields: Partial<RenewReply>): RenewReply => ({
  ...stamp(),
  status: "renewed",
  lease_ms: 30,
  ...fields,
});

test("a lease is renewed until the service says that it is lost", async () => {
  // Long enough that a busy machine misses no renewal.
  const replies = [reply({ lease_ms: 900 }), reply({ status: "stale", lease_ms: 0 })];
  const lease = new Lease(now(), 900, async () => replies.shift() ?? reply({}));
  assert.equal(await lease.keep(), "stale");
  assert.equal(replies.length, 0);
});

test("a lease whose renewals are not answered expires", async () => {
  const lease = new Lease(now(), 30, async () => {
    throw new UnansweredRequestError("renew", false);
  });
  assert.equal(await lease.keep(), "expired");
});

test("a turn that is to end is not renewed again", async () => {
  let renewals = 0;
  const lease = new Lease(now(), 30, async () => {
    renewals += 1;
    return reply({ cancel: "stopped" });
  });
  assert.equal(await lease.keep(), "expired");
  assert.equal(renewals, 1);
});

test("a claim that was answered late is renewed before the work begins", async () => {
  const begun: boolean[] = [];
  const lease = new Lease(now() - 1000, 30, async (_, hasBegun) => {
    begun.push(hasBegun);
    return reply({ lease_ms: 60_000 });
  });
  assert.equal(await lease.secure(), true);
  assert.deepEqual(begun, [false]);
  assert.equal(lease.wasRenewed, true);
});

test("a lease that ends is not reported as lost", async () => {
  const lease = new Lease(now(), 60_000, async () => reply({}));
  const keeping = lease.keep();
  lease.end();
  assert.equal(await keeping, null);
});
