"""Growing, jittered pauses between tries, and cancellations that do not get lost."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

# A cancelled task may tidy up for so long before it is cancelled again.
_CANCEL_AGAIN: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from `first` to `longest`, each cut by a random share of up to half.

    The jitter keeps clients that lost the same server from coming back in step.
    """

    first: timedelta = timedelta(milliseconds=50)
    longest: timedelta = timedelta(seconds=2)

    def pauses(self) -> Iterator[float]:
        """Yield the pauses in seconds, without end."""
        pause, longest = self.first.total_seconds(), self.longest.total_seconds()
        while True:
            yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
            pause = min(pause * 2, longest)


async def was_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Pause, but no longer than until the event is set; return whether it is."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
    return event.is_set()


class CancellationGuard:
    """Raises a cancellation that was swallowed below; loops check it each time round.

    `asyncio.wait_for` of Python 3.11 loses a cancellation that comes together
    with the result, and nats-py waits with it for everything: without this,
    every now and then a task that was cancelled goes on for ever.
    """

    def __init__(self) -> None:
        self._before = _cancellations()

    def check(self) -> None:
        """Raise if somebody has cancelled this task since the guard was made."""
        if _cancellations() > self._before:
            raise asyncio.CancelledError


async def cancel_until_ended(
    *tasks: asyncio.Future[Any], again_after: timedelta = _CANCEL_AGAIN
) -> None:
    """Cancel tasks until they have ended; one cancellation may get lost below them.

    Args:
        tasks: To cancel.
        again_after: How long they may tidy up before they are cancelled again.
    """
    unfinished = {task for task in tasks if not task.done()}
    while unfinished:
        for task in unfinished:
            task.cancel()
        _, unfinished = await asyncio.wait(unfinished, timeout=again_after.total_seconds())
    await asyncio.gather(*tasks, return_exceptions=True)


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
