"""A person exports the own conversations and lets them be erased; an operator does it for another."""

import asyncio
import json
import sys
from typing import Any

import pytest
from playwright.async_api import expect

from tests.acceptance.console.browser import Window
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.acceptance.console.test_actions import begin
from tests.acceptance.console.test_walk import violations

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]


async def exported(window: Window, name: str) -> list[dict[str, Any]]:
    """Return the records of the file behind a link."""
    link = window.page.get_by_role("link", name=name, exact=True)
    # A download of Chromium has not the headers of the tests' proxy, so the page reads the file.
    text = await link.evaluate("it => fetch(it.href).then(answer => answer.text())")
    return [json.loads(line) for line in text.splitlines()]


async def erase(window: Window, button: str) -> None:
    """Press the button, and confirm."""
    await window.page.get_by_role("button", name=button, exact=True).click()
    dialog = window.page.get_by_role("dialog")
    await dialog.get_by_role("textbox").fill("erase")
    await dialog.get_by_role("button", name="Erase", exact=True).click()
    receipt = window.page.get_by_role("region", name="Receipts")
    await expect(receipt).to_contain_text("It waits for the erasure job.")


async def run_erasure_job(stage: Stage) -> None:
    """Run the command that does what was requested."""
    command = ("-m", "chatlane", "people", "erase-requested", "--config", str(stage.config))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()


async def test_people_are_exported_and_erased_on_request(stage: Stage, window: OpenWindow) -> None:
    async with window("ann") as ann, window("ben") as ben, window("op", "operators") as operator:
        await begin(ann, "words of Ann")
        await begin(ben, "words of Ben")

        await ann.open("#/data")
        records = await exported(ann, "Export my conversations")
        kinds = [record["record"] for record in records]
        assert kinds == ["person", "session", "row", "row", "end"]
        said = [record["content"] for record in records if record["record"] == "row"]
        assert said == ["words of Ann", "You said: words of Ann"]
        assert records[-1]["records"] == len(records) - 1
        assert await violations(ann) == []
        await erase(ann, "Erase everything")
        # Another press asks for the same erasure.
        await erase(ann, "Erase everything")
        await expect(ann.page.locator(".receipt")).to_have_count(1)

        await operator.open("#/operators/people")
        await operator.page.get_by_label("Id", exact=True).fill("ben")
        records = await exported(operator, "Export")
        assert "You said: words of Ben" in [record.get("content") for record in records]
        assert await violations(operator) == []
        await erase(operator, "Erase")

        await run_erasure_job(stage)
        for browser in (ann, operator):
            receipt = browser.page.get_by_role("region", name="Receipts")
            await expect(receipt).to_contain_text("1 sessions")
            await expect(receipt).to_contain_text("2 messages")
            assert await violations(browser) == []
        for browser in (ann, ben):
            await browser.open("#/list")
            await browser.page.get_by_text("Choose a conversation, or begin one.").wait_for()
            await expect(browser.page.locator(".entry")).to_have_count(0)
            assert browser.errors == []
        # The person begins anew.
        await begin(ann, "hello again")
        await ann.page.get_by_label("Actions of this conversation").click()
        await ann.page.get_by_role("menuitem", name="Delete").click()
        await ann.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await ann.page.get_by_text("Your data has the receipt").wait_for()
        await ann.open("#/data")
        receipts = ann.page.locator(".receipt")
        await expect(receipts).to_have_count(2)
        await expect(receipts.first).to_contain_text("Conversation")
        await expect(receipts.first).to_contain_text("2 messages")
        assert ann.errors == []
        assert operator.errors == []
