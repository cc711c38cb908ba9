"""What a person does with conversations: name, find, branch, undo, archive, and sign out."""

import pytest
from playwright.async_api import expect

from tests.acceptance.console.browser import Window
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.acceptance.console.test_walk import violations
from tests.integration.console.console_world import write

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]


async def begin(window: Window, text: str) -> None:
    """Begin a conversation, and wait for its answer."""
    await window.open("#/new")
    await window.say(text)
    await window.until_row(f"You said: {text}")


async def test_a_named_conversation_is_found_by_title_and_words(window: OpenWindow) -> None:
    async with window("ann") as ann:
        await begin(ann, "the marmalade recipe")
        await ann.say("/title Breakfast")
        await ann.page.locator("h1", has_text="Breakfast").wait_for()
        await begin(ann, "something else")

        await ann.page.keyboard.press("Control+k")
        await ann.page.keyboard.type("break")
        await ann.page.locator(".entry", has_text="Breakfast").wait_for()
        await ann.page.fill("#search", "")
        hit = ann.page.locator(".hit", has_text="marmalade")
        # Words are searched for about a second after they were said.
        while not await hit.count():
            await ann.page.fill("#search", "")
            await ann.page.fill("#search", "marmal")
            await ann.page.get_by_text("Searching").wait_for(state="detached")
        # The messages of a conversation stand together.
        assert await ann.page.locator(".entries h3").all_inner_texts() == ["Breakfast"]
        assert await violations(ann) == []
        await hit.first.click()
        await ann.page.locator(".row.is-found").wait_for()
        assert ann.errors == []


async def test_turns_are_undone_repeated_and_branched(stage: Stage, window: OpenWindow) -> None:
    async with window("ann") as ann:
        await begin(ann, "first")
        await ann.say("second")
        answer = await ann.until_row("You said: second")
        await ann.say("/retry")
        await ann.page.locator(f"[id='{answer}']").wait_for(state="detached")
        await ann.until_row("You said: second")
        assert stage.agent.answered["second"] == 2
        assert (await ann.texts()).count("second") == 1
        await ann.say("/undo")
        await ann.until_texts("first", "You said: first")

        await ann.say("third")
        await ann.until_row("You said: third")
        original = ann.page.url
        third = ann.page.locator(".row.person[id]", has_text="third")
        await third.hover()
        await third.get_by_role("button", name="Edit").click()
        await ann.page.wait_for_url(lambda url: url != original)
        await expect(ann.page.locator("#message")).to_have_value("third", timeout=45_000)
        # The history of a browser outlasts the sign-out, so no address has words of a conversation.
        assert "third" not in ann.page.url
        await ann.until_texts("first", "You said: first")
        await ann.say("another third")
        await ann.until_row("You said: another third")
        await ann.page.goto(original)
        await ann.until_row("You said: third")
        assert ann.errors == []


async def test_messages_that_were_taken_out_come_back(window: OpenWindow) -> None:
    async with window("ann") as ann:
        await begin(ann, "first")
        await ann.say("second")
        await ann.until_row("You said: second")
        await ann.say("/undo")
        await ann.until_texts("first", "You said: first")
        await ann.page.get_by_label("Actions of this conversation").click()
        await ann.page.get_by_role("menuitem", name="Messages taken out").click()
        change = ann.page.get_by_role("region", name="Taken back")
        await expect(change.locator(".said")).to_have_text(["second", "You said: second"])
        assert await violations(ann) == []

        # Another window changes the conversation, which the list has not seen.
        other = Window(await ann.page.context.new_page(), ann.url)
        await other.open("#" + ann.page.url.partition("#")[2].partition("?")[0])
        await other.say("third")
        await other.until_row("You said: third")
        await change.get_by_role("button", name="Put back").click()
        await ann.page.get_by_role("alert").get_by_text("has changed meanwhile").wait_for()
        await change.get_by_role("button", name="Put back").click()
        await ann.page.get_by_text("2 messages put back.").wait_for()
        restored = ("first", "You said: first", "second", "You said: second")
        for its in (ann, other):
            await its.until_texts(*restored, "third", "You said: third")

        await ann.page.get_by_label("Actions of this conversation").click()
        await ann.page.get_by_role("menuitem", name="Messages taken out").click()
        await ann.page.get_by_text("Nothing was taken out.").wait_for()
        assert await violations(ann) == []
        assert ann.errors == [] == other.errors


async def test_an_ended_conversation_gives_nothing_back(window: OpenWindow) -> None:
    async with window("ann", size=(360, 640)) as ann:
        await begin(ann, "first")
        await ann.say("/undo")
        await ann.page.get_by_text("Nothing has been said yet.").wait_for()
        menu = ann.page.get_by_label("Actions of this conversation")
        await menu.click()
        await ann.page.get_by_role("menuitem", name="Messages taken out").click()
        put_back = ann.page.get_by_role("button", name="Put back")
        await expect(put_back).to_be_enabled()
        await menu.click()
        await ann.page.get_by_role("menuitem", name="End", exact=True).click()
        await expect(put_back).to_be_disabled()
        await ann.page.get_by_text("Open it again to put messages back.").wait_for()
        assert await violations(ann) == []
        assert await ann.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert ann.errors == []


async def test_a_draft_stays_and_an_archived_conversation_comes_back(window: OpenWindow) -> None:
    async with window("ann") as ann:
        await begin(ann, "to be archived")
        await ann.page.fill("#message", "not yet sent")
        await ann.page.reload()
        await expect(ann.page.locator("#message")).to_have_value("not yet sent", timeout=45_000)
        await ann.page.fill("#message", "/arch")
        await ann.page.keyboard.press("Tab")
        await ann.page.keyboard.press("Enter")
        await ann.page.get_by_text("The conversation is archived.").wait_for()
        await ann.page.locator(".entry").wait_for(state="detached")
        await ann.page.get_by_role("button", name="Archived").click()
        await ann.page.locator(".entry").click()
        await ann.page.get_by_label("Actions of this conversation").click()
        await ann.page.get_by_role("menuitem", name="Take out of the archive").click()
        await ann.page.get_by_text("The conversation is back in the list.").wait_for()
        assert await violations(ann) == []
        assert ann.errors == []


async def test_an_operator_sees_the_service_and_a_person_does_not(
    stage: Stage, window: OpenWindow
) -> None:
    await write(stage.client, "hello", "7")
    async with window("op", "operators") as operator, window("ann") as ann:
        await operator.open("#/operators")
        await operator.page.locator(".sparkline").first.wait_for()
        assert await violations(operator) == []
        await operator.page.get_by_role("link", name="Conversations").last.click()
        await operator.page.locator("td a").first.click()
        await operator.until_row("You said: hello")
        await operator.page.locator(".facts-side > .facts dd").first.wait_for()
        assert await violations(operator) == []
        await operator.open("#/dead")
        await operator.page.get_by_text("Nothing was set aside.").wait_for()
        assert await violations(operator) == []

        await ann.open("#/operators")
        await ann.page.get_by_text("Hello ann").wait_for()
        assert await ann.page.get_by_role("link", name="Operation").count() == 0
        assert operator.errors == [] == ann.errors
