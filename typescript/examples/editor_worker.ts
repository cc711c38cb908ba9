// A turn worker for people who write in an editor: it comments a script of theirs and runs it.
//
// The message is the absolute path of a script of Python. Files and terminal are those of the editor.

import { dirname } from "node:path";
import { EditorCallError, EditorTools, runWorker, type Turn } from "../src/index.js";

async function runScript(turn: Turn, path: string): Promise<string> {
  const tools = new EditorTools(turn);
  const script = await tools.readTextFile(path);
  if (!script.startsWith("#")) await tools.writeTextFile(path, `# Run by an agent.\n${script}`);
  // The next attempt does not run it again if this one is killed.
  const ended = await turn.step("run", () =>
    tools.runCommand("python3", [path], { cwd: dirname(path), killAfterMs: 60_000 }),
  );
  return `exit code ${ended.exitCode}: ${ended.output.trim()}`;
}

await runWorker({
  servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222",
  agent: process.env.AGENT ?? "main",
  slots: Number(process.env.SLOTS ?? 4),
  principal: process.env.PRINCIPAL,
  nkeySeedFile: process.env.NKEY_SEED_FILE,
  tlsCaFile: process.env.TLS_CA_FILE,
  async handler(turn) {
    try {
      return await runScript(turn, turn.text.trim());
    } catch (error) {
      if (error instanceof EditorCallError) return `${error.reason ?? "late"}: ${error.message}`;
      throw error;
    }
  },
});
