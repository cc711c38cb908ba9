"""`make console-pictures`: draws the pictures of the console in the documentation."""

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Literal

from chatlane_client import AdapterClient, open_connection
from chatlane_schemas import Sender
from tests.acceptance.console.browser import Window, open_browser, open_context
from tests.acceptance.console.scripted_agent import ScriptedAgent
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import ACCOUNT, PLATFORM, said, working
from tests.integration.console.console_world import PROXY, open_console
from tests.support.servers.backends import Backend, open_test_nats, open_test_postgres
from tests.support.servers.databases import migrated, open_database

_PHONE: Final = (390, 780)
_DESK: Final = (1280, 800)
_TALKS: Final = (
    ("Summer in Norway", "look for trains from Bergen to Oslo on Friday"),
    ("Letter to the landlord", "Please draft a letter: the heating is *cold* since Monday."),
    ("Recipe", "What can I cook with leeks and potatoes?"),
)


async def draw(directory: Path) -> None:
    """Write the pictures into a directory."""
    agent = ScriptedAgent()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        nats = await enter(open_test_nats(Backend.EMBEDDED))
        postgres = await enter(open_test_postgres(Backend.EMBEDDED))
        dsn = postgres.dsn(await enter(open_database(postgres.dsn("postgres"))))
        await migrated(dsn)
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        await enter(real_router(Path(scratch), nats.url, dsn))
        client = await enter(open_connection(nats.url, name="pictures"))
        await enter(working(client, agent))
        console = await enter(open_console(nats.url, **PROXY))
        browser = await enter(open_browser())
        adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
        ann = {"sender": Sender(id="ann", name="Ann")}
        await adapter.publish(said("Is the museum open?", chat="9").model_copy(update=ann))

        async def picture(
            name: str,
            place: str,
            wanted: str,
            theme: Literal["light", "dark"],
            size: tuple[int, int] = _DESK,
        ) -> None:
            async with open_context(browser, "ann", "operators", size=size) as context:
                window = Window(await context.new_page(), console.url)
                await window.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
                await window.open(place)
                await window.page.locator(wanted).first.wait_for()
                await window.page.screenshot(path=directory / f"{name}-{theme}.png")

        async with open_context(browser, "ann", "operators", size=_DESK) as context:
            window = Window(await context.new_page(), console.url)
            for title, text in reversed(_TALKS):
                await window.open("#/new")
                await window.say(text)
                await window.page.locator(".row.assistant[id] .said").first.wait_for()
                await window.say(f"/title {title}")
                await window.page.locator("h1", has_text=title).wait_for()
            place = window.page.url.partition("#")[2]
        for theme in ("light", "dark"):
            await picture("conversation", f"#{place}", ".row.assistant[id] table", theme)
            drawn = '.sparkline:has(polyline[points*=" "])'
            await picture("overview", "#/operators", drawn, theme)
        await picture("phone", f"#{place}", ".row.assistant[id] table", "light", _PHONE)
        await picture(
            "story", f"#{place.replace('session', 'story')}", ".facts-side > .facts dd", "light"
        )


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(draw(target))
