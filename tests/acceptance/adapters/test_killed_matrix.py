"""500 messages in 50 rooms of Matrix while adapter, router, NATS and Postgres are killed.

Plain calls of the client-server API read what the rooms hold: nothing is lost, out of order, or twice.
"""

import asyncio
import re
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from chatlane_client import Turn
from chatlane_devkit.platforms.matrix.homeserver import open_homeserver
from chatlane_devkit.platforms.matrix.person import Person, open_person
from tests.support.eventually import eventually
from tests.support.platforms.adapter_stage import open_adapter_stage
from tests.support.servers.backends import RunningPostgres, RunningServer

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

ROOMS: Final = 50
MESSAGES: Final = 10
# More rooms at once get equal ids: an id is a hash of what opens the room, and of the time.
OPENED_AT_ONCE: Final = 4
WRITERS: Final = 8
PATIENCE: Final = timedelta(seconds=180)


async def answer(turn: Turn) -> str:
    return "\n".join(f"heard {message.text}" for message in turn.messages)


@dataclass
class Crowd:
    """A person who writes in many rooms."""

    person: Person
    bot: str
    rooms: list[str] = field(default_factory=list)
    written: int = 0

    async def open_rooms(self) -> None:
        """Open the rooms, and wait for the bot to join."""
        turns = asyncio.Semaphore(OPENED_AT_ONCE)

        async def open_room() -> str:
            async with turns:
                return await self.person.open_room(self.bot, is_direct=True)

        self.rooms = await asyncio.gather(*(open_room() for _ in range(ROOMS)))
        for room in self.rooms:
            await eventually(partial(self._has_joined, room), PATIENCE)

    async def _has_joined(self, room: str) -> bool:
        return self.bot in await self.person.members(room)

    async def write(self) -> None:
        """Write all messages, those of a room one after the other."""
        turns = asyncio.Semaphore(WRITERS)

        async def write(room: str) -> None:
            for number in range(MESSAGES):
                async with turns:
                    await self.person.say(room, f"message {number}")
                self.written += 1

        await asyncio.gather(*map(write, self.rooms))

    async def answered(self, room: str) -> list[int]:
        """Return which messages of a room were answered, in the order of the answers."""
        said = "\n".join(await self.person.said(room, self.bot))
        return [int(number) for number in re.findall(r"heard message (\d+)", said)]


async def test_matrix_rooms_get_each_answer_once_and_in_order(
    nats_server: RunningServer, own_postgres: RunningPostgres, own_database_url: str, tmp_path: Path
) -> None:
    async with (
        open_homeserver(tmp_path / "homeserver") as homeserver,
        open_person(homeserver, "ann") as ann,
    ):
        bot = await homeserver.register("bot")
        variables = {"homeserver": homeserver.url, "access_token": bot.token}
        variables["directory"] = str(tmp_path)
        async with open_adapter_stage(
            tmp_path,
            nats_server.url,
            own_database_url,
            platform="matrix",
            variables=variables,
            answer=answer,
        ) as stage:
            crowd = Crowd(ann, bot.user_id)
            await crowd.open_rooms()
            writing = asyncio.create_task(crowd.write())
            await until_written(crowd, 100)
            await stage.adapter.kill()
            stage.adapter.start()
            await until_written(crowd, 200)
            await stage.router.kill()
            stage.router.start()
            await until_written(crowd, 300)
            await nats_server.kill()
            await nats_server.start()
            await until_written(crowd, 400)
            await own_postgres.kill()
            await own_postgres.start()
            await until_written(crowd, ROOMS * MESSAGES)
            await writing
            # Answers are still on their way.
            await stage.adapter.kill()
            stage.adapter.start()
            for room in crowd.rooms:
                await eventually(partial(is_answered, crowd, room), PATIENCE)


async def until_written(crowd: Crowd, count: int) -> None:
    await eventually(lambda: crowd.written >= count, PATIENCE)


async def is_answered(crowd: Crowd, room: str) -> bool:
    """Return whether each message of a room was answered; fail if one was answered twice."""
    answered = await crowd.answered(room)
    if answered != list(range(len(answered))):
        pytest.fail(f"not once and in order: {answered}")
    return len(answered) == MESSAGES
