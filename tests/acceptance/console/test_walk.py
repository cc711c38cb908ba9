"""A person finds a conversation, reads it and goes on with it, in a browser."""

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]

from tests.acceptance.console.browser import Window
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.integration.console.console_world import write

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]


async def violations(window: Window) -> list[str]:
    """Return what axe finds on the page, in short."""
    found = (await Axe().run(window.page)).response["violations"]
    return [f"{it['id']}: {it['nodes'][0]['html'][:200]}" for it in found]


async def test_a_conversation_goes_on_in_the_browser(stage: Stage, window: OpenWindow) -> None:
    await write(stage.client, "hello from the chat", "7")
    async with window("person-7") as seven:
        await seven.open()
        await seven.page.locator(".entry").first.click()
        await seven.until_row("You said: hello from the chat")
        assert await violations(seven) == []

        await seven.say("wait for it")
        live = seven.page.locator(".row.live strong", has_text="good")
        await live.wait_for()
        await seven.page.emulate_media(color_scheme="dark")
        assert await violations(seven) == []
        stage.agent.go_on.set()
        await seven.until_row("Done: wait for it")
        await live.wait_for(state="detached")

        said = await seven.texts()
        assert said[::2] == ["hello from the chat", "wait for it"]
        assert seven.errors == []


async def test_a_conversation_begins_in_the_browser(stage: Stage, window: OpenWindow) -> None:
    async with window("person-8", size=(360, 640)) as eight:
        await eight.open("#/new")
        await eight.say("look for trains")
        await eight.until_row("There are three trains")
        await eight.page.locator(".row[id] summary", has_text="timetable").click()
        await eight.page.locator("pre", has_text="departures").wait_for()
        assert await violations(eight) == []
        # Nothing is cut off on a small screen.
        assert await eight.page.evaluate("document.documentElement.scrollWidth") <= 360

        await eight.page.get_by_label("Back to the list").click()
        await eight.page.locator(".entry").wait_for()
        assert await violations(eight) == []
        assert eight.errors == []
        assert stage.agent.answered["look for trains"] == 1


async def test_no_page_is_wider_than_its_window_from_360_pixels_to_4k(window: OpenWindow) -> None:
    for width, height in ((360, 640), (1280, 800), (3840, 2160)):
        async with window("op", "operators", size=(width, height)) as operator:
            for place in ("#/new", "#/operators", "#/operators/sessions", "#/dead"):
                await operator.open(place)
                await operator.page.locator("main").wait_for()
                shown = await operator.page.evaluate("document.documentElement.scrollWidth")
                assert shown <= width, (place, width)
