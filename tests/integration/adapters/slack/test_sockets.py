"""The adapter of Slack behind a socket, which ends now and then, and in two processes."""

from collections.abc import AsyncIterator

import pytest

from tests.support.eventually import eventually
from tests.support.platforms.slack_app import (
    SlackApp,
    adapter_process,
    open_slack_app,
    over_socket,
)
from tests.support.servers.backends import RunningPostgres, RunningServer, delete_streams
from tests.support.servers.databases import open_database

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
async def app(
    shared_nats: RunningServer,
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[SlackApp]:
    """Run everything once for the tests of this module."""
    await delete_streams(shared_nats.url)
    async with open_database(postgres_server.url, template_database) as name:
        directory, dsn = tmp_path_factory.mktemp("slack"), postgres_server.dsn(name)
        async with open_slack_app(directory, shared_nats.url, dsn, uses_socket=True) as opened:
            yield opened
        assert opened.adapter.exit_code == 0


async def test_a_message_is_answered(app: SlackApp) -> None:
    channel = app.new_channel()
    asked = app.slack.write(app.workspace, channel, app.mention("hello"))
    await eventually(lambda: channel.answers_shown(asked.ts) == ["heard hello"])


async def test_commands_and_buttons_come_through_the_socket(app: SlackApp) -> None:
    channel = app.new_channel("im")
    app.slack.command(app.workspace, channel, "/joke", "choose")
    await eventually(lambda: channel.answers_shown() == ["Which?"])
    card = list(channel.messages.values())[-1]
    app.slack.press(app.workspace, channel, card, "Red")
    await eventually(lambda: len(channel.answers_shown()) == 2)
    assert app.slack.deliveries.refused == []


async def test_without_a_store_files_stay_on_slack(app: SlackApp) -> None:
    channel = app.new_channel("im")
    file = app.slack.upload("notes.txt", "text/plain", b"hello")
    app.slack.write(app.workspace, channel, "look", files=[file])
    await eventually(lambda: channel.answers_shown() == ["heard look"])
    assert app.agent.files == [file["url_private_download"]]


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_lost_socket_is_opened_again(app: SlackApp, *, is_announced: bool) -> None:
    channel, deliveries = app.new_channel("im"), app.slack.deliveries
    await (deliveries.refresh_sockets() if is_announced else deliveries.cut_sockets())
    app.slack.write(app.workspace, channel, "hello")
    await eventually(lambda: channel.answers_shown() == ["heard hello"])
    assert deliveries.sockets == 1


@pytest.mark.slow
async def test_another_process_takes_over(app: SlackApp) -> None:
    channel = app.new_channel("im")
    opened = len(app.adapter.events("socket_opened"))
    other = adapter_process("second-adapter", app.service, app.slack, over_socket())
    other.start()
    try:
        await eventually(lambda: "delivery_standby" in other.log_path.read_text("utf-8"))
        assert app.slack.deliveries.sockets == 1
        await app.adapter.kill()
        app.slack.write(app.workspace, channel, "hello")
        await eventually(lambda: channel.answers_shown() == ["heard hello"])
    finally:
        app.adapter.start()
        await app.adapter.until_logged("adapter_started", 2)
        await other.stop()
        await app.adapter.until_logged("socket_opened", opened + 1)
