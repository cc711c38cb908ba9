"""Run and end tasks that use NATS, for which one cancellation may not be enough."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

_PATIENCE_SECONDS: Final = 0.05


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended; discard its result or error."""
    await _end([task])


async def run_together(parts: Iterable[tuple[str, Coroutine[Any, Any, None]]]) -> None:
    """Run coroutines until they are cancelled; if one fails, end the others and raise its error.

    A task group cancels its tasks once, and never ends if a task loses that cancellation.

    Args:
        parts: The coroutines, each with the name of its task.
    """
    tasks = [asyncio.create_task(part, name=name) for name, part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await _end(tasks)


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks until all have ended, even if the caller itself is cancelled meanwhile.

    A cancellation may get lost: nats-py swallows one during its flush, and `asyncio.wait_for` of
    Python 3.11 swallows one that coincides with the answer.
    """
    was_cancelled = False
    while unfinished := [task for task in tasks if not task.done()]:
        for task in unfinished:
            task.cancel()
        try:
            await asyncio.wait(unfinished, timeout=_PATIENCE_SECONDS)
        except asyncio.CancelledError:
            was_cancelled = True
    for task in tasks:
        if not task.cancelled():
            task.exception()
    if was_cancelled:
        raise asyncio.CancelledError
