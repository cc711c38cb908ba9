"""A worker gives titles to its sessions, against a router."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chatlane_client import SessionApi, Turn, open_connection
from chatlane_schemas import Chat, Person, SessionView
from chatlane_schemas.session_api.session_marks import TitleSource
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import (
    ACCOUNT,
    PLATFORM,
    PRINCIPAL,
    Chats,
    delivering,
    said,
    working,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


class Namer:
    """A model that makes titles as the first word of a message says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.go_on = asyncio.Event()

    async def __call__(self, question: str, answer: str) -> str | None:
        """Make a title."""
        self.asked.append((question, answer))
        if question.startswith("broken"):
            raise ValueError(question)
        if question.startswith("early"):
            return None
        if question.startswith("slow"):
            await self.go_on.wait()
        return " A\nplan "


async def answer(turn: Turn) -> str:
    return f"Yes, {turn.text}"


async def test_a_session_gets_the_title_of_a_model_once(
    tmp_path: Path, nats_url: str, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F23, R6.3: made after an answer, never over a title of a person, never said in the chat."""
    namer, chats = Namer(), Chats()
    async with (
        real_router(tmp_path, nats_url, database_url),
        open_connection(nats_url, name="test") as client,
        working(client, answer, titles=namer),
        delivering(client, chats.deliver) as adapter,
    ):

        def api(chat: str) -> SessionApi:
            person = Person(platform=PLATFORM, account=ACCOUNT, id=f"person-{chat}")
            return SessionApi(client, principal=PRINCIPAL, acting_for=person)

        async def current(chat: str) -> SessionView:
            found = await api(chat).peek(f"agent:main:{PLATFORM}:{ACCOUNT}:dm:{chat}")
            assert found is not None
            return found

        async def say(text: str, chat: str) -> None:
            await adapter.publish(said(text, chat=chat))
            await chats.until_said(f"Yes, {text}", chat)

        async def until_asked(*questions: str) -> None:
            await eventually(lambda: [question for question, _ in namer.asked] == list(questions))

        await say("broken secret", "1")
        await until_asked("broken secret")
        await say("early words", "1")
        await until_asked("broken secret", "early words")
        assert (await current("1")).title is None
        assert [record for record in caplog.records if record.message == "title_failed"]
        assert "secret" not in caplog.text
        await say("now", "1")
        await until_asked("broken secret", "early words", "now")
        assert namer.asked[-1] == ("now", "Yes, now")

        async def is_titled() -> bool:
            return (await current("1")).title == "A plan"

        await eventually(is_titled)
        first = await current("1")
        assert first.title_source is TitleSource.MODEL

        # The next session of the person cannot have the same title, and is not asked about again.
        await api("1").reset(first.id)
        for text in ("anew", "go on"):
            await say(text, "1")
        await until_asked("broken secret", "early words", "now", "anew")
        assert (await current("1")).title is None
        assert (await api("1").get(first.id)).title == "A plan"

        await say("slow", "2")
        await eventually(lambda: namer.asked[-1][0] == "slow")
        second = await current("2")
        await api("2").set_title(second.id, "Mine")
        namer.go_on.set()
        await say("more", "2")
        view = await current("2")
        assert (view.title, view.title_source) == ("Mine", TitleSource.PERSON)

        # Words that are to disappear, and those of several people, are in no title.
        fleeting = {"expires_at": datetime.now(UTC) + timedelta(hours=1)}
        await adapter.publish(said("fleeting", chat="3").model_copy(update=fleeting))
        await chats.until_said("Yes, fleeting", "3")
        shared = {"chat": Chat(id="4", kind="group"), "thread_id": "7"}
        await adapter.publish(said("among us", chat="4").model_copy(update=shared))
        await chats.until_said("Yes, among us", "4")
        await say("last", "5")
        await until_asked("broken secret", "early words", "now", "anew", "slow", "last")
        assert len(chats.messages) == 10
