"""Operators let a chat continue in another conversation, in a browser, and take it back."""

from uuid import UUID

import pytest
from playwright.async_api import expect

from chatlane_client import SessionApi
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.acceptance.console.test_walk import violations
from tests.integration.console.console_world import write
from tests.support.eventually import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]


async def opened(sessions: SessionApi, title: str, words: str) -> UUID:
    """Wait for the conversation that begins with some words, name it, and return its id."""
    found: list[UUID] = []

    async def is_listed() -> bool:
        page = await sessions.list_page(hide_empty=True)
        found[:] = [session.id for session in page.sessions if session.shown_title == words]
        return len(found) == 1

    await eventually(is_listed)
    return (await sessions.set_title(found[0], title)).id


async def test_a_chat_is_moved_with_a_preview_and_moved_back(
    stage: Stage, window: OpenWindow
) -> None:
    sessions = SessionApi(stage.client, principal="console")
    await write(stage.client, "old words", "7")
    old = await opened(sessions, "Old", "old words")
    await sessions.reset(old)
    await write(stage.client, "new words", "7")
    new = await opened(sessions, "New", "new words")
    async with window("op", "operators") as operator:
        page = operator.page
        await operator.open(f"#/story/{new}")
        await operator.until_row("You said: new words")
        moves = page.get_by_role("region", name="Move a chat")
        other = moves.get_by_label("Id or address of the other conversation")
        await other.fill(str(new))
        await moves.get_by_role("button", name="Show what will happen").click()
        await expect(moves.get_by_role("alert")).to_have_text("This is the same conversation.")
        await other.fill("00000000-0000-4000-8000-000000000009")
        await moves.get_by_role("button", name="Show what will happen").click()
        await expect(moves.get_by_role("alert")).to_contain_text("session")
        await other.fill(f"https://example.org/#/story/{old}")
        await moves.get_by_role("button", name="Show what will happen").click()
        preview = moves.get_by_role("group", name="What will happen")
        await expect(preview).to_contain_text("is answered in Old")
        await expect(preview).to_contain_text("Old has ended, and is opened again.")
        await expect(preview).to_contain_text("New ends, unless another chat leads to it.")
        assert await violations(operator) == []
        await moves.get_by_role("button", name="Move").click()
        await moves.get_by_text("The chat leads to Old now.").wait_for()
        await write(stage.client, "where am I", "7")
        second = await page.context.new_page()
        await second.goto(f"{operator.url}/#/story/{old}")
        await second.locator(".row[id]", has_text="You said: where am I").wait_for()
        await second.close()
        assert await violations(operator) == []

        await moves.get_by_role("button", name="Take back").click()
        await moves.get_by_text("The chat leads to").wait_for(state="detached")
        await write(stage.client, "back again", "7")
        await operator.until_row("You said: back again")
        assert operator.errors == []


async def test_a_move_of_what_has_moved_meanwhile_is_refused(
    stage: Stage, window: OpenWindow
) -> None:
    sessions = SessionApi(stage.client, principal="console")
    await write(stage.client, "words of seven", "7")
    seven = await opened(sessions, "Seven", "words of seven")
    spare = await sessions.create(origin="console")
    async with window("op", "operators") as operator:
        page = operator.page
        await operator.open(f"#/story/{spare.id}")
        moves = page.get_by_role("region", name="Move a chat")
        await moves.get_by_label("What to move").select_option("Another chat, to this conversation")
        await moves.get_by_label("Id or address of the other conversation").fill(str(seven))
        await moves.get_by_role("button", name="Show what will happen").click()
        await moves.get_by_role("group", name="What will happen").wait_for()
        await sessions.reset(seven)
        await moves.get_by_role("button", name="Move").click()
        await expect(moves.get_by_role("alert")).to_contain_text("leads to another session now")
        assert await violations(operator) == []
        assert operator.errors == []
