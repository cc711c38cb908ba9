"""Pauses between tries, and cancellations that get lost."""

import asyncio
import contextlib
from datetime import timedelta
from itertools import islice

import pytest

from chatlane_client.transport.retry import (
    Backoff,
    CancellationGuard,
    cancel_until_ended,
    was_set_within,
)
from tests.support.worlds.virtual_time import VirtualTimeLoop


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
