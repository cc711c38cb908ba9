"""Debian's Chromium, driven by Playwright, and the people who sit in front of it."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    async_playwright,
    expect,
)

from tests.support.eventually import eventually

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
# Pages of a busy machine are late, and only a test that fails waits for so long.
_PATIENCE_MS: Final = 45_000
WIDE: Final = (1280, 800)


def chromium() -> str:
    """Return where Chromium is; skip the test where there is none, and fail in CI."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        if "CI" in os.environ:
            pytest.fail("there is no Chromium; .ci/chromium installs it")
        pytest.skip("there is no Chromium: apt-get install chromium")
    return path


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """Run Chromium for the length of the block."""
    path = chromium()
    expect.set_options(timeout=_PATIENCE_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            # The sandbox needs rights that a container does not give.
            executable_path=path,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        try:
            yield browser
        finally:
            await browser.close()


class Window:
    """A window of one person, and what went wrong in it.

    Attributes:
        page: The page in it.
        url: Address of the console.
        errors: Errors of scripts, violations of the policy, and dialogs.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.url = url
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._hear)
        page.on("dialog", self._dismiss)

    def _hear(self, message: ConsoleMessage) -> None:
        # A lost network and a refused request are part of some tests, and are logged by Chromium.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    async def _dismiss(self, dialog: Dialog) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    async def open(self, place: str = "#/list") -> None:
        """Open a view of the console."""
        await self.page.goto(f"{self.url}/{place}")
        await self.page.wait_for_selector(".frame")

    async def say(self, text: str) -> None:
        """Write a message and press Enter."""
        await self.page.fill("#message", text)
        await self.page.press("#message", "Enter")

    async def until_row(self, text: str) -> str:
        """Wait until a stored row has a text, and return the row's id in the page."""
        rows = self.page.locator(".row[id]", has_text=text)
        await rows.first.wait_for()
        return await rows.first.get_attribute("id") or ""

    async def until_texts(self, *texts: str) -> None:
        """Wait until the stored rows say these texts and nothing else."""

        async def has_texts() -> bool:
            assert await self.texts() == list(texts)
            return True

        await eventually(has_texts)

    async def texts(self) -> list[str]:
        """Return what the stored rows say, in order."""
        return await self.page.locator(".row[id] .said").all_inner_texts()


@asynccontextmanager
async def open_context(
    browser: Browser,
    person_id: str,
    *groups: str,
    size: tuple[int, int] = WIDE,
) -> AsyncIterator[BrowserContext]:
    """Open a profile of a person, who comes through the trusted proxy."""
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        extra_http_headers={
            "x-forwarded-user": person_id,
            "x-forwarded-groups": ",".join(groups),
        },
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(_PATIENCE_MS)
    try:
        yield context
    finally:
        await context.close()
