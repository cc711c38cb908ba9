"""Jobs of a router: periodic ones, and ones that run at a due time instead of at the next sweep."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.errors import TransientError
from chatlane.observability.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = get_logger("jobs")


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs at intervals.

    Attributes:
        name: Name in the logs.
        every: Pause between the end of one run and the start of the next, varied by up to half.
        run: Must be safe to run in several routers at once.
    """

    name: str
    every: timedelta
    run: Callable[[], Awaitable[object]]


async def attempt(job: Job) -> None:
    """Run a job once and log its failure."""
    try:
        await job.run()
    except TransientError as error:
        _log.warning("sweep_postponed", task=job.name, reason=str(error))
    except Exception:  # noqa: BLE001 - other jobs continue, and this one runs again later
        _log.exception("sweep_failed", task=job.name)


# The clock of the database may differ: a run that is slightly late finds its rows due, a run
# that is early finds nothing.
_MARGIN_SECONDS: Final = 0.02


class WakeupTimer:
    """Run a job at each of the times it was scheduled for."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._is_set = asyncio.Event()

    def schedule_within(self, span: timedelta) -> None:
        """Schedule another run after `span`."""
        due = asyncio.get_running_loop().time() + span.total_seconds()
        self._times.append(due + _MARGIN_SECONDS)
        self._is_set.set()

    async def run(self, ring: Callable[[], Awaitable[object]]) -> None:
        """Call `ring` at each due time until cancelled; the next sweep covers failed calls."""
        while True:
            await self._until_due()
            await attempt(Job("alarm", timedelta(0), ring))

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._times or (wait := min(self._times) - loop.time()) > 0:
            self._is_set.clear()
            pause = None if not self._times else wait
            try:
                async with asyncio.timeout(pause):
                    await self._is_set.wait()
            except TimeoutError:
                break
        now = loop.time()
        self._times = [time for time in self._times if time > now]
