"""A person reads and goes on with conversations over the HTTP API."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
from nats.aio.client import Client

from chatlane_client import AdapterClient, Turn
from chatlane_schemas import InboundEvent
from tests.integration.client.routing import said, working
from tests.integration.console.console_world import (
    API,
    PROXY,
    ConsoleWorld,
    open_console,
    write,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


async def answer(turn: Turn) -> str:
    await turn.delta("draft ")
    return f"you said {turn.messages[-1].text}"


async def test_a_message_is_answered_over_the_event_stream(
    console: ConsoleWorld, client: Client
) -> None:
    async with working(client, answer), console.person("ann") as ann:
        created = await ann.post(f"{API}/sessions", json={})
        path = f"{API}/sessions/{created.json()['id']}"
        key = {"Idempotency-Key": uuid4().hex}
        async with ann.follow(f"{path}/events") as stream:
            await stream.until("ready")
            first = await ann.post(f"{path}/messages", json={"text": "hello"}, headers=key)
            again = await ann.post(f"{path}/messages", json={"text": "hello"}, headers=key)
            ended = await stream.until("turn.ended")

        assert created.status_code == 201
        assert first.status_code == 202
        assert again.json() == first.json()
        assert ended.data["outcome"] == "ok"
        assert stream.names().index("turn.started") < stream.names().index("turn.ended")
        page = (await ann.get(f"{path}/rows")).json()
        texts = [(row["role"], row["content"]) for row in page["rows"]]
        assert texts == [("user", "hello"), ("assistant", "you said hello")]


async def test_the_newest_rows_come_first_and_older_ones_by_their_cursor(
    console: ConsoleWorld, client: Client
) -> None:
    async with working(client, answer), console.person("ann") as ann:
        path = f"{API}/sessions/{(await ann.post(f'{API}/sessions', json={})).json()['id']}"
        for text in ("one", "two"):
            async with ann.follow(f"{path}/events") as stream:
                await ann.post(f"{path}/messages", json={"text": text})
                await stream.until("turn.ended")

        newest = (await ann.get(f"{path}/rows", params={"limit": 2})).json()
        older = (
            await ann.get(f"{path}/rows", params={"limit": 2, "before": newest["next_before"]})
        ).json()
        assert [row["content"] for row in newest["rows"]] == ["two", "you said two"]
        assert [row["content"] for row in older["rows"]] == ["one", "you said one"]
        assert older["next_before"] is None


async def test_a_person_sees_the_conversation_of_the_chat(
    console: ConsoleWorld, client: Client
) -> None:
    chat = console.suffix
    await write(client, "hello", chat)
    async with console.person("person-") as seven, console.person("other") as eight:

        async def listed() -> list[str]:
            return [it["id"] for it in (await seven.get(f"{API}/sessions")).json()["sessions"]]

        (session_id,) = await eventually(listed)
        assert (await eight.get(f"{API}/sessions")).json()["sessions"] == []
        assert (await seven.get(f"{API}/sessions/{session_id}")).json()["platform"] == "test"
        refused = await eight.get(f"{API}/sessions/{session_id}")
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        assert refused.headers["content-type"] == "application/problem+json"


async def test_r2_1_a_text_that_is_no_id_reaches_no_session(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann:
        opened = (await ann.post(f"{API}/sessions", json={})).json()["id"]
        for text in (
            "Cron_7",
            "none",
            "..%2f..%2fetc%2fpasswd",
            f"{opened}.bak",
            "%00",
            opened[1:],
        ):
            refused = await ann.get(f"{API}/sessions/{text}")
            assert refused.status_code in {404, 422}, text
            assert refused.headers["content-type"] == "application/problem+json"
            assert "passwd" not in refused.text
        assert (await ann.get(f"{API}/sessions/{opened}")).json()["id"] == opened


async def test_r3_1_a_session_without_words_is_in_no_list(console: ConsoleWorld) -> None:
    """R3.1, R3.4: the session is stored at once, and shown once something is said in it."""
    async with console.person("ann") as ann:
        given = {"model": "small", "cwd": "/srv/notes"}
        key = {"Idempotency-Key": uuid4().hex}
        opened = (await ann.post(f"{API}/sessions", json=given, headers=key)).json()
        again = (await ann.post(f"{API}/sessions", json=given, headers=key)).json()
        plain = (await ann.post(f"{API}/sessions", json={})).json()
        assert again == opened
        assert {name: opened[name] for name in given} == given
        assert (plain["model"], plain["cwd"], plain["project_id"]) == (None, None, None)

        async def listed() -> list[str]:
            answer = await ann.get(f"{API}/sessions", params={"hide_empty": True})
            return [session["id"] for session in answer.json()["sessions"]]

        assert await listed() == []
        await ann.post(f"{API}/sessions/{opened['id']}/messages", json={"text": "hello"})
        assert await listed() == [opened["id"]]


async def test_a_person_sees_the_conversations_of_all_own_accounts(
    routed_url: str, client: Client
) -> None:
    ids = {"x-forwarded-user": f"person-{uuid4().hex}", "x-mail-id": f"person-{uuid4().hex}"}
    further = {"further_accounts": "mail/desk=x-mail-id, mail/desk=x-none"}
    async with (
        working(client, answer),
        open_console(routed_url, **PROXY, **further) as console,
        console.browser(**ids) as both,
        console.browser(**(ids | {"x-mail-id": "somebody"})) as other,
    ):
        for name, (platform, account) in {
            "x-forwarded-user": ("test", "bot"),
            "x-mail-id": ("mail", "desk"),
        }.items():
            chat = ids[name].removeprefix("person-")
            event = said("hello", chat=chat).model_copy(
                update={"platform": platform, "account": account}
            )
            adapter = AdapterClient(client, platform=platform, account=account)
            await adapter.publish(InboundEvent.model_validate(event.model_dump()))

        async def listed() -> dict[str, str]:
            page = (await both.get(f"{API}/sessions")).json()
            return {it["platform"]: it["id"] for it in page["sessions"]}

        await eventually(lambda: _has_both(listed))
        assert (await both.get(f"{API}/me")).json()["further_accounts"] == ["mail/desk"]
        found = await listed()
        path = f"{API}/sessions/{found['mail']}"
        async with both.follow(f"{path}/events") as stream:
            await stream.until("ready")
            sent = await both.post(f"{path}/messages", json={"text": "again"})
            assert sent.status_code == 202
            assert (await stream.until("turn.ended")).data["outcome"] == "ok"
        assert (await both.patch(path, json={"pinned": True})).json()["pinned"]
        page = (await both.get(f"{API}/sessions", params={"pinned_first": True})).json()
        assert [it["id"] for it in page["sessions"]] == [found["mail"], found["test"]]
        assert (await other.get(path)).status_code == 404
        assert [it["id"] for it in (await other.get(f"{API}/sessions")).json()["sessions"]] == [
            found["test"]
        ]


async def _has_both(listed: Callable[[], Awaitable[dict[str, str]]]) -> bool:
    return len(await listed()) == 2
