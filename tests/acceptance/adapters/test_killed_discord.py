"""SIGKILL of the adapter, the router, NATS and Postgres while 50 channels of Discord talk."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from chatlane_client import Answer, Turn
from chatlane_devkit.platforms.discord import Channel, DiscordServer, open_discord
from tests.support.eventually import eventually
from tests.support.platforms.adapter_stage import AdapterStage, open_adapter_stage
from tests.support.servers.backends import RunningPostgres, RunningServer
from tests.support.servers.databases import migrated, open_database
from tests.support.service.processes import Process

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

CHANNELS: Final = 50
ROUNDS: Final = 10
PATIENCE: Final = timedelta(seconds=120)
NUMBER: Final = re.compile(r"message-(\d+)")


@pytest.fixture
async def discord() -> AsyncIterator[DiscordServer]:
    async with open_discord() as server:
        # The gateway forgets often what it was told is stored.
        server.gateway.heartbeat_ms = 500
        yield server


@pytest.fixture
async def stage(
    discord: DiscordServer,
    nats_server: RunningServer,
    own_postgres: RunningPostgres,
    tmp_path: Path,
) -> AsyncIterator[AdapterStage]:
    async with open_database(own_postgres.url) as name:
        dsn = own_postgres.dsn(name)
        await migrated(dsn)
        async with open_adapter_stage(
            tmp_path,
            nats_server.url,
            dsn,
            platform="discord",
            variables={"token": discord.token, "api_url": discord.api_url},
            answer=repeated,
        ) as opened:
            yield opened


async def repeated(turn: Turn) -> Answer:
    return turn.text


def numbers_in(channel: Channel) -> list[int]:
    """Return what the answers of a channel repeat, in order."""
    return [int(number) for number in NUMBER.findall("\n".join(channel.said))]


async def kill_process(process: Process) -> None:
    await process.kill()
    process.start()


async def kill_server(server: RunningServer) -> None:
    await server.kill()
    await server.start()


async def test_500_messages_survive_every_kill_once_and_in_order(
    discord: DiscordServer,
    stage: AdapterStage,
    nats_server: RunningServer,
    own_postgres: RunningPostgres,
) -> None:
    world = discord.world
    guild = world.guild()
    people = [world.person(f"Person{at}") for at in range(CHANNELS)]
    channels = [
        world.dm(person) if at % 2 else world.channel(guild, f"channel-{at}")
        for at, person in enumerate(people)
    ]
    kills: dict[int, Callable[[], Awaitable[None]]] = {
        1: lambda: kill_process(stage.adapter),
        3: lambda: kill_process(stage.router),
        5: lambda: kill_server(nats_server),
        6: lambda: kill_process(stage.adapter),
        7: lambda: kill_server(own_postgres),
        8: lambda: kill_process(stage.adapter),
    }
    await eventually(lambda: discord.gateway.is_connected)
    for number in range(ROUNDS):
        said = sum(len(it.said) for it in channels)
        # Some calls of the process that is killed take effect, and their answers are lost.
        for channel in channels[:: CHANNELS // 5] if number in kills else ():
            channel.stops_after = len(channel.texts)
        for channel, person in zip(channels, people, strict=True):
            world.write(channel, person, f"message-{number}", to_bot=True)
        await eventually(
            lambda said=said: sum(len(it.said) for it in channels) > said,  # type: ignore[misc]
            PATIENCE,
        )
        if number == 4:
            discord.gateway.drop()
        if number in kills:
            await kills[number]()
        for channel in channels:
            channel.stops_after = None
            channel.answers.set()

    def has_all() -> bool:
        missing = {it.name for it in channels if set(numbers_in(it)) != set(range(ROUNDS))}
        assert not missing, missing
        return True

    await eventually(has_all, PATIENCE)
    for channel in channels:
        assert numbers_in(channel) == list(range(ROUNDS)), channel.name
        assert len(channel.texts) == len(set(channel.texts)), "nothing is shown twice"
    assert discord.gateway.identified == 1, "every process has resumed the session"
