"""SIGKILL of the adapter, the router, NATS and Postgres while 50 channels of Slack talk."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chatlane_devkit.platforms.slack.workspaces import Channel
from tests.acceptance.adapters.kills import CHATS, PATIENCE, ROUNDS, kills_by_round, numbers_in
from tests.support.eventually import eventually
from tests.support.platforms.slack_app import SlackApp, open_slack_app
from tests.support.servers.backends import RunningPostgres, RunningServer

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]


@pytest.fixture
async def app(
    nats_server: RunningServer, own_database_url: str, tmp_path: Path
) -> AsyncIterator[SlackApp]:
    async with open_slack_app(
        tmp_path, nats_server.url, own_database_url, uses_socket=False
    ) as opened:
        yield opened


def said_in(channel: Channel) -> list[str]:
    """Return the answers of a channel, in the order in which they were posted."""
    return [message.shown for message in channel.messages.values() if message.bot_id]


async def test_500_messages_survive_every_kill_once_and_in_order(
    app: SlackApp, nats_server: RunningServer, own_postgres: RunningPostgres
) -> None:
    channels = [app.new_channel("im" if at % 2 else "channel") for at in range(CHATS)]
    roots: dict[str, str] = {}
    router = app.service.processes["router 1"]
    kills = kills_by_round(app.adapter, router, nats_server, own_postgres)
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
        missing = [it.id for it in channels if set(numbers_in(said_in(it))) != set(range(ROUNDS))]
        assert not missing, missing
        return True

    await eventually(has_all, PATIENCE)
    for channel in channels:
        shown = [message.shown for message in channel.messages.values()]
        assert numbers_in(said_in(channel)) == list(range(ROUNDS)), (
            channel.id,
            shown,
            channel.posted,
        )
        assert len(channel.posted) == len(set(channel.posted)), "nothing is shown twice"
