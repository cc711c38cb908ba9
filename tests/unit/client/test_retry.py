"""Pauses between tries, how long answers may take, and cancellations that get lost."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import pytest

from chatlane_client import claims
from chatlane_client.claims import ClaimClient
from chatlane_client.errors import UnansweredRequestError
from chatlane_client.transport.retry import (
    Backoff,
    CancellationGuard,
    cancel_until_ended,
    was_set_within,
)
from chatlane_schemas import ClaimReply, ClaimRequest, ClaimStatus
from tests.support.worlds.virtual_time import VirtualTimeLoop

if TYPE_CHECKING:
    from nats.aio.client import Client

LONGEST = timedelta(seconds=4)


def test_pauses_grow_to_a_limit_and_are_jittered() -> None:
    backoff = Backoff(timedelta(seconds=1), timedelta(seconds=8))
    for _ in range(50):
        pauses = list(islice(backoff.pauses(), 6))
        for pause, longest in zip(pauses, (1, 2, 4, 8, 8, 8), strict=True):
            assert longest / 2 <= pause <= longest


async def test_an_event_ends_a_pause() -> None:
    event = asyncio.Event()
    assert not await was_set_within(event, 0.001)
    event.set()
    assert await was_set_within(event, 3600)


async def test_a_swallowed_cancellation_is_raised_again() -> None:
    async def swallow() -> None:
        guard = CancellationGuard()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        guard.check()

    task = asyncio.create_task(swallow())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_tidies_up_after_a_cancellation_may_go_on() -> None:
    async def tidy_up() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        CancellationGuard().check()
        return "tidy"

    task = asyncio.create_task(tidy_up())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "tidy"


async def test_a_swallowed_timeout_is_still_a_timeout() -> None:
    async def swallow() -> None:
        async with asyncio.timeout(0.001):
            guard = CancellationGuard()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            guard.check()

    with pytest.raises(TimeoutError):
        await swallow()


def test_what_loses_a_cancellation_is_cancelled_again() -> None:
    """In virtual time: there are seconds between the two."""
    cancelled = 0

    async def lose_one() -> None:
        nonlocal cancelled
        while cancelled < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1

    async def fail() -> None:
        raise ValueError("before it was cancelled")

    async def end_both() -> list[bool]:
        tasks = [asyncio.create_task(lose_one()), asyncio.create_task(fail())]
        await asyncio.sleep(0)
        await cancel_until_ended(*tasks)
        return [task.done() for task in tasks]

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(end_both()) == [True, True]
    assert cancelled == 2


class SlowService:
    """Answers each claim after a time, by a clock of its own."""

    def __init__(self, takes: timedelta) -> None:
        self.takes = takes
        self.now = 0.0
        self.asked: list[str] = []
        self.waits: list[timedelta] = []

    async def ask(
        self,
        client: object,
        subject: str,
        request: ClaimRequest,
        model: type[ClaimReply],
        *,
        answer_within: timedelta,
    ) -> ClaimReply:
        del client, model
        self.asked.append(request.id)
        self.waits.append(answer_within)
        self.now += min(self.takes, answer_within).total_seconds()
        if self.takes > answer_within:
            raise UnansweredRequestError(subject, reached_nobody=False)
        return ClaimReply(
            id="reply", at=datetime.now(UTC), status=ClaimStatus.TAKEN, turn_id=request.turn_id
        )


async def claimed(
    service: SlowService, client: ClaimClient, monkeypatch: pytest.MonkeyPatch
) -> list[timedelta]:
    """Claim a turn; return how long the worker would have waited for each answer."""
    monkeypatch.setattr(claims, "ask", service.ask)
    monkeypatch.setattr(claims, "monotonic", lambda: service.now)
    service.asked, service.waits = [], []
    assert await client.claim(uuid4(), stopping=asyncio.Event()) is ClaimStatus.TAKEN
    assert len(set(service.asked)) == 1
    return service.waits


async def test_a_busy_service_is_asked_again_only_after_twice_its_last_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = ClaimClient(cast("Client", None), "main", principal="worker", worker="w1")
    service = SlowService(takes=timedelta(seconds=1.5))
    waits = await claimed(service, client, monkeypatch)
    assert len(waits) > 1
    assert waits[0] <= timedelta(seconds=1), "short: the answer may have been lost"
    assert all(earlier < later for earlier, later in pairwise(waits))
    assert await claimed(service, client, monkeypatch) == [timedelta(seconds=3)]
    service.takes = timedelta(seconds=3)
    assert await claimed(service, client, monkeypatch) == [timedelta(seconds=3)]
    assert await claimed(service, client, monkeypatch) == [LONGEST], "it may be dead"
    service.takes = timedelta(milliseconds=5)
    await claimed(service, client, monkeypatch)
    assert (await claimed(service, client, monkeypatch))[0] <= timedelta(seconds=1)
