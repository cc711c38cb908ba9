"""Wait for conditions that raise no event: database rows, processes."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import Final

_LOOK_AGAIN: Final = timedelta(milliseconds=25)


async def until(is_so: Callable[[], Awaitable[bool]], patience: timedelta) -> float:
    """Poll until a condition holds, and return the seconds that passed.

    Raises:
        TimeoutError: The condition did not hold in time.
    """
    begin = monotonic()
    async with asyncio.timeout(patience.total_seconds()):
        while not await is_so():  # noqa: ASYNC110 # there is no event to wait for
            await asyncio.sleep(_LOOK_AGAIN.total_seconds())
    return monotonic() - begin
