"""A person attaches files in a browser: by the button, from the clipboard, by dropping them."""

import base64
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.console.browser import Window
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.acceptance.console.test_walk import violations

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]

# A red point.
PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
# Lets an event bring a file, as the clipboard or the desktop does.
BRING: Final = """
([selector, kind, name, type, text]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([text], name, { type }));
  const given = { bubbles: true, cancelable: true };
  const event = kind === "paste"
    ? new ClipboardEvent(kind, { ...given, clipboardData: carried })
    : new DragEvent(kind, { ...given, dataTransfer: carried });
  document.querySelector(selector).dispatchEvent(event);
  return event.defaultPrevented;
}
"""


async def bring(page: Page, selector: str, kind: str, name: str) -> bool:
    """Let an event bring a file; return whether the page took it."""
    taken = await page.evaluate(BRING, [selector, kind, name, "text/plain", f"words of {name}"])
    return bool(taken)


async def until_attached(window: Window, *names: str) -> None:
    """Wait until the composer shows these files, and all are on the server."""
    chips = window.page.locator(".chips .file span")
    await expect(chips).to_have_text([*names])
    await expect(window.page.locator(".chips progress")).to_have_count(0)


@pytest.mark.slow
async def test_files_are_attached_removed_sent_and_read(
    stage: Stage, window: OpenWindow, tmp_path: Path
) -> None:
    picture, large = tmp_path / "red point.png", tmp_path / "large.bin"
    picture.write_bytes(PNG)
    with large.open("wb") as file:
        file.truncate(60_000_000)
    async with window("ann") as ann:
        page = ann.page
        await ann.open("#/new")
        await page.fill("#message", "what is this?")
        await page.locator(".attach input").set_input_files([large])
        await page.get_by_text("large.bin is too large: at most 52 MB.").wait_for()
        await expect(page.locator("#message")).to_have_value("what is this?")

        await page.locator(".attach input").set_input_files([picture])
        assert await bring(page, "#message", "paste", "pasted.txt")
        assert await bring(page, ".log", "drop", "dropped.txt")
        names = [
            f"red point.png · {len(PNG)} bytes",
            "pasted.txt · 19 bytes",
            "dropped.txt · 20 bytes",
        ]
        await until_attached(ann, *names)
        assert await violations(ann) == []
        # A window that is loaded again still has them.
        await page.reload()
        await until_attached(ann, *names)
        await page.get_by_role("button", name="Remove pasted.txt").click()
        await until_attached(ann, names[0], names[2])

        await ann.say("what is this?")
        await ann.until_row("You said: what is this?")
        row = page.locator(".row.person[id]")
        await expect(row.locator(".file")).to_have_text([names[0], names[2]])
        await expect(page.locator(".chips")).to_have_count(0)
        shown = row.locator("img")
        await expect(shown).to_have_count(1)
        assert await shown.evaluate("it => it.decode().then(() => it.naturalWidth)") == 1
        link = row.get_by_role("link", name="dropped.txt")
        # A download of Chromium has not the headers of the tests' proxy, so the page reads the file.
        assert await link.get_attribute("download") == "dropped.txt"
        read = "it => fetch(it.href).then(answer => answer.text())"
        assert await link.evaluate(read) == "words of dropped.txt"
        assert await violations(ann) == []

        # A message may have files and no words.
        await page.locator(".attach input").set_input_files([picture])
        await until_attached(ann, names[0])
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".row.person[id]")).to_have_count(2)
        assert ann.errors == []
    assert stage.agent.answered["what is this?"] == 1
