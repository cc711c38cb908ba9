// Reports the members of a room on the TypeScript client, and prints the name of an error.
//
// Usage: node room_reporter.mjs PACKAGE PLATFORM ACCOUNT ROOM READ_AT MEMBER ...

import { pathToFileURL } from "node:url";

const [packagePath, platform, account, room, readAt, ...members] = process.argv.slice(2);
const { AdapterClient, openConnection } = await import(
  pathToFileURL(`${packagePath}/dist/src/index.js`)
);

const connection = await openConnection({ servers: process.env.NATS_URL });
const adapter = new AdapterClient(connection, { platform, account });
const times = { readAt: new Date(readAt), until: new Date(Date.now() + 3_600_000) };
try {
  await adapter.reportMembers(room, members, times);
} catch (error) {
  console.log(error.name);
}
await connection.close();
