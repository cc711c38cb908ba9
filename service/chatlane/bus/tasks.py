"""Ends tasks that talk to NATS, which takes more than a cancellation."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_PATIENCE_SECONDS: Final = 0.05


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended; its result or error is dropped.

    One cancellation may get lost: nats-py swallows one that meets its flush, and
    `asyncio.wait_for` of Python 3.11 one that comes together with the answer.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_PATIENCE_SECONDS)
    if not task.cancelled():
        task.exception()
