"""What a browser hears that comes back, is slow, or asks too much."""

import pytest
from nats.aio.client import Client

from chatlane_client import Turn
from tests.integration.client.routing import working
from tests.integration.console.console_world import (
    API,
    PROXY,
    Browser,
    ConsoleWorld,
    open_console,
)

pytestmark = pytest.mark.integration


async def answer(turn: Turn) -> str:
    await turn.delta("part ")
    return "done"


async def new_session(browser: Browser) -> str:
    return f"{API}/sessions/{(await browser.post(f'{API}/sessions', json={})).json()['id']}"


async def test_a_browser_that_comes_back_gets_what_it_missed(
    console: ConsoleWorld, client: Client
) -> None:
    async with working(client, answer), console.person("ann") as ann:
        path = await new_session(ann)
        async with ann.follow(f"{path}/events") as stream:
            last = await stream.until("ready")
        await ann.post(f"{path}/messages", json={"text": "hello"})
        async with ann.follow(f"{path}/events", last.id) as stream:
            ended = await stream.until("turn.ended")
            assert "resync" not in stream.names()
            assert stream.names().count("turn.started") == 1
        async with ann.follow(f"{path}/events", ended.id) as stream:
            await ann.post(f"{path}/messages", json={"text": "again"})
            await stream.until("turn.ended")
            assert stream.names().count("turn.started") == 1


async def test_a_browser_that_was_away_for_too_long_begins_again(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann, console.person("bob") as bob:
        path, others = await new_session(ann), await new_session(bob)
        async with bob.follow(f"{others}/events") as stream:
            foreign = (await stream.until("ready")).id
        for last in ("forgotten-7", "x", foreign, f"{foreign}9"):
            async with ann.follow(f"{path}/events", last) as stream:
                event = await stream.until("resync")
                assert event.data == {}


async def test_changes_of_another_window_are_told(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann:
        path = await new_session(ann)
        async with ann.follow(f"{path}/events") as first, ann.follow(f"{path}/events") as second:
            await first.until("ready")
            await second.until("ready")
            await ann.patch(path, json={"title": "told"})
            await first.until("session.changed")
            await second.until("session.changed")
            await ann.post(f"{path}/end")
            await first.until("session.ended")
            await ann.delete(path)
            await first.until("gone")


async def test_a_person_has_only_so_many_streams(routed_url: str) -> None:
    async with (
        open_console(routed_url, **PROXY, max_streams=2) as console,
        console.person("ann") as ann,
        console.person("bob") as bob,
    ):
        path, others = await new_session(ann), await new_session(bob)
        async with ann.follow(f"{path}/events") as one, ann.follow(f"{path}/events") as two:
            await one.until("ready")
            await two.until("ready")
            refused = await ann.get(f"{path}/events")
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            async with bob.follow(f"{others}/events") as of_bob:
                await of_bob.until("ready")
