import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { TurnMessage } from "../src/contract.js";
import { promptOf } from "../src/prompt.js";

interface Case {
  messages: TurnMessage[];
  prompt: string;
}

// The Python client is tested with the same cases.
const cases: Case[] = JSON.parse(
  readFileSync(new URL("../../tests/prompts.json", import.meta.url), "utf8"),
);

test("a model gets the same text as from the Python client", () => {
  assert.ok(cases.length > 40);
  for (const { messages, prompt } of cases) assert.equal(promptOf(messages), prompt);
});
