// Runs an agent with a tool of the front end, and prints each event as a line of JSON. It runs the tool
// when the agent calls it, once the file is there, and begins another run with the result.
// Usage: node tools.mjs URL TOKEN THREAD MESSAGE_ID TEXT FILE
import { existsSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { HttpAgent } from "@ag-ui/client";

const [url, token, threadId, id, content, file] = process.argv.slice(2);
const agent = new HttpAgent({
  url,
  threadId,
  headers: { Authorization: `Bearer ${token}` },
  initialMessages: [{ id, role: "user", content }],
});
const printed = { onEvent: ({ event }) => console.log(JSON.stringify(event)) };
const parameters = { type: "object", properties: { colour: { type: "string" } } };
const given = {
  tools: [{ name: "set_colour", description: "Set the colour.", parameters }],
  context: [{ description: "Page", value: "Cart" }],
};
const openCall = () => {
  const done = new Set(agent.messages.filter((it) => it.role === "tool").map((it) => it.toolCallId));
  return agent.messages.flatMap((it) => it.toolCalls ?? []).find((call) => !done.has(call.id));
};
const deadline = Date.now() + 300_000;

await agent.runAgent(given, printed);
for (let call = openCall(); call; call = openCall()) {
  while (!existsSync(file)) {
    if (Date.now() > deadline) throw new Error(`${file} does not come`);
    await pause(50);
  }
  const { colour } = JSON.parse(call.function.arguments);
  agent.addMessage({ id: `result ${call.id}`, role: "tool", toolCallId: call.id, content: `It is ${colour}.` });
  await agent.runAgent(given, printed);
}
console.log(JSON.stringify({ type: "MESSAGES", messages: agent.messages }));
