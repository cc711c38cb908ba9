"""Operators find conversations of everybody in a browser: by filters, by words, and by person."""

from uuid import UUID

import pytest
from playwright.async_api import expect

from chatlane_client import SessionApi
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.acceptance.console.test_walk import violations
from tests.integration.console.console_world import write

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]


async def test_filters_stay_in_the_address_and_words_do_not(
    stage: Stage, window: OpenWindow
) -> None:
    sessions = SessionApi(stage.client, principal="console")
    await write(stage.client, "the marmalade recipe", "7")
    await write(stage.client, "something else", "8")
    async with window("op", "operators") as operator:
        page = operator.page
        rows = page.locator("tbody tr")
        await operator.open("#/operators/sessions")
        await expect(rows).to_have_count(2)
        recipe = rows.filter(has_text="marmalade")
        await expect(recipe).to_have_count(1)
        link = await recipe.get_by_role("link").get_attribute("href") or ""
        recipe_id = UUID(link.rpartition("/")[2])
        session = await sessions.set_title(recipe_id, "Breakfast")
        await sessions.label(session.id, ["kitchen"])

        await page.get_by_label("Search").fill("breakf")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("Breakfast")
        await page.get_by_label("Search").fill("")
        await expect(rows).to_have_count(2)
        await page.get_by_label("Label").fill("kitchen")
        await page.keyboard.press("Enter")
        await expect(rows).to_have_count(1)
        await page.get_by_label("Person", exact=True).fill("person-8")
        await page.keyboard.press("Enter")
        await page.get_by_text("Nothing matches.").wait_for()
        # The history of a browser outlasts the sign-out.
        for word in ("breakf", "kitchen", "person-8"):
            assert word not in page.url
        await page.get_by_label("Label").fill("")
        await page.keyboard.press("Enter")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("something else")
        assert await violations(operator) == []
        await page.get_by_role("button", name="Clear filters").click()
        await expect(rows).to_have_count(2)

        await page.get_by_label("Agent").select_option("desk")
        await page.get_by_text("Nothing matches.").wait_for()
        assert "agent=desk" in page.url
        await page.get_by_label("Agent").select_option("main")
        await page.get_by_label("State").select_option("Running")
        await page.get_by_text("Nothing matches.").wait_for()
        await write(stage.client, "wait for it", "7")
        await page.reload()
        await expect(page.get_by_label("State")).to_have_value("running")
        await expect(rows).to_have_count(1)
        await rows.get_by_role("link").click()
        await operator.until_row("You said: the marmalade recipe")
        await page.get_by_label("Back to the list").click()
        await expect(page.get_by_label("Agent")).to_have_value("main")
        stage.agent.go_on.set()
        await page.get_by_text("Nothing matches.").wait_for()
        assert operator.errors == []


@pytest.mark.slow
async def test_words_of_messages_lead_to_their_place_and_an_unknown_filter_is_refused(
    stage: Stage, window: OpenWindow
) -> None:
    await write(stage.client, "the marmalade recipe", "7")
    async with window("op", "operators", size=(360, 640)) as operator:
        page = operator.page
        await operator.open("#/operators/sessions")
        await page.locator("tbody tr").wait_for()
        hit = page.locator(".hit", has_text="marmalade")
        # Words are searched for about a second after they were said.
        while not await hit.count():
            await page.get_by_label("Search").fill("")
            async with page.expect_response(lambda response: "/search?" in response.url):
                await page.get_by_label("Search").fill("marmal")
        assert await violations(operator) == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await hit.first.click()
        await page.locator(".row.is-found").wait_for()
        assert "/story/" in page.url
        await page.get_by_label("Back to the list").click()
        # The words are there again, though no address has them.
        await expect(page.get_by_label("Search")).to_have_value("marmal")

        await operator.open("#/operators/sessions?platform=NO+PLATFORM")
        await page.get_by_role("alert").get_by_text("platform").wait_for()
        assert await violations(operator) == []
        await page.get_by_role("button", name="Clear filters").click()
        await page.locator("tbody tr").wait_for()
        assert operator.errors == []
