"""Growing, jittered pauses between attempts, and cancellation that cannot get lost."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

# Time that a cancelled task may use for cleanup before it is cancelled again.
_CANCEL_AGAIN: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from `first` to `longest`, each shortened by a random share of up to half.

    The jitter keeps clients that lost the same server from reconnecting at the same moment.
    """

    first: timedelta = timedelta(milliseconds=50)
    longest: timedelta = timedelta(seconds=2)

    def pauses(self) -> Iterator[float]:
        """Yield the pauses in seconds, without a limit."""
        pause, longest = self.first.total_seconds(), self.longest.total_seconds()
        while True:
            yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
            pause = min(pause * 2, longest)


async def was_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Pause until the event is set or the time is over; return whether the event is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
    return event.is_set()


class CancellationGuard:
    """Raises a cancellation that a callee swallowed; loops check it in each iteration.

    `asyncio.wait_for` of Python 3.11 loses a cancellation that arrives together with the result,
    and nats-py uses it for every wait. Without this guard, a cancelled task occasionally runs for
    ever.
    """

    def __init__(self) -> None:
        self._before = _cancellations()

    def check(self) -> None:
        """Raise `CancelledError` if this task was cancelled since the guard was made."""
        if _cancellations() > self._before:
            raise asyncio.CancelledError


async def cancel_until_ended(
    *tasks: asyncio.Future[Any], again_after: timedelta = _CANCEL_AGAIN
) -> None:
    """Cancel tasks repeatedly until they end, because a callee may swallow a cancellation.

    Args:
        tasks: Tasks to cancel.
        again_after: Time for cleanup before they are cancelled again.
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
