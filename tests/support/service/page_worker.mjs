// A worker on the TypeScript client that calls a tool of the front end twice, and whose first attempt
// fails after that.
//
// Usage: node page_worker.mjs PACKAGE AGENT

import { pathToFileURL } from "node:url";

const [packagePath, agent] = process.argv.slice(2);
const { FrontEndTools, runWorker } = await import(pathToFileURL(`${packagePath}/dist/src/index.js`));

await runWorker({
  servers: process.env.NATS_URL,
  agent,
  async handler(turn) {
    const tools = new FrontEndTools(turn);
    const results = [];
    for (const name of [...tools.declared.keys(), ...tools.declared.keys()]) {
      results.push(await tools.call(name, { colour: "blue" }));
    }
    if (turn.attempt === 1) throw new Error("the first attempt fails");
    const context = (turn.frontEnd?.context ?? []).map((entry) => entry.value);
    return [...results, ...context].join(", ");
  },
});
