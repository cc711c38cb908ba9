"""Rings when something is due that a sweep would find a little later."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.jobs import Job, attempt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# Time goes by another clock in the database: rather a little late than in vain.
_MARGIN_SECONDS: Final = 0.02


class Alarm:
    """Rings at the earliest time it was set to, and again at the times after that."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._is_set = asyncio.Event()

    def ring_within(self, span: timedelta) -> None:
        """Ring so long from now, too."""
        due = asyncio.get_running_loop().time() + span.total_seconds()
        self._times.append(due + _MARGIN_SECONDS)
        self._is_set.set()

    async def run(self, ring: Callable[[], Awaitable[object]]) -> None:
        """Ring until cancelled; what fails is left to the sweep."""
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
