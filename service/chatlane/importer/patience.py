"""Repeat what an import writes while Postgres is away for a moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from chatlane.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ResultT = TypeVar("ResultT")

_TRIES: Final = 5
_RETRY_PAUSE_SECONDS: Final = 0.5


async def patiently(write: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Return the result of a transaction, which is tried again after a transient error.

    Raises:
        TransientError: The last attempt failed.
    """
    for _ in range(1, _TRIES):
        try:
            return await write()
        except TransientError:
            await asyncio.sleep(_RETRY_PAUSE_SECONDS)
    return await write()
