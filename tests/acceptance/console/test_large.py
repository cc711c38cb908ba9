"""A long conversation and a long list stay usable."""

import asyncio
import re
from uuid import UUID

import pytest
from playwright.async_api import expect

from chatlane_client import SessionApi, TranscriptApi
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.transcripts import AppendedRow
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.integration.client.routing import ACCOUNT, PLATFORM

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]

ROWS = 20_000
ROWS_AT_ONCE = 500
SESSIONS = 500
SESSIONS_AT_ONCE = 20
SEVEN = Person(platform=PLATFORM, account=ACCOUNT, id="person-7")


def rows(start: int) -> list[AppendedRow]:
    """Return some rows of a conversation, from a number on."""
    return [
        AppendedRow(role=Role.USER if number % 2 == 0 else Role.ASSISTANT, content=f"row {number}.")
        for number in range(start, start + ROWS_AT_ONCE)
    ]


@pytest.mark.timeout(600)
async def test_twenty_thousand_rows_are_read_page_by_page(stage: Stage, window: OpenWindow) -> None:
    """R20.4: a conversation of ten rounds or more offers another one, with a summary."""
    sessions = SessionApi(stage.client, principal="console", acting_for=SEVEN)
    transcripts = TranscriptApi(stage.client, principal="console", acting_for=SEVEN)
    session = await sessions.create(origin="console")
    for start in range(0, ROWS, ROWS_AT_ONCE):
        await transcripts.append(session.id, rows(start))

    async with window("person-7") as seven:
        await seven.open(f"#/session/{session.id}")
        await seven.until_row(f"row {ROWS - 1}.")
        shown = seven.page.locator(".row[id]")
        for _ in range(5):
            before = await shown.count()
            top = await shown.first.locator(".said").inner_text()
            await seven.page.get_by_role("button", name="Older messages").click()
            await shown.nth(before).wait_for()
            # What was at the top is still in the window.
            assert await seven.page.get_by_text(top.strip(), exact=True).is_visible()
        await seven.say("and one more")
        await seven.until_row("You said: and one more")
        offered = seven.page.get_by_role("link", name="Begin another conversation")
        await offered.wait_for()
        await seven.page.get_by_role("button", name="Ask for a summary").click()
        await seven.until_row("You said: Summarise this conversation")
        await expect(offered).to_have_text("Begin another conversation with this summary")
        await offered.click()
        await seven.page.get_by_role("heading", name="New conversation").wait_for()
        summary = re.compile("^You said: Summarise this conversation")
        await expect(seven.page.locator("#message")).to_have_value(summary)
        assert seven.page.url.endswith("#/new")
        assert seven.errors == []


@pytest.mark.timeout(600)
async def test_a_list_grows_while_somebody_scrolls(stage: Stage, window: OpenWindow) -> None:
    sessions = SessionApi(stage.client, principal="console", acting_for=SEVEN)
    transcripts = TranscriptApi(stage.client, principal="console", acting_for=SEVEN)

    async def begin() -> None:
        session = await sessions.create(origin="console")
        # A conversation in which nothing was said is not listed.
        await transcripts.append(session.id, rows(0)[:1])

    for _ in range(0, SESSIONS, SESSIONS_AT_ONCE):
        await asyncio.gather(*(begin() for _ in range(SESSIONS_AT_ONCE)))
    async with window("person-7") as seven:
        await seven.open()
        entries = seven.page.locator(".entry")
        await entries.first.wait_for()
        for _ in range(6):
            before = await entries.count()
            await entries.last.scroll_into_view_if_needed()
            await entries.nth(before).wait_for()
        links = await entries.evaluate_all("all => all.map((it) => it.href)")
        assert len(links) == len(set(links))
        # At the end of the list, what was read stays when the window reads again.
        while await entries.count() < SESSIONS:
            before = await entries.count()
            await entries.last.scroll_into_view_if_needed()
            await entries.nth(before).wait_for()
        await sessions.set_title(UUID(links[0].rpartition("/")[2]), "Renamed")
        await seven.page.evaluate("dispatchEvent(new Event('online'))")
        await seven.page.locator(".entry", has_text="Renamed").wait_for()
        assert await entries.count() == SESSIONS
        assert seven.errors == []
