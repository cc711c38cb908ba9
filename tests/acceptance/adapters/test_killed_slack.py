"""SIGKILL of the adapter, the router, NATS and Postgres while 50 channels of Slack talk."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from chatlane_devkit.platforms.slack.workspaces import Channel
from tests.support.eventually import eventually
from tests.support.platforms.slack_app import SlackApp, open_slack_app
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
async def app(
    nats_server: RunningServer, own_postgres: RunningPostgres, tmp_path: Path
) -> AsyncIterator[SlackApp]:
    async with open_database(own_postgres.url) as name:
        dsn = own_postgres.dsn(name)
        await migrated(dsn)
        async with open_slack_app(tmp_path, nats_server.url, dsn, uses_socket=False) as opened:
            yield opened


def numbers_in(channel: Channel) -> list[int]:
    """Return what the answers of a channel repeat, in the order in which they were posted."""
    texts = "\n".join(message.shown for message in channel.messages.values() if message.bot_id)
    return [int(number) for number in NUMBER.findall(texts)]


async def kill_process(process: Process) -> None:
    await process.kill()
    process.start()


async def kill_server(server: RunningServer) -> None:
    await server.kill()
    await server.start()


async def test_500_messages_survive_every_kill_once_and_in_order(
    app: SlackApp, nats_server: RunningServer, own_postgres: RunningPostgres
) -> None:
    channels = [app.new_channel("im" if at % 2 else "channel") for at in range(CHANNELS)]
    roots: dict[str, str] = {}
    router = app.service.processes["router 1"]
    kills: dict[int, Callable[[], Awaitable[None]]] = {
        1: lambda: kill_process(app.adapter),
        3: lambda: kill_process(router),
        5: lambda: kill_server(nats_server),
        6: lambda: kill_process(app.adapter),
        7: lambda: kill_server(own_postgres),
        8: lambda: kill_process(app.adapter),
    }
    for number in range(ROUNDS):
        answered = sum(len(channel.posted) for channel in channels)
        for at, channel in enumerate(channels):
            # Some answers of the process that is killed get lost on their way.
            channel.lost_answers += number in kills and at % 10 == 0
            words = f"message-{number}"
            if channel.kind == "channel" and number == 0:
                words = app.mention(words)
            message = app.slack.write(
                app.workspace, channel, words, thread_ts=roots.get(channel.id)
            )
            if channel.kind == "channel":
                roots.setdefault(channel.id, message.ts)
        await eventually(
            lambda answered=answered: sum(len(it.posted) for it in channels) > answered,  # type: ignore[misc]
            PATIENCE,
        )
        if number in kills:
            await kills[number]()

    def has_all() -> bool:
        missing = [it.id for it in channels if set(numbers_in(it)) != set(range(ROUNDS))]
        assert not missing, missing
        return True

    await eventually(has_all, PATIENCE)
    for channel in channels:
        shown = [message.shown for message in channel.messages.values()]
        assert numbers_in(channel) == list(range(ROUNDS)), (channel.id, shown, channel.posted)
        assert len(channel.posted) == len(set(channel.posted)), "nothing is shown twice"
