// The simplest worker: the messages of a session one at a time and in order.

import { runStreamWorker } from "../src/index.js";

await runStreamWorker({
  servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222",
  agent: process.env.AGENT ?? "notes",
  slots: Number(process.env.SLOTS ?? 32),
  principal: process.env.PRINCIPAL,
  nkeySeedFile: process.env.NKEY_SEED_FILE,
  tlsCaFile: process.env.TLS_CA_FILE,
  handler: (message) => `#${message.seq} heard: ${message.text}`,
});
