"""What operators do in a browser: look at the whole service, handle dead letters, ask why."""

import pytest
from playwright.async_api import Locator, expect

from chatlane_client import AdapterClient, SessionApi, TranscriptApi
from chatlane_schemas.codec import encode
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import AppendedRow
from chatlane_schemas.topology import subjects
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.acceptance.console.test_walk import violations
from tests.integration.client.routing import ACCOUNT, PLATFORM, said
from tests.integration.console.console_world import write

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]

PATIENCE_MS = 45_000


async def test_dead_letters_are_inspected_retried_and_dropped(
    stage: Stage, window: OpenWindow
) -> None:
    async with window("op", "operators") as operator:
        page = operator.page
        for chat in ("1", "2"):
            await stage.client.jetstream().publish(
                subjects.inbound(PLATFORM, ACCOUNT, subjects.chat_token(chat)),
                f"<img src=x onerror=alert({chat})>".encode(),
            )
        letters = page.locator("tr[id^=letter-]")
        await operator.open("#/dead")
        while await letters.count() < 2:
            await page.reload()
            await page.locator(".operate h1").wait_for()
            await letters.first.wait_for()
        await letters.first.get_by_role("button", name="Inspect").click()
        await page.locator("pre", has_text="onerror").wait_for()
        assert await violations(operator) == []

        first = await letters.first.get_attribute("id")
        await letters.first.get_by_role("button", name="Drop").click()
        await page.get_by_role("dialog").get_by_role("button", name="Drop").click()
        await page.locator(f"#{first}").wait_for(state="detached")
        assert await letters.count() == 1

        second = await letters.first.get_attribute("id")
        await page.get_by_role("button", name=f"Show not_json of {PLATFORM}/{ACCOUNT}").click()
        await page.get_by_role("button", name="Retry all shown by the filter").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("1 match, of 1 conversation.")
        assert await violations(operator) == []
        await dialog.get_by_role("button", name="Retry").click()
        await page.get_by_text("1 retried").wait_for()
        await page.locator(f"#{second}").wait_for(state="detached")
        # It is still no JSON, and comes again as another dead letter.
        while not await letters.count():
            await page.reload()
            await page.locator(".operate h1").wait_for()
            await expect(page.locator("tr[id^=letter-], .empty").first).to_be_visible(
                timeout=PATIENCE_MS
            )
        assert await letters.first.get_attribute("id") != second
        assert operator.errors == []


async def test_the_overview_says_what_is_not_well(stage: Stage, window: OpenWindow) -> None:
    await stage.client.jetstream().publish(
        subjects.inbound(PLATFORM, ACCOUNT, subjects.chat_token("1")), b"not json"
    )
    await write(stage.client, "hello", "7")
    async with window("op", "operators") as operator:
        page = operator.page

        def row(table: str, name: str) -> Locator:
            return page.get_by_role("region", name=table).get_by_role("row", name=name)

        await operator.open("#/operators")
        verdict = page.locator(".verdict")
        await expect(verdict).to_contain_text("New dead letters (publisher)")
        await expect(row("Dead letters by reason", "not_json")).to_contain_text("publisher")
        # No adapter takes the answer.
        account = row("Deliveries by account", f"{PLATFORM}/{ACCOUNT}")
        await expect(account.get_by_role("cell").first).to_have_text("1")
        await expect(verdict).to_contain_text("no adapter takes them")
        await write(stage.client, "wait for it", "8")
        running = row("Agents", "main").get_by_role("cell").nth(2)
        await expect(running).to_have_text("1")
        assert await violations(operator) == []
        await page.emulate_media(color_scheme="dark")
        await page.locator("summary", has_text="partitions").focus()
        await page.keyboard.press("Enter")
        await expect(row("Partitions", "inbound 0")).to_be_visible()
        assert await violations(operator) == []
        stage.agent.go_on.set()
        await expect(running).to_have_text("0")

        await page.get_by_role("link", name="Settings").click()
        await expect(row("Agents", "main")).to_contain_text("turns")
        await expect(row("Accounts", f"{PLATFORM}/{ACCOUNT}")).to_contain_text("mail/desk")
        assert await violations(operator) == []
        assert operator.errors == []


