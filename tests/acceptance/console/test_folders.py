"""A person sorts conversations into folders, labels them and protects them, in a browser."""

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


@pytest.mark.slow
async def test_labels_are_added_removed_and_filter_the_list(
    stage: Stage, window: OpenWindow
) -> None:
    await write(stage.client, "the roof leaks", "32")
    async with window("person-32") as ann, window("op", "operators") as operator:
        await ann.open("#/new")
        await ann.say("what grows here")
        await ann.until_row("You said: what grows here")
        conversation = ann.page.url.partition("#")[2]
        await act(ann, "Actions of this conversation", "Add a label")
        await answer(ann, "Label", "plants", "Add")
        labels = ann.page.locator(".talk-head .badge.label")
        await expect(labels).to_have_text(["Label plants\N{MULTIPLICATION SIGN}"])
        entries = ann.page.locator(".entry")
        await ann.page.get_by_label("Filter by label").select_option("plants")
        await expect(entries).to_have_count(1)
        await expect(entries).to_contain_text("plants")
        assert await violations(ann) == []

        # Another window has the labels of before, and overwrites nothing.
        second = Window(await ann.page.context.new_page(), ann.url)
        await second.page.route("**/events", lambda route: route.abort())
        await second.open(f"#{conversation}")
        await second.until_row("You said: what grows here")
        await expect(second.page.locator(".talk-head .badge.label")).to_have_count(1)
        await act(ann, "Actions of this conversation", "Add a label")
        await answer(ann, "Label", "garden", "Add")
        await expect(labels).to_have_count(2)
        await act(second, "Actions of this conversation", "Add a label")
        await answer(second, "Label", "roof", "Add")
        await second.page.get_by_role("alert").get_by_text("has changed meanwhile").wait_for()
        await expect(second.page.locator(".talk-head .badge.label")).to_have_count(2)

        await operator.open(conversation.replace("/session/", "#/story/"))
        await operator.page.get_by_label("Remove the label plants").click()
        await expect(operator.page.locator(".talk-head .badge.label")).to_have_count(1)
        await expect(labels).to_have_text(["Label garden\N{MULTIPLICATION SIGN}"])
        await expect(entries).to_have_count(0)
        await ann.page.get_by_text("Nothing has this label.").wait_for()
        await ann.page.get_by_label("Filter by label").select_option("Any label")
        await expect(entries).to_have_count(2)
        assert ann.errors == [] == operator.errors


@pytest.mark.slow
async def test_an_ended_conversation_is_made_read_only_and_opened_again(
    window: OpenWindow,
) -> None:
    async with window("ann") as ann:
        await ann.open("#/new")
        await ann.say("what grows here")
        await ann.until_row("You said: what grows here")
        menu = "Actions of this conversation"
        await ann.page.get_by_label(menu).click()
        # Only what has ended can be protected.
        assert await ann.page.get_by_role("menuitem", name="Make read only").count() == 0
        await ann.page.keyboard.press("Escape")
        await act(ann, menu, "End")
        await ann.page.locator(".talk-head .badge", has_text="ended").wait_for()
        await act(ann, menu, "Make read only")
        await ann.page.get_by_role("dialog").get_by_role("button", name="Make read only").click()
        await ann.page.locator(".talk-head .badge", has_text="read only").wait_for()
        await ann.page.get_by_placeholder("This conversation can only be read.").wait_for()
        assert await violations(ann) == []
        await ann.page.get_by_label(menu).click()
        assert await ann.page.get_by_role("menuitem", name="Open again").count() == 0
        await ann.page.get_by_role("menuitem", name="Allow writing").click()
        await ann.page.locator(".talk-head .badge", has_text="read only").wait_for(state="detached")
        await act(ann, menu, "Open again")
        await ann.page.locator(".talk-head .badge", has_text="ended").wait_for(state="detached")
        await ann.say("and now")
        await ann.until_row("You said: and now")
        assert ann.errors == []
