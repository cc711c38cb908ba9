// Runs an agent with the client of AG-UI, and prints each event as a line of JSON. Another run then
// answers the interrupt of the first one, or cancels it without an answer, and is repeated.
// Usage: node run.mjs URL TOKEN THREAD MESSAGE_ID TEXT [ANSWER]
import { HttpAgent } from "@ag-ui/client";

const [url, token, threadId, id, content, payload] = process.argv.slice(2);
const agent = new HttpAgent({
  url,
  threadId,
  headers: { Authorization: `Bearer ${token}` },
  initialMessages: [{ id, role: "user", content }],
});
const printed = { onEvent: ({ event }) => console.log(JSON.stringify(event)) };
await agent.runAgent({}, printed);
const status = payload ? "resolved" : "cancelled";
const resume = agent.pendingInterrupts.map((it) => ({ interruptId: it.id, status, payload }));
if (resume.length > 0) {
  await agent.runAgent({ resume }, printed);
  await agent.runAgent({ resume }, printed);
}
console.log(JSON.stringify({ type: "MESSAGES", messages: agent.messages }));
