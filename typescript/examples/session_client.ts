// A front end in one run: opens a session, asks something, and shows the conversation.

import { openConnection, type Person, SessionApi } from "../src/index.js";

const { NATS_URL, PRINCIPAL = "me", NKEY_SEED_FILE, TLS_CA_FILE, PERSON } = process.env;
const [first = "hello", second = "hello again"] = process.argv.slice(2);

const connection = await openConnection({
  servers: NATS_URL ?? "nats://127.0.0.1:4222",
  name: "session client",
  principal: PRINCIPAL,
  nkeySeedFile: NKEY_SEED_FILE,
  tlsCaFile: TLS_CA_FILE,
});
// A front end signs its people in; here `PERSON` is platform, account and id.
const [platform, account, id] = PERSON?.split("/") ?? [];
const person: Person | undefined =
  platform && account && id ? { platform, account, id } : undefined;
const sessions = new SessionApi(connection, {
  principal: PRINCIPAL,
  ...(person && { actingFor: person }),
});

const session = await sessions.create({ origin: "script" });
const asked = await sessions.submit(session.id, first, { wait: true });
console.log(`${asked.outcome}: ${asked.answer}`);

await sessions.submit(session.id, second);
const stopped = await sessions.stop(session.id);
console.log(`stopped ${stopped.turn_id != null}`);

for (const row of await sessions.transcript(session.id)) console.log(`${row.role}: ${row.content}`);
for await (const { id, origin } of sessions.list({ origin: "script" })) {
  if (id === session.id) console.log(`listed as ${origin}`);
}
await connection.close();
