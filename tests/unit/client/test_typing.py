"""When a chat shows that an answer is being written."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

import pytest

from chatlane_client.turn_reader import TurnReader, TurnUpdate
from chatlane_client.typing_indicator import TypingIndicator
from chatlane_schemas import Chat, QuestionEnd, QuestionKind, Source
from chatlane_schemas.live_turns import (
    TurnAnswered,
    TurnAsked,
    TurnEnded,
    TurnEvent,
    TurnOutcome,
    TurnStarted,
)
from tests.support.eventually import eventually

AT: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
SESSION_ID, TURN_ID, QUESTION_ID = (UUID(int=number) for number in (1, 2, 3))
CHAT: Final = Source(platform="telegram", account="bot", chat=Chat(id="701"))


class Reader:
    """Passes on what a test puts into it."""

    def __init__(self) -> None:
        self.updates: asyncio.Queue[TurnUpdate] = asyncio.Queue()

    async def take(self) -> list[TurnUpdate]:
        return [await self.updates.get()]


async def ignore(_: Source) -> None:
    pass


def update(model: type[TurnEvent], **fields: Any) -> Any:  # noqa: ANN401 - fields of the event
    return model(
        id="e1",
        at=AT,
        turn_id=TURN_ID,
        session_id=SESSION_ID,
        agent="main",
        attempt=1,
        **fields,
    )


def asked() -> TurnUpdate:
    found: TurnUpdate = update(
        TurnAsked,
        question_id=QUESTION_ID,
        kind=QuestionKind.TEXT,
        due_at=AT,
        message_id=QUESTION_ID,
    )
    return found


def over(outcome: QuestionEnd) -> TurnUpdate:
    fields = {"question_id": QUESTION_ID, "message_id": QUESTION_ID, "outcome": outcome}
    found: TurnUpdate = update(TurnAnswered, **fields)
    return found


@pytest.mark.parametrize("outcome", QuestionEnd)
async def test_a_turn_that_waits_for_an_answer_shows_nothing(outcome: QuestionEnd) -> None:
    client = cast("Any", SimpleNamespace(stats={"reconnects": 0}))
    reader = Reader()
    indicator = TypingIndicator(client, ignore, interval=timedelta(milliseconds=10))
    running = asyncio.create_task(indicator.run(cast("TurnReader", reader)))
    try:
        reader.updates.put_nowait(update(TurnStarted, source=CHAT))
        await eventually(lambda: indicator.turns == {TURN_ID})
        reader.updates.put_nowait(asked())
        await eventually(lambda: not indicator.turns)
        reader.updates.put_nowait(over(outcome))
        reader.updates.put_nowait(over(outcome))
        await eventually(reader.updates.empty)
        is_shown = outcome is not QuestionEnd.WITHDRAWN
        await eventually(lambda: bool(indicator.turns) is is_shown)
        reader.updates.put_nowait(update(TurnEnded, outcome=TurnOutcome.OK))
        await eventually(lambda: reader.updates.empty() and not indicator.turns)
        # It is over, so an event that comes late begins nothing.
        reader.updates.put_nowait(over(QuestionEnd.ANSWERED))
        await eventually(reader.updates.empty)
        assert not indicator.turns
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_typing_is_shown_for_the_length_of_a_pause() -> None:
    shown: list[Source] = []

    async def show(target: Source) -> None:
        shown.append(target)

    client = cast("Any", SimpleNamespace(stats={"reconnects": 0}))
    indicator = TypingIndicator(client, show, interval=timedelta(milliseconds=10))
    async with indicator.shown(CHAT):
        await eventually(lambda: len(shown) > 1)
    assert {id(target) for target in shown} == {id(CHAT)}
