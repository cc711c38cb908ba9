"""An alarm rings at each time it was set to."""

import asyncio
from datetime import timedelta

import pytest

from chatlane.errors import StoreUnavailableError
from chatlane.jobs import WakeupTimer
from chatlane.nats.tasks import end_task
from tests.support.worlds.virtual_time import VirtualTimeLoop


def test_it_rings_for_the_earliest_first_and_for_the_others_too() -> None:
    async def scene() -> None:
        alarm, rung = WakeupTimer(), asyncio.Queue[int]()
        count = 0

        async def ring() -> None:
            nonlocal count
            count += 1
            await rung.put(count)

        alarm.schedule_within(timedelta(milliseconds=60))
        ringing = asyncio.create_task(alarm.run(ring))
        await asyncio.sleep(0)
        alarm.schedule_within(timedelta(0))
        assert await rung.get() == 1
        assert await rung.get() == 2
        alarm.schedule_within(timedelta(0))
        assert await rung.get() == 3
        assert rung.empty()
        await end_task(ringing)

    # In virtual time: a loop that stalls would find both due at once, and ring once.
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scene())


@pytest.mark.parametrize("error", [StoreUnavailableError(kind="away"), ValueError("a fault")])
async def test_what_fails_is_left_to_the_sweep(error: Exception) -> None:
    alarm, rung = WakeupTimer(), asyncio.Queue[int]()

    async def fail() -> None:
        await rung.put(1)
        raise error

    ringing = asyncio.create_task(alarm.run(fail))
    for _ in range(2):
        alarm.schedule_within(timedelta(0))
        await rung.get()
    assert not ringing.done()
    await end_task(ringing)
