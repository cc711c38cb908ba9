"""Tasks end although a cancellation gets lost below them."""

import asyncio
from contextlib import suppress

import pytest

from chatlane.nats.tasks import end_task, run_together


class Deaf:
    """Goes on for ever, and loses the first cancellations, as a library may."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.has_begun = asyncio.Event()
        self.has_ended = False

    async def run(self) -> None:
        self.has_begun.set()
        try:
            while self.losses:
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                self.losses -= 1
            await asyncio.Event().wait()
        finally:
            self.has_ended = True


@pytest.mark.parametrize("losses", [0, 1, 3])
async def test_what_runs_together_ends_although_one_loses_a_cancellation(losses: int) -> None:
    parts = [Deaf(0), Deaf(losses)]
    task = asyncio.create_task(run_together((str(one.losses), one.run()) for one in parts))
    await asyncio.gather(*(one.has_begun.wait() for one in parts))
    async with asyncio.timeout(10):
        await end_task(task)
    assert task.cancelled()
    assert all(one.has_ended for one in parts)


async def test_where_one_fails_the_others_end_and_its_error_is_raised() -> None:
    deaf = Deaf(1)

    async def fail() -> None:
        await deaf.has_begun.wait()
        raise ValueError("broken")

    async with asyncio.timeout(10):
        with pytest.raises(ValueError, match="broken"):
            await run_together([("deaf", deaf.run()), ("failing", fail())])
    assert deaf.has_ended
