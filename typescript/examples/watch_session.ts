// Show the newest conversation of a person while it goes on: what is said, thought and done, live.

import { openConnection, SessionApi } from "../src/index.js";

const { NATS_URL, PRINCIPAL = "me", NKEY_SEED_FILE, TLS_CA_FILE, PERSON } = process.env;
const [platform = "", account = "", id = ""] = (PERSON ?? "").split("/");

const connection = await openConnection({
  servers: NATS_URL ?? "nats://127.0.0.1:4222",
  name: "session watch",
  principal: PRINCIPAL,
  nkeySeedFile: NKEY_SEED_FILE,
  tlsCaFile: TLS_CA_FILE,
});
const sessions = new SessionApi(connection, {
  principal: PRINCIPAL,
  actingFor: { platform, account, id },
});

const { sessions: [newest] = [] } = await sessions.listPage({ order: "activity", limit: 1 });
if (newest === undefined) throw new Error(`${PERSON} has no conversation`);
const updates = await sessions.watch(newest.id);
console.log("watching");
for await (const update of updates) {
  if (update.type === "piece") console.log(`${update.piece.kind}: ${update.piece.text ?? ""}`);
  else if (update.type === "ended") console.log(`ended: ${update.outcome}`);
  else console.log(update.type);
}
