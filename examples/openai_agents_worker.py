"""A turn worker whose answers come from an agent of the OpenAI Agents SDK, with a tool that needs an approval."""

import asyncio
import signal
from contextlib import suppress
from os import environ

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, function_tool
from openai import AsyncOpenAI

from chatlane_client import TurnWorker, open_connection
from chatlane_client.frameworks.openai_agents import turn_handler

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
ENDPOINT = AsyncOpenAI(
    base_url=environ.get("LLM_BASE_URL", "http://127.0.0.1:11434/v1"),
    api_key=environ.get("LLM_API_KEY", "none"),
)

booked: list[str] = []


@function_tool
def free_rooms(day: str) -> list[str]:
    """Return the rooms that are free on a day."""
    return [room for room in ("north", "south") if f"{room} on {day}" not in booked]


@function_tool(needs_approval=True)
def book(room: str, day: str) -> str:
    """Book a room for a day; the person has to allow it."""
    booked.append(f"{room} on {day}")
    return "booked"


agent: Agent[None] = Agent(
    "Desk",
    instructions="You keep the calendar of a small office. Answer briefly.",
    model=OpenAIChatCompletionsModel(environ.get("LLM_MODEL", "llama3.2"), ENDPOINT),
    tools=[free_rooms, book],
)


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, then finish the running ones."""
    handler = turn_handler(agent, run_config=RunConfig(tracing_disabled=True))
    async with open_connection(NATS_URL, name="agent worker") as client:
        worker = TurnWorker(client, AGENT, handler, slots=8, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
