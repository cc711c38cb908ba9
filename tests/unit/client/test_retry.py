"""Pauses between tries, and cancellations that get lost."""

import asyncio
from datetime import timedelta
from itertools import islice

import pytest

from chatlane_client.retry import Backoff, raise_if_cancelled, was_set_within


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
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise_if_cancelled()

    task = asyncio.create_task(swallow())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_is_not_cancelled_goes_on() -> None:
    raise_if_cancelled()
