// A turn worker that does what `chatlane conform worker` writes; it shows each thing a worker can do.

import { setTimeout as sleep } from "node:timers/promises";
import { AgentUnavailableError, Ask, runWorker, type Turn } from "../src/index.js";

const TICK_MS = 250;
const wasAway = new Set<string>();

type Line = string | Ask;

const ACTS: Record<string, (turn: Turn, ...words: string[]) => Line | Promise<Line>> = {
  echo: (_, word) => `heard ${word}`,

  async recall(turn) {
    const rows = await turn.history();
    const spoken = rows.filter((row) => row.role === "user" || row.role === "assistant");
    return `recalls ${spoken.map((row) => row.content ?? "").join(" | ")}`;
  },

  // Takes long and shows it; `/stop` and a lost lease abort the sleep.
  async work(turn, seconds, word) {
    for (let tick = 0; tick < (Number(seconds) * 1000) / TICK_MS; tick += 1) {
      turn.delta("tick ");
      await sleep(TICK_MS, undefined, { signal: turn.signal });
    }
    return `heard ${word}`;
  },

  // Looks something up once in all attempts, and takes long after it.
  async step(turn, seconds, word) {
    const found = await turn.step(`look up ${word}`, () => `${word} ${turn.attempt}`);
    await ACTS.work?.(turn, seconds ?? "", word ?? "");
    return `kept ${found}`;
  },

  async join(turn) {
    for await (const message of turn.steered()) return `took ${message.text}`;
    return "took nothing";
  },

  async ask(turn, word) {
    const options = { options: ["yes", "no"], withinMs: 60_000 };
    const told = await turn.ask(`Go on with ${word}?`, options);
    return `told ${told.value}`;
  },

  // Asks the person, and gives the turn up until the answer.
  async park(turn, word = "") {
    const found = await turn.step(`look up ${word}`, () => `${word} ${turn.attempt}`);
    const told = await turn.answer(word);
    if (told) return `kept ${found}, told ${told.value}`;
    const until = new Date(Date.now() + 60_000);
    return new Ask(`Keep ${word}?`, { options: ["yes", "no"], until, name: word });
  },

  away(_, seconds, word = "") {
    if (!wasAway.has(word)) {
      wasAway.add(word);
      throw new AgentUnavailableError("away", { againInMs: Number(seconds) * 1000 });
    }
    return `heard ${word}`;
  },

  fail(turn, word) {
    if (turn.attempt === 1) throw new RangeError(word);
    return `heard ${word}`;
  },
};

async function act(turn: Turn, text: string): Promise<Line> {
  const [name = "", ...words] = text.split(/\s+/);
  const known = Object.hasOwn(ACTS, name) ? ACTS[name] : undefined;
  return known ? await known(turn, ...words) : `heard ${text}`;
}

await runWorker({
  servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222",
  agent: process.env.AGENT ?? "main",
  slots: Number(process.env.SLOTS ?? 4),
  principal: process.env.PRINCIPAL,
  nkeySeedFile: process.env.NKEY_SEED_FILE,
  tlsCaFile: process.env.TLS_CA_FILE,
  // A model would make it.
  titles: (question) => (question.startsWith("name ") ? question.slice(5) : null),
  async handler(turn) {
    const lines: string[] = [];
    for (const message of turn.messages) {
      const line = await act(turn, message.text ?? "");
      if (line instanceof Ask) return line;
      lines.push(line);
    }
    return lines.join("\n");
  },
});
