"""Dead letters in the console: previewed, retried and dropped, each once."""

from functools import partial
from typing import Any, Final
from uuid import uuid4

import pytest
from nats.aio.client import Client

from chatlane_client import Turn, TurnFailedError
from chatlane_schemas.topology import subjects
from tests.integration.client.routing import ACCOUNT, PLATFORM, working
from tests.integration.console.console_world import API, Browser, ConsoleWorld, write
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

LETTERS: Final = f"{API}/operator/dead-letters"


async def letters_of(browser: Browser, **query: str) -> list[dict[str, Any]]:
    page = await browser.get(LETTERS, params=query)
    assert page.status_code == 200, page.text
    letters: list[dict[str, Any]] = page.json()["letters"]
    return letters


async def test_what_no_router_can_read_is_previewed_retried_and_dropped(
    console: ConsoleWorld, client: Client
) -> None:
    async with console.person("eve", "operators") as eve:

        async def unreadable() -> list[str]:
            return [it["id"] for it in await letters_of(eve, reason="not_json")]

        async def have(number: int) -> bool:
            return len(await unreadable()) == number

        for number, text in enumerate((b"first", b"second"), 1):
            await client.jetstream().publish(
                subjects.inbound(PLATFORM, ACCOUNT, subjects.chat_token(text.decode())), text
            )
            await eventually(partial(have, number))
        newest, oldest = await unreadable()
        preview = await eve.get(
            f"{LETTERS}/preview", params={"action": "retry", "reason": "not_json"}
        )
        assert preview.json() == {
            "letters": 2,
            "conversations": 2,
            "is_complete": True,
            "letter_ids": [oldest, newest],
            "left_out": 0,
        }
        content = (await eve.get(f"{LETTERS}/{oldest}")).json()
        assert (content["body"], content["obstacle"]) == ("first", None)

        chosen = {"letter_ids": [newest, oldest]}
        retried = (await eve.post(f"{LETTERS}/retry", json=chosen)).json()["results"]
        assert [(it["letter_id"], it["fate"]) for it in retried] == [
            (oldest, "done"),
            (newest, "done"),
        ]

        async def came_again() -> bool:
            return len(set(await unreadable()) - {newest, oldest}) == 2

        # It is still no JSON, so each comes again as another dead letter.
        await eventually(came_again)
        again = (await eve.post(f"{LETTERS}/retry", json=chosen)).json()["results"]
        assert [it["fate"] for it in again] == ["gone", "gone"]
        present = await unreadable()
        assert len(present) == 2

        for fate in ("done", "gone"):
            dropped = await eve.post(f"{LETTERS}/drop", json={"letter_ids": present})
            assert [it["fate"] for it in dropped.json()["results"]] == [fate, fate]
        assert await unreadable() == []
        counts = (await eve.get(f"{LETTERS}/counts", params={"reason": "not_json"})).json()
        assert (counts["letters"], counts["groups"]) == (0, [])
        assert (await eve.get(f"{LETTERS}/{oldest}")).status_code == 404


async def test_a_failed_turn_is_retried_from_the_console(
    console: ConsoleWorld, client: Client
) -> None:
    chat = uuid4().hex
    answered: list[str] = []

    async def answer(turn: Turn) -> str:
        if not is_repaired:
            raise TurnFailedError("broken", retry=False)
        answered.append(turn.messages[-1].text or "")
        return "it works"

    is_repaired = False
    async with working(client, answer), console.person("eve", "operators") as eve:
        await write(client, "hello", chat)
        query = {"cause": "agent", "account": ACCOUNT}
        await eventually(lambda: letters_of(eve, **query))
        (letter,) = await letters_of(eve, **query)
        assert (letter["reason"], letter["is_retriable"]) == ("turn_failed", True)
        content = (await eve.get(f"{LETTERS}/{letter['id']}")).json()
        assert [it["text"] for it in content["texts"]] == ["hello"]

        is_repaired = True
        chosen = {"letter_ids": [letter["id"]]}
        first = (await eve.post(f"{LETTERS}/retry", json=chosen)).json()["results"]
        await eventually(lambda: answered == ["hello"])
        second = (await eve.post(f"{LETTERS}/retry", json=chosen)).json()["results"]
        assert [it["fate"] for it in (*first, *second)] == ["done", "gone"]
        assert answered == ["hello"]
