"""When a chat shows that an answer is being written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

import pytest

from chatlane_client import RateBudget, RetryAfter, typing_indicator
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
    TurnWaiting,
    WaitReason,
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


class Chats:
    """Counts the calls of a platform, which may fail."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None

    async def show(self, _: Source) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error


@asynccontextmanager
async def following(indicator: TypingIndicator) -> AsyncIterator[Reader]:
    """Let an indicator follow turns for the length of the block."""
    reader = Reader()
    running = asyncio.create_task(indicator.run(cast("TurnReader", reader)))
    try:
        yield reader
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert not indicator.turns, "nothing is shown after the end"


def connection() -> Any:  # noqa: ANN401 - as much of a connection as is read
    return SimpleNamespace(stats={"reconnects": 0})


def indicator_of(chats: Chats, budget: RateBudget | None = None) -> TypingIndicator:
    return TypingIndicator(
        connection(), chats.show, interval=timedelta(milliseconds=10), budget=budget
    )


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


async def test_a_turn_that_waits_for_another_attempt_shows_nothing_until_it_begins() -> None:
    chats = Chats()
    indicator = indicator_of(chats)
    async with following(indicator) as reader:
        reader.updates.put_nowait(update(TurnStarted, source=CHAT))
        await eventually(lambda: chats.calls > 1)
        reader.updates.put_nowait(update(TurnWaiting, reason=WaitReason.ERROR))
        await eventually(lambda: not indicator.turns)
        reader.updates.put_nowait(update(TurnStarted, source=CHAT))
        await eventually(lambda: indicator.turns == {TURN_ID})


async def test_the_next_turn_of_a_session_ends_the_typing_of_the_one_before() -> None:
    indicator = indicator_of(Chats())
    following_turn = UUID(int=9)
    async with following(indicator) as reader:
        reader.updates.put_nowait(update(TurnStarted, source=CHAT))
        await eventually(lambda: indicator.turns == {TURN_ID})
        started = update(TurnStarted, source=CHAT).model_copy(update={"turn_id": following_turn})
        reader.updates.put_nowait(started)
        await eventually(lambda: indicator.turns == {following_turn})


async def test_all_typing_ends_with_the_connection() -> None:
    client = connection()
    indicator = TypingIndicator(client, ignore, interval=timedelta(milliseconds=10))
    async with following(indicator) as reader:
        reader.updates.put_nowait(update(TurnStarted, source=CHAT))
        await eventually(lambda: indicator.turns == {TURN_ID})
        client.stats["reconnects"] = 1
        # Whatever comes next: events may have been lost.
        reader.updates.put_nowait(update(TurnEnded, outcome=TurnOutcome.OK))
        await eventually(lambda: not indicator.turns)


async def test_typing_that_fails_is_shown_again() -> None:
    chats = Chats()
    chats.error = OSError("no")
    indicator = indicator_of(chats)
    async with following(indicator) as reader:
        reader.updates.put_nowait(update(TurnStarted, source=CHAT))
        await eventually(lambda: chats.calls > 2)


async def test_typing_ends_after_a_while_without_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_indicator, "MAX_TYPING", timedelta(milliseconds=30))
    chats = Chats()
    indicator = indicator_of(chats)
    async with following(indicator) as reader:
        reader.updates.put_nowait(update(TurnStarted, source=CHAT))
        await eventually(lambda: chats.calls > 0)
        await eventually(lambda: not indicator.turns)


@pytest.mark.parametrize("whole_account", [False, True])
async def test_typing_waits_as_long_as_the_platform_says(*, whole_account: bool) -> None:
    budget, chats = RateBudget(), Chats()
    chats.error = RetryAfter(0.3, whole_account=whole_account)
    indicator = indicator_of(chats, budget)
    async with following(indicator) as reader:
        reader.updates.put_nowait(update(TurnStarted, source=CHAT))
        await eventually(lambda: chats.calls == 1)
        chats.error = None
        assert budget.busy_for("701") > 0.1, "messages of the chat wait as well"
        assert (budget.busy_for("702") > 0) is whole_account
        before = chats.calls
        await eventually(lambda: chats.calls > before)
        assert budget.busy_for("701") == 0.0, "typing comes only after the pause, and takes nothing"


async def test_typing_takes_nothing_of_the_rates() -> None:
    budget, chats = RateBudget(per_second=0.001, per_chat_per_second=0.001), Chats()
    async with indicator_of(chats, budget).shown(CHAT):
        await eventually(lambda: chats.calls > 1)
    assert budget.try_take("701") == 0.0
    async with indicator_of(chats, budget).shown(CHAT):
        shown = chats.calls
        await asyncio.sleep(0)
        assert chats.calls == shown, "a chat that has to wait is left alone"
