"""Times at which people write, whether or not what they wrote before is stored by then."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from time import monotonic


async def paced(per_second: float, stop: asyncio.Event) -> AsyncIterator[None]:
    """Yield so often a second until told to stop; times that were missed are made up for."""
    begin = monotonic()
    for number in count(1):
        if stop.is_set():
            return
        yield
        await asyncio.sleep(begin + number / per_second - monotonic())
