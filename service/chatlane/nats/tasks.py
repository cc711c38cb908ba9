"""Ends tasks that talk to NATS, which takes more than a cancellation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

_PATIENCE_SECONDS: Final = 0.05


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended; its result or error is dropped."""
    await _end([task])


async def run_together(parts: Iterable[tuple[str, Coroutine[Any, Any, None]]]) -> None:
    """Run parts that go on until they are cancelled; where one fails, end the others and raise.

    A task group cancels its tasks once, and waits for ever for one in which that got lost.

    Args:
        parts: Each with the name of its task.
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
    """Cancel tasks until all have ended, also while who waits for that is cancelled, too.

    One cancellation may get lost: nats-py swallows one that meets its flush, and
    `asyncio.wait_for` of Python 3.11 one that comes together with the answer.
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
