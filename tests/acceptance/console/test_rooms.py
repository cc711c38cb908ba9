"""A member of a room reads its conversation in a browser, and writes to it nowhere but in the room."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, expect

from chatlane_client import AdapterClient, open_connection
from chatlane_schemas import Chat, Sender
from tests.acceptance.console.browser import Window, open_context
from tests.acceptance.console.scripted_agent import ScriptedAgent
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import working
from tests.integration.console.console_world import API, PROXY, ConsoleWorld, open_console
from tests.support.eventually import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]

ROOM = "!room:example.org"
CONFIG = """
[platforms.matrix]
group_sessions_per_user = false
[platforms.matrix.accounts.bot]
rooms = "members"
"""


@pytest.fixture
async def client(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Client]:
    """A connection to a router that shows rooms of Matrix to their members."""
    async with (
        real_router(tmp_path, nats_url, database_url, more_config=CONFIG),
        open_connection(nats_url, name="test") as connection,
        working(connection, ScriptedAgent()),
    ):
        yield connection


@pytest.fixture
async def console(client: Client, nats_url: str) -> AsyncIterator[ConsoleWorld]:
    assert client.is_connected
    async with open_console(nats_url, **PROXY, platform="matrix", account="bot") as opened:
        yield opened


@pytest.fixture
def adapter(client: Client) -> AdapterClient:
    return AdapterClient(client, platform="matrix", account="bot")


async def say(adapter: AdapterClient, text: str) -> None:
    """Let Ann write in the room."""
    chat = Chat(id=ROOM, kind="room", name="kitchen")
    await adapter.publish(
        adapter.event(
            message_id=uuid4().hex, chat=chat, sender=Sender(id="ann", name="Ann"), text=text
        )
    )


async def report(adapter: AdapterClient, *members: str) -> None:
    now = datetime.now(UTC)
    await adapter.report_members(ROOM, members, now, now + timedelta(hours=1))


async def test_a_member_reads_the_room_and_cannot_write_to_it(
    console: ConsoleWorld, adapter: AdapterClient, browser: Browser
) -> None:
    await say(adapter, "hello from the room")
    await report(adapter, "ann", "ben")
    async with open_context(browser, "ben") as context:
        ben = Window(await context.new_page(), console.url)
        asked: list[str] = []
        ben.page.on("request", lambda request: asked.append(request.url))
        await ben.open()
        entry = ben.page.locator(".entry").first
        await expect(entry.locator(".badge", has_text="room")).to_be_visible()
        await entry.click()
        await ben.until_row("You said: hello from the room")
        await expect(ben.page.locator(".row .name", has_text="Ann")).to_be_visible()
        await expect(ben.page.get_by_text("Write there to take part")).to_be_visible()
        assert await ben.page.locator("textarea").count() == 0
        assert await ben.page.get_by_role("button", name="Branch").count() == 0
        # A member would be refused: the page asks for what a member may see, and nothing else.
        assert [url for url in asked if url.endswith(("/events", "/question"))] == []

        await say(adapter, "and again")
        await ben.until_row("You said: and again")
        await report(adapter, "ann")
        await expect(ben.page.get_by_text("There is no such conversation.")).to_be_visible(
            timeout=20_000
        )
        assert await ben.page.locator(".row").count() == 0


async def test_routes_that_change_or_follow_do_not_know_the_session(
    console: ConsoleWorld, adapter: AdapterClient
) -> None:
    await say(adapter, "hello from the room")
    await report(adapter, "ann", "ben")
    async with console.person("ben") as ben, console.person("eve") as eve:
        found: list[dict[str, str]] = []

        async def is_listed() -> bool:
            found[:] = (await ben.get(f"{API}/sessions")).json()["sessions"]
            return len(found) == 1

        await eventually(is_listed)
        [session] = found
        path = f"{API}/sessions/{session['id']}"

        assert session["access"] == "member"
        assert (await ben.get(path)).status_code == 200
        assert (await ben.get(f"{path}/rows")).status_code == 200
        for closed in ("events", "question", "deliveries", "removed"):
            assert (await ben.get(f"{path}/{closed}")).status_code == 404, closed
        for change in ("messages", "stop", "fork", "end"):
            body = {"text": "hello"} if change == "messages" else {}
            answer = await ben.post(f"{path}/{change}", json=body)
            assert answer.status_code == 404, change
        for hidden in (path, f"{path}/rows"):
            assert (await eve.get(hidden)).status_code == 404
        assert (await eve.get(f"{API}/sessions")).json()["sessions"] == []
