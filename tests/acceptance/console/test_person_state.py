"""What a person types and reads in one browser is there in another one."""

from collections.abc import Callable

import pytest
from playwright.async_api import Response, expect

from tests.acceptance.console.browser import Window
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.acceptance.console.test_walk import violations
from tests.integration.console.console_world import write

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]


def kept(response: Response) -> bool:
    """Return whether a response says that a draft was kept."""
    return response.url.endswith("/draft") and response.ok


def refused(response: Response) -> bool:
    """Return whether a response says that the draft has other words."""
    return response.url.endswith("/draft") and response.status == 412


async def type_in(window: Window, text: str, until: Callable[[Response], bool] = kept) -> None:
    """Type a draft, and wait for the answer of the server."""
    async with window.page.expect_response(until):
        await window.page.fill("#message", text)


@pytest.mark.slow
async def test_a_draft_goes_from_browser_to_browser_and_no_words_are_lost(
    stage: Stage, window: OpenWindow
) -> None:
    await write(stage.client, "hello", "41")
    async with window("person-41") as one, window("person-41") as two:
        await one.open()
        await one.page.locator(".entry").click()
        await one.until_row("You said: hello")
        await type_in(one, "the roof")
        place = one.page.url.partition("/#")[2]
        await two.open(f"#{place}")
        field = two.page.locator("#message")
        await expect(field).to_have_value("the roof")

        await type_in(two, "the garden")
        await type_in(one, "the roof leaks", refused)
        warning = one.page.get_by_role("alert")
        await expect(warning).to_contain_text("the garden")
        assert await violations(one) == []
        async with one.page.expect_response(kept):
            await warning.get_by_role("button", name="Keep this").click()
        await warning.wait_for(state="detached")
        await two.page.evaluate("dispatchEvent(new Event('focus'))")
        await expect(field).to_have_value("the roof leaks")

        async with one.page.expect_response(kept):
            await one.page.press("#message", "Enter")
        await one.until_row("You said: the roof leaks")
        await expect(one.page.locator("#message")).to_have_value("")
        await two.page.evaluate("dispatchEvent(new Event('focus'))")
        await expect(field).to_have_value("")
        await two.until_row("You said: the roof leaks")
        assert (one.errors, two.errors) == ([], [])


@pytest.mark.slow
async def test_an_answer_that_nobody_has_read_is_marked_in_the_list(
    stage: Stage, window: OpenWindow
) -> None:
    await write(stage.client, "hello", "42")
    async with window("person-42") as reader:
        await reader.open()
        await reader.page.locator(".entry").click()
        async with reader.page.expect_response(lambda it: it.url.endswith("/read-mark")):
            await reader.until_row("You said: hello")
        await reader.page.evaluate("location.hash = '#/list'")
        await reader.page.locator(".talk-head").wait_for(state="detached")

        await write(stage.client, "are you there", "42")
        badge = reader.page.locator(".entry .badge", has_text="1 new")
        await badge.wait_for()
        assert await violations(reader) == []
        await reader.page.locator(".entry").click()
        await reader.until_row("You said: are you there")
        await badge.wait_for(state="detached")
        assert reader.errors == []
