"""A service with a scripted agent, a console, and a browser in front of it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser

from chatlane_client import open_connection
from chatlane_client.media.store import MediaSettings
from tests.acceptance.console.browser import WIDE, Window, open_browser, open_context
from tests.acceptance.console.scripted_agent import ScriptedAgent
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import working
from tests.integration.console.console_world import PROXY, ConsoleWorld, open_console

ERASURE_CONFIG = f'[erasure]\nkey = "{"k" * 32}"\n'
OpenWindow = Callable[..., AbstractAsyncContextManager[Window]]


@dataclass
class Stage:
    """What a browser test acts with.

    Attributes:
        client: A connection to NATS, for chats.
        agent: The agent that answers.
        config: The configuration of the router, for commands.
    """

    client: Client
    agent: ScriptedAgent
    console: ConsoleWorld
    config: Path


@pytest.fixture
async def stage(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Stage]:
    """A router, an agent and a console on the servers that all tests share."""
    agent = ScriptedAgent()
    async with (
        real_router(tmp_path, nats_url, database_url, more_config=ERASURE_CONFIG),
        open_connection(nats_url, name="test") as client,
        working(client, agent),
        open_console(
            nats_url, **PROXY, media=MediaSettings(url=str(tmp_path / "media"))
        ) as console,
    ):
        yield Stage(client, agent, console, tmp_path / "chatlane.toml")


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A Chromium for all tests of a process."""
    async with open_browser() as running:
        yield running


@pytest.fixture
def window(browser: Browser, stage: Stage) -> OpenWindow:
    """Opens windows of people; each person has one profile."""

    @asynccontextmanager
    async def opened(
        person_id: str, *groups: str, size: tuple[int, int] = WIDE
    ) -> AsyncIterator[Window]:
        async with open_context(browser, person_id, *groups, size=size) as context:
            yield Window(await context.new_page(), stage.console.url)

    return opened
