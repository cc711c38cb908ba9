"""Which messages lose their buttons once a question is over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from chatlane_client import RateBudget, RetryAfter
from chatlane_client.delivery.question_buttons import QuestionButtons
from chatlane_schemas import Button, Chat, OutboundMessage, QuestionEnd, Source
from chatlane_schemas.live_turns import TurnAnswered
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from chatlane_client.turn_reader import TurnReader

AT = datetime(2026, 5, 11, 9, tzinfo=UTC)
CHAT = Source(platform="telegram", account="bot", chat=Chat(id="701"))
ID = UUID(int=7)


class Platform:
    """A platform on which messages lose their buttons."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.errors: list[Exception] = []

    async def close(self, target: Source, message_id: str, text: str) -> None:
        assert target == CHAT
        self.calls.append((message_id, text))
        if self.errors:
            raise self.errors.pop()


def question(**fields: Any) -> OutboundMessage:  # noqa: ANN401 - fields of the message
    about = {"id": str(ID), "at": AT, "session_id": ID, "out_seq": 1, "agent": "main"}
    asked = {"target": CHAT, "buttons": (Button(label="Yes"),), "is_interim": True}
    return OutboundMessage(**{**about, **asked, **fields})


def over() -> TurnAnswered:
    return TurnAnswered(
        id="e1",
        at=AT,
        turn_id=ID,
        session_id=ID,
        agent="main",
        attempt=1,
        question_id=ID,
        message_id=ID,
        outcome=QuestionEnd.EXPIRED,
    )


class Reader:
    """Passes on what a test puts into it."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[TurnAnswered] = asyncio.Queue()

    async def updates(self) -> AsyncIterator[TurnAnswered]:
        while True:
            yield await self.waiting.get()
            self.waiting.task_done()


@asynccontextmanager
async def following(buttons: QuestionButtons) -> AsyncIterator[Reader]:
    reader = Reader()
    running = asyncio.create_task(buttons.run(cast("TurnReader", reader)))
    try:
        yield reader
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_question_that_is_over_loses_its_buttons_once() -> None:
    platform = Platform()
    buttons = QuestionButtons(platform.close, RateBudget())
    async with following(buttons) as reader:
        await buttons.add(question(), "m1", "Really?")
        assert platform.calls == []
        for _ in range(2):
            reader.waiting.put_nowait(over())
        await reader.waiting.join()
        await eventually(lambda: platform.calls == [("m1", "Really?")])


async def test_a_question_that_is_over_before_its_message_has_an_id_loses_them_at_once() -> None:
    platform = Platform()
    buttons = QuestionButtons(platform.close, RateBudget())
    async with following(buttons) as reader:
        reader.waiting.put_nowait(over())
        await reader.waiting.join()
        await buttons.add(question(), "m1", "Really?")
    assert platform.calls == [("m1", "Really?")]


async def test_an_answer_keeps_its_buttons() -> None:
    platform = Platform()
    buttons = QuestionButtons(platform.close, RateBudget())
    async with following(buttons) as reader:
        await buttons.add(question(is_interim=None), "m1", "Take one")
        await buttons.add(question(buttons=None), "m2", "How many?")
        reader.waiting.put_nowait(over())
        await reader.waiting.join()
    assert platform.calls == []


async def test_a_platform_that_asks_to_wait_is_asked_again() -> None:
    platform, budget = Platform(), RateBudget()
    platform.errors = [RetryAfter(0.05)]
    buttons = QuestionButtons(platform.close, budget)
    async with following(buttons) as reader:
        await buttons.add(question(), "m1", "Really?")
        reader.waiting.put_nowait(over())
        await eventually(lambda: len(platform.calls) == 2)


async def test_a_message_that_cannot_be_edited_ends_nothing() -> None:
    platform = Platform()
    platform.errors = [OSError("no such message")]
    buttons = QuestionButtons(platform.close, RateBudget())
    async with following(buttons) as reader:
        await buttons.add(question(), "m1", "Really?")
        reader.waiting.put_nowait(over())
        await eventually(lambda: len(platform.calls) == 1)
        reader.waiting.put_nowait(over())
        await reader.waiting.join()
    assert len(platform.calls) == 1
