"""Two windows, a second press, a lost network and a killed console lose and double nothing."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Route

from chatlane_servers.embedded import free_port
from tests.acceptance.console.browser import Window
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.integration.client.routing import ACCOUNT, PLATFORM
from tests.integration.console.console_world import write
from tests.support.eventually import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]

OUTAGE = timedelta(seconds=30)


async def open_chat(stage: Stage, window: Window) -> None:
    """Open the conversation that a chat of person 7 has begun."""
    await write(stage.client, "hello", "7")
    await window.open()
    await window.page.locator(".entry").first.click()
    await window.until_row("You said: hello")


async def test_a_network_that_is_away_loses_and_doubles_no_message(
    stage: Stage, window: OpenWindow
) -> None:
    async with window("person-7") as seven:
        await open_chat(stage, seven)
        await seven.say("wait for the network")
        await seven.page.locator(".row.live strong").wait_for()
        await seven.page.context.set_offline(True)
        await seven.page.get_by_text("reconnecting").wait_for()
        stage.agent.go_on.set()
        await seven.say("written without a network")
        await seven.page.get_by_text("is sent when the connection is back").wait_for()
        # How long the network is away, and not how long something takes.
        await asyncio.sleep(OUTAGE.total_seconds())
        await seven.page.context.set_offline(False)

        await seven.until_row("Done: wait for the network")
        await seven.until_row("You said: written without a network")
        assert stage.agent.answered["written without a network"] == 1
        before = await seven.texts()
        await seven.page.reload()
        await seven.until_row("You said: written without a network")
        assert await seven.texts() == before
        assert len(before) == 6


async def test_a_closed_window_sends_its_message_later(stage: Stage, window: OpenWindow) -> None:
    async with window("person-7") as seven:
        await open_chat(stage, seven)
        context = seven.page.context
        address = seven.page.url
        await context.route("**/messages", lambda route: route.abort())
        await seven.say("on its way")
        await seven.page.get_by_text("sending").wait_for()
        await seven.page.close()
        await context.unroute("**/messages")
        page = await context.new_page()
        await page.goto(address)
        await page.locator(".row[id]", has_text="You said: on its way").wait_for()
        assert stage.agent.answered["on its way"] == 1


async def test_a_lost_answer_and_a_second_press_make_no_second_message(
    stage: Stage, window: OpenWindow
) -> None:
    lost: list[str] = []

    async def lose_first_answer(route: Route) -> None:
        if not lost:
            lost.append(route.request.url)
            await route.fetch()
            await route.abort()
        else:
            await route.continue_()

    async with window("person-7") as seven:
        await open_chat(stage, seven)
        await seven.page.route("**/messages", lose_first_answer)
        await seven.page.fill("#message", "only once")
        await seven.page.evaluate(
            "() => { const form = document.querySelector('.composer');"
            " form.requestSubmit(); form.requestSubmit(); }"
        )
        await seven.until_row("You said: only once")
        await seven.page.get_by_text("sending").wait_for(state="detached")
        assert lost
        assert stage.agent.answered["only once"] == 1
        assert (await seven.texts()).count("only once") == 1


async def test_two_windows_of_a_person_show_the_same(stage: Stage, window: OpenWindow) -> None:
    """R25.1."""
    async with window("person-7") as seven:
        await open_chat(stage, seven)
        other = Window(await seven.page.context.new_page(), stage.console.url)
        await other.page.goto(seven.page.url)
        await other.until_row("You said: hello")

        await seven.say("ask which day")
        for each in (seven, other):
            await each.page.get_by_role("button", name="Friday").wait_for()
        # Without waiting: the button of a window is gone once the press of the other is known.
        press = "buttons => buttons.forEach(button => button.click())"
        await asyncio.gather(
            *(
                each.page.get_by_role("button", name="Friday").evaluate_all(press)
                for each in (seven, other)
            )
        )
        for each in (seven, other):
            await each.until_row("You chose fri.")
        await other.say("from the other window")
        for each in (seven, other):
            await each.until_row("You said: from the other window")
        await other.until_texts(*await seven.texts())
        assert stage.agent.answered["from the other window"] == 1


@contextlib.asynccontextmanager
async def served(nats_url: str, port: int, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `chatlane console` as a process, behind a trusted proxy; kill it at the end."""
    environment = {
        **{name: value for name, value in os.environ.items() if "CHATLANE" not in name},
        "CHATLANE_CONSOLE_NATS_URL": nats_url,
        "CHATLANE_CONSOLE_PLATFORM": PLATFORM,
        "CHATLANE_CONSOLE_ACCOUNT": ACCOUNT,
        "CHATLANE_CONSOLE_SIGN_IN": "proxy",
        "CHATLANE_CONSOLE_PROXY_ADDRESSES": "127.0.0.1",
    }
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "chatlane", "console", "--port", str(port)),
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        await eventually(lambda: "console: http" in log.read_text("utf-8"))
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_killed_console_is_missed_for_a_moment_only(
    stage: Stage, window: OpenWindow, nats_url: str, tmp_path: Path
) -> None:
    port = free_port()
    async with window("person-7") as seven:
        seven.url = f"http://127.0.0.1:{port}"
        async with served(nats_url, port, tmp_path / "first.log"):
            await open_chat(stage, seven)
            await seven.say("wait for the console")
            await seven.page.locator(".row.live strong").wait_for()
        await seven.page.get_by_text("reconnecting").wait_for()
        await seven.say("while it was away")
        stage.agent.go_on.set()
        async with served(nats_url, port, tmp_path / "second.log"):
            await seven.until_row("Done: wait for the console")
            await seven.until_row("You said: while it was away")
            assert stage.agent.answered["while it was away"] == 1
            assert len(await seven.texts()) == 6
        said = (tmp_path / "second.log").read_text("utf-8")
        assert "while it was away" not in said
