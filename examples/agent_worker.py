"""A turn worker whose answers come from an agent of Pydantic AI, with a tool that needs an approval."""

import asyncio
import signal
from contextlib import suppress
from os import environ

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from chatlane_client import TurnWorker, open_connection
from chatlane_client.frameworks.pydantic_ai import turn_handler

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
PROVIDER = OpenAIProvider(
    base_url=environ.get("LLM_BASE_URL", "http://127.0.0.1:11434/v1"),
    api_key=environ.get("LLM_API_KEY", "none"),
)

agent = Agent(
    OpenAIChatModel(environ.get("LLM_MODEL", "llama3.2"), provider=PROVIDER),
    instructions="You keep the calendar of a small office. Answer briefly.",
)
booked: list[str] = []


@agent.tool_plain
def free_rooms(day: str) -> list[str]:
    """Return the rooms that are free on a day."""
    return [room for room in ("north", "south") if f"{room} on {day}" not in booked]


@agent.tool_plain(requires_approval=True)
def book(room: str, day: str) -> str:
    """Book a room for a day; the person has to allow it."""
    booked.append(f"{room} on {day}")
    return "booked"


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, then finish the running ones."""
    async with agent, open_connection(NATS_URL, name="agent worker") as client:
        worker = TurnWorker(client, AGENT, turn_handler(agent), slots=8, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
