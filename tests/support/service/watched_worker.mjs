// The echo worker of chatlane on the TypeScript client, with a line in an event log at the start and
// end of each turn, as `watched_worker.py` writes them.
//
// Usage: node watched_worker.mjs PACKAGE EVENT_LOG NAME AGENT SLOTS THINK_MS

import { appendFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";

const [packagePath, eventLog, actor, agent, slots, thinkMs] = process.argv.slice(2);
const { runWorker } = await import(pathToFileURL(`${packagePath}/dist/src/index.js`));

// The monotonic clock of the machine, which other processes share.
function note(op, fields) {
  const at = Number(process.hrtime.bigint()) / 1e9;
  appendFileSync(eventLog, `${JSON.stringify({ at, actor, op, ...fields })}\n`);
}

function heard(message) {
  const files = (message.attachments ?? []).map((it) => `[${it.name ?? it.media_type}]`);
  return `#${message.seq} heard: ${[...(message.text ? [message.text] : []), ...files].join(" ")}`;
}

await runWorker({
  servers: process.env.NATS_URL,
  agent,
  slots: Number(slots),
  principal: process.env.PRINCIPAL,
  nkeySeedFile: process.env.NKEY_SEED_FILE,
  async handler(turn) {
    const piece = { turn_id: turn.id, attempt: turn.attempt };
    note("turn_began", { session_id: turn.sessionId, ...piece });
    try {
      await sleep(Number(thinkMs), undefined, { signal: turn.signal });
      return turn.messages.map(heard).join("\n");
    } finally {
      note("turn_ended", piece);
    }
  },
});
