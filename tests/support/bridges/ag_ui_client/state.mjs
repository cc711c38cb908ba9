// Runs an agent with which it shares a state, and prints each event as a line of JSON; then another run
// says the same text with the state that the agent has left.
// Usage: node state.mjs URL TOKEN THREAD MESSAGE_ID TEXT
import { HttpAgent } from "@ag-ui/client";

const [url, token, threadId, id, content] = process.argv.slice(2);
const agent = new HttpAgent({
  url,
  threadId,
  headers: { Authorization: `Bearer ${token}` },
  initialMessages: [{ id, role: "user", content }],
  initialState: { count: 1 },
});
const printed = { onEvent: ({ event }) => console.log(JSON.stringify(event)) };
await agent.runAgent({}, printed);
console.log(JSON.stringify({ type: "STATE", state: agent.state }));
agent.addMessage({ id: `${id} again`, role: "user", content });
await agent.runAgent({}, printed);
console.log(JSON.stringify({ type: "STATE", state: agent.state }));
