"""A person sorts conversations into folders, in a browser."""

import pytest
from playwright.async_api import expect

from tests.acceptance.console.browser import Window
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.acceptance.console.test_walk import violations
from tests.integration.console.console_world import write

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]


async def act(window: Window, menu: str, item: str) -> None:
    """Choose an item of a menu."""
    await window.page.get_by_role("button", name=menu).click()
    await window.page.get_by_role("menuitem", name=item, exact=True).click()


async def answer(window: Window, label: str, value: str, action: str) -> None:
    """Fill in the dialog that is open."""
    dialog = window.page.get_by_role("dialog")
    field = dialog.get_by_label(label)
    if await field.evaluate("field => field.tagName") == "SELECT":
        await field.select_option(label=value)
    else:
        await field.fill(value)
    await dialog.get_by_role("button", name=action).click()
    await dialog.wait_for(state="detached")


@pytest.mark.slow
async def test_conversations_are_sorted_into_folders(stage: Stage, window: OpenWindow) -> None:
    await write(stage.client, "the roof leaks", "31")
    async with window("person-31") as ann:
        await ann.open("#/new")
        await ann.say("what grows here")
        await ann.until_row("You said: what grows here")
        entries = ann.page.locator(".entry")
        await expect(entries).to_have_count(2)

        await ann.page.get_by_role("button", name="New folder").click()
        await answer(ann, "Name", "Garden", "Make")
        await act(ann, "Actions of this conversation", "Move to folder")
        await answer(ann, "Folder", "Garden", "Move")
        garden = ann.page.get_by_role("button", name="Garden 1", exact=True)
        await garden.click()
        await expect(entries).to_have_count(1)
        assert await violations(ann) == []

        await act(ann, "Actions of the folder", "Rename folder")
        await answer(ann, "Name", "Plants", "Save")
        await act(ann, "Actions of the folder Plants", "Change colour")
        await answer(ann, "Colour", "Green", "Save")
        plants = ann.page.get_by_role("button", name="Plants 1", exact=True)
        await expect(plants.locator(".dot")).to_have_css("background-color", "rgb(22, 163, 74)")
        await ann.page.emulate_media(color_scheme="dark")
        assert await violations(ann) == []

        await act(ann, "Actions of the folder Plants", "Remove folder")
        await ann.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        await plants.wait_for(state="detached")
        await expect(entries).to_have_count(2)
        assert ann.errors == []
