"""NATS dies while the network of a person is away: nothing is lost and nothing comes twice."""

import pytest

from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.acceptance.console.test_disturbed import open_chat
from tests.support.servers.backends import RunningServer

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]


@pytest.fixture
def nats_url(nats_server: RunningServer) -> str:
    """The server of this test alone."""
    return nats_server.url


async def test_a_message_that_was_written_without_network_and_nats_is_sent_once(
    stage: Stage, window: OpenWindow, nats_server: RunningServer
) -> None:
    async with window("person-7") as seven:
        await open_chat(stage, seven)
        await seven.say("wait for the server")
        await seven.page.locator(".row.live strong").wait_for()
        await seven.page.context.set_offline(True)
        await seven.page.get_by_text("reconnecting").wait_for()
        await nats_server.kill()
        stage.agent.go_on.set()
        await seven.say("written meanwhile")
        await seven.page.get_by_text("is sent when the connection is back").wait_for()
        # The console answers again before it has a server.
        await seven.page.context.set_offline(False)
        await nats_server.start()

        await seven.until_row("Done: wait for the server")
        await seven.until_row("You said: written meanwhile")
        assert stage.agent.answered["written meanwhile"] == 1
        assert len(await seven.texts()) == 6
