"""SIGKILL of the adapter, the router, NATS and Postgres while 50 channels of Discord talk."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chatlane_client import Answer, Turn
from chatlane_devkit.platforms.discord import DiscordServer, open_discord
from tests.acceptance.adapters.kills import CHATS, PATIENCE, ROUNDS, kills_by_round, numbers_in
from tests.support.eventually import eventually
from tests.support.platforms.adapter_stage import AdapterStage, open_adapter_stage
from tests.support.servers.backends import RunningPostgres, RunningServer

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]


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
    own_database_url: str,
    tmp_path: Path,
) -> AsyncIterator[AdapterStage]:
    async with open_adapter_stage(
        tmp_path,
        nats_server.url,
        own_database_url,
        platform="discord",
        variables={"token": discord.token, "api_url": discord.api_url},
        answer=repeated,
    ) as opened:
        yield opened


async def repeated(turn: Turn) -> Answer:
    return turn.text


async def test_500_messages_survive_every_kill_once_and_in_order(
    discord: DiscordServer,
    stage: AdapterStage,
    nats_server: RunningServer,
    own_postgres: RunningPostgres,
) -> None:
    world = discord.world
    guild = world.guild()
    people = [world.person(f"Person{at}") for at in range(CHATS)]
    channels = [
        world.dm(person) if at % 2 else world.channel(guild, f"channel-{at}")
        for at, person in enumerate(people)
    ]
    kills = kills_by_round(stage.adapter, stage.router, nats_server, own_postgres)
    await eventually(lambda: discord.gateway.is_connected)
    for number in range(ROUNDS):
        said = sum(len(it.said) for it in channels)
        # Some calls of the process that is killed take effect, and their answers are lost.
        for channel in channels[:: CHATS // 5] if number in kills else ():
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
        missing = {it.name for it in channels if set(numbers_in(it.said)) != set(range(ROUNDS))}
        assert not missing, missing
        return True

    await eventually(has_all, PATIENCE)
    for channel in channels:
        assert numbers_in(channel.said) == list(range(ROUNDS)), channel.name
        assert len(channel.texts) == len(set(channel.texts)), "nothing is shown twice"
    assert discord.gateway.identified == 1, "every process has resumed the session"
