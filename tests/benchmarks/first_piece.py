"""Measures how long the first piece of an answer takes to the screen: `python -m tests.benchmarks.first_piece`.

A worker shows a piece; the time ends when the emulated Telegram, or Synapse for another person,
has the draft. Router and adapter are processes, the worker and the emulator are in this one.
"""

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

from chatlane_client import Turn
from chatlane_devkit.platforms.matrix.homeserver import open_homeserver
from chatlane_devkit.platforms.matrix.person import open_person
from chatlane_devkit.platforms.telegram import open_telegram_server
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import open_nats, open_postgres
from tests.benchmarks.report.figures import percentiles
from tests.support.platforms.adapter_stage import open_adapter_stage
from tests.support.servers.databases import migrated

TURNS: Final = 40
_PATIENCE_SECONDS: Final = 60
_LOOK_AGAIN_SECONDS: Final = 0.001

Ask = Callable[[], Awaitable[Callable[[], Awaitable[bool]]]]
"""Lets somebody write in another chat, and returns what tells whether a draft is on the screen."""


@dataclass
class Agent:
    """An agent that shows a piece, and answers when the piece was seen."""

    shown_at: float = 0.0
    has_shown: asyncio.Event = field(default_factory=asyncio.Event)
    was_seen: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, turn: Turn) -> str:
        """Show a piece and wait until it is seen."""
        self.shown_at = perf_counter()
        await turn.delta("Once upon ")
        self.has_shown.set()
        await self.was_seen.wait()
        return "Once upon a time"


async def measure(agent: Agent, ask: Ask, turns: int) -> list[float]:
    """Return how many milliseconds each first piece took; the first turn is not counted."""
    took_ms = []
    for _ in range(turns + 1):
        agent.has_shown.clear()
        agent.was_seen.clear()
        is_seen = await ask()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await agent.has_shown.wait()
            while not await is_seen():  # noqa: ASYNC110 - platforms give no event
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        took_ms.append((perf_counter() - agent.shown_at) * 1000)
        agent.was_seen.set()
    return took_ms[1:]


@asynccontextmanager
async def _telegram(directory: Path, nats: str, dsn: str, agent: Agent) -> AsyncIterator[Ask]:
    async with open_telegram_server() as telegram:
        variables = {"api_url": telegram.url, "token": telegram.token}
        stage = open_adapter_stage(
            directory, nats, dsn, platform="telegram", variables=variables, answer=agent.answer
        )

        async def ask() -> Callable[[], Awaitable[bool]]:
            chat = telegram.people.private_chat("Ann")
            telegram.people.write(chat.id, "hello")

            async def is_seen() -> bool:
                return bool(chat.drafts)

            return is_seen

        async with stage:
            yield ask


@asynccontextmanager
async def _matrix(directory: Path, nats: str, dsn: str, agent: Agent) -> AsyncIterator[Ask]:
    async with AsyncExitStack() as stack:
        homeserver = await stack.enter_async_context(open_homeserver(directory / "homeserver"))
        bot = await homeserver.register("bot")
        ann = await stack.enter_async_context(open_person(homeserver, "ann"))
        variables = {
            "homeserver": homeserver.url,
            "access_token": bot.token,
            "directory": str(directory),
        }
        stage = open_adapter_stage(
            directory, nats, dsn, platform="matrix", variables=variables, answer=agent.answer
        )
        await stack.enter_async_context(stage)

        async def ask() -> Callable[[], Awaitable[bool]]:
            room_id = await ann.open_room(bot.user_id, is_direct=True)
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while bot.user_id not in await ann.members(room_id):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            await ann.say(room_id, "hello")

            async def is_seen() -> bool:
                return bool(await ann.said(room_id, bot.user_id))

            return is_seen

        yield ask


async def main(arguments: list[str]) -> None:
    """Print a line for each platform."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    turns = parser.parse_args(arguments).turns
    for name, platform in {"telegram": _telegram, "matrix": _matrix}.items():
        with server_directory("bench-") as directory:
            async with (
                open_nats(directory / "nats") as nats,
                open_postgres(directory / "postgres") as postgres,
            ):
                await migrated(postgres.url)
                agent = Agent()
                async with platform(directory, nats.url, postgres.url, agent) as ask:
                    found = percentiles(await measure(agent, ask, turns))
        sys.stdout.write(f"{name:10} first piece on the screen, ms: {found}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
