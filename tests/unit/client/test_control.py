"""What a running turn is told, and what it takes in."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from chatlane_client.claims import Grant
from chatlane_client.control import WIND_DOWN, Signals
from chatlane_client.turn_input import Steering
from chatlane_schemas import HistoryPointer, RenewStatus, Source, TurnMessage
from chatlane_schemas.turns import CancelReason, TakeReply
from tests.support.worlds.virtual_time import VirtualTimeLoop

AT = datetime(2026, 5, 11, 9, tzinfo=UTC)
SOURCE = Source.model_validate({"platform": "test", "account": "bot"})


def message(seq: int) -> TurnMessage:
    return TurnMessage(seq=seq, text=f"m{seq}", source=SOURCE, stored_at=AT)


GRANT = Grant(
    turn_id=UUID(int=1),
    session_id=UUID(int=2),
    session_key="k",
    attempt=1,
    token="t",  # noqa: S106 - a made-up one
    asked_at=0.0,
    lease=timedelta(seconds=30),
    source=SOURCE,
    messages=(message(3),),
    history=HistoryPointer(session_id=UUID(int=2), before_seq=3),
    session_is_new=False,
    reset_reason=None,
)


def taken(*seqs: int) -> TakeReply:
    return TakeReply(id="a", at=AT, status=RenewStatus.RENEWED, messages=tuple(map(message, seqs)))


async def test_each_message_is_taken_in_once() -> None:
    asked: list[int] = []
    replies = [taken(4, 5), taken(), taken(8)]

    async def ask(after_seq: int) -> TakeReply:
        asked.append(after_seq)
        return replies.pop(0)

    steering = Steering(ask, GRANT, Signals())
    seen = [one.seq for _ in range(3) for one in await steering.take()]
    assert (seen, asked) == ([4, 5, 8], [3, 5, 5])


async def test_news_that_could_not_be_had_stays_news() -> None:
    signals = Signals()
    signals.tell(None, steer=True)

    async def ask(_: int) -> TakeReply:
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        await Steering(ask, GRANT, signals).take()
    assert signals.has_news.is_set()


async def test_a_handler_is_cancelled_until_it_ends() -> None:
    signals, cancelled = Signals(), 0

    async def handle() -> str:
        nonlocal cancelled
        signals.tell(CancelReason.STOPPED, steer=False)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
        return "so far"

    assert await signals.obeyed_by(handle()) == "so far"
    assert (cancelled, signals.cancel_reason) == (1, "stopped")


async def test_a_handler_that_nobody_stops_is_left_alone() -> None:
    signals = Signals()
    signals.tell(None, steer=False)

    async def handle() -> Any:  # noqa: ANN401 - any answer
        await asyncio.sleep(0)
        return "done"

    assert await signals.obeyed_by(handle()) == "done"
    assert not signals.has_news.is_set()


@pytest.mark.parametrize(
    ("wind_down", "needs", "expected"),
    [
        (WIND_DOWN, 8, "wound down"),
        (timedelta(minutes=2), 90, "wound down"),
        (WIND_DOWN, 60, "cut"),
    ],
)
def test_f14_a_handler_that_winds_down_is_cancelled_again_only_after_its_time(
    wind_down: timedelta, needs: float, expected: str
) -> None:
    async def handle(signals: Signals) -> str:
        signals.tell(CancelReason.STOPPED, steer=False)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await asyncio.sleep(needs)
            except asyncio.CancelledError:
                return "cut"
        return "wound down"

    async def answered() -> str:
        signals = Signals(wind_down)
        return await signals.obeyed_by(handle(signals))

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(answered()) == expected