async def test_an_event_and_a_conversation_are_explained(stage: Stage, window: OpenWindow) -> None:
    await write(stage.client, "wait for it", "7")
    async with window("op", "operators") as operator:
        page = operator.page
        await operator.open("#/operators/explain")
        event = encode(said("hello", chat="7")).decode()
        await page.get_by_label("Event as JSON").fill(event)
        await page.get_by_role("button", name="Explain").click()
        await page.locator(".explained dd", has_text="routed").wait_for()
        assert await violations(operator) == []
        await page.get_by_role("link", name="The conversation that it would reach").click()
        outlook = page.locator(".outlook")
        await expect(outlook).to_contain_text("works on attempt 1", timeout=PATIENCE_MS)
        assert await violations(operator) == []
        stage.agent.go_on.set()
        await expect(outlook).to_contain_text("Nothing waits", timeout=PATIENCE_MS)
        assert operator.errors == []


async def test_an_operator_finds_jobs_and_archived_conversations_and_answers_a_question(
    stage: Stage, window: OpenWindow
) -> None:
    """The person of a conversation may be away, and its agent waits for an answer."""
    sessions = SessionApi(stage.client, principal="console")
    transcripts = TranscriptApi(stage.client, principal="console")
    job, old = [await sessions.create(origin=origin) for origin in ("cron", "console")]
    for session in (job, old):
        row = AppendedRow(role=Role.USER, content=f"opened by {session.origin}")
        await transcripts.append(session.id, [row])
    await sessions.archive(old.id)
    await write(stage.client, "hello", "7")
    async with window("op", "operators") as operator, window("person-7") as seven:
        page = operator.page
        await operator.open("#/operators/sessions")
        await page.get_by_role("link", name="opened by cron").wait_for()
        await page.get_by_label("State").select_option("Archived")
        await page.get_by_role("link", name="opened by console").wait_for()
        assert await page.get_by_role("link", name="opened by cron").count() == 0
        assert await violations(operator) == []
        await page.get_by_label("State").select_option("Not archived")

        await seven.open()
        await seven.page.locator(".entry").first.click()
        await seven.until_row("You said: hello")
        await seven.say("ask me")
        await seven.page.get_by_role("button", name="Friday").wait_for()
        await page.get_by_role("link", name="hello").click()
        await page.get_by_role("button", name="Friday").click()
        for its in (operator, seven):
            await its.until_row("You chose fri.")
            await its.page.locator(".question").wait_for(state="detached")
        assert operator.errors == [] == seven.errors


async def test_an_operator_takes_over_and_hands_back(stage: Stage, window: OpenWindow) -> None:
    chat = AdapterClient(stage.client, platform=PLATFORM, account=ACCOUNT)
    await write(stage.client, "hello", "7")
    async with window("op", "operators") as operator:
        page = operator.page
        await operator.open("#/operators/sessions")
        await page.locator("td a").first.click()
        await page.wait_for_url(lambda url: "#/story/" in url)
        before = page.url
        await operator.until_row("You said: hello")
        # An operator writes by taking over; the message field is that of the person.
        await page.get_by_role("button", name="Take over").wait_for()
        assert await page.locator("#message").count() == 0
        assert await page.get_by_role("button", name="Edit").count() == 0
        await page.get_by_role("button", name="Branch").last.click()
        await page.wait_for_url(lambda url: "#/story/" in url and url != before)
        await operator.until_row("You said: hello")
        await page.go_back()
        await page.wait_for_url(before)
        await page.get_by_role("button", name="Take over").click()
        await page.get_by_text("The agent waits until").wait_for()
        await chat.publish(said("is anybody there?", chat="7"))
        await expect(page.locator(".outlook")).to_contain_text(
            "A person of the team talks", timeout=PATIENCE_MS
        )
        assert await violations(operator) == []

        await page.get_by_label("Write to the chat as the team").fill("I am Eve of the team")
        await page.get_by_role("button", name="Send to the chat").click()
        await operator.until_row("I am Eve of the team")
        await expect(page.locator("#speak")).to_have_value("", timeout=PATIENCE_MS)
        assert (await operator.texts())[-2:] == ["is anybody there?", "I am Eve of the team"]
        await page.get_by_role("button", name="Hand back").click()
        await page.get_by_text("The agent waits until").wait_for(state="detached")
        await chat.publish(said("thank you", chat="7"))
        await operator.until_row("You said: thank you")
        assert stage.agent.answered["is anybody there?"] == 0
        await page.get_by_label("Actions of this conversation").click()
        await page.get_by_role("menuitem", name="Begin the chat anew").click()
        await page.get_by_role("dialog").get_by_role("button", name="Begin anew").click()
        await page.wait_for_url(lambda url: url != before)
        await expect(page.locator(".outlook")).to_contain_text("Nothing waits", timeout=PATIENCE_MS)
        assert operator.errors == []
