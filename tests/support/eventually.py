"""Waiting for a condition instead of for time to pass."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar, overload

_POLL: Final = timedelta(milliseconds=10)
# Long enough for a busy machine: only a test that fails waits for so long.
_PATIENCE: Final = timedelta(seconds=60)

T = TypeVar("T")


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]],
    timeout: timedelta = ...,  # noqa: ASYNC109 # the deadline is the point
) -> T: ...


@overload
async def eventually(
    condition: Callable[[], T],
    timeout: timedelta = ...,  # noqa: ASYNC109 # the deadline is the point
) -> T: ...


async def eventually(
    condition: Callable[[], T | Awaitable[T]],
    timeout: timedelta = _PATIENCE,  # noqa: ASYNC109 # the deadline is the point
) -> T:
    """Return the first truthy value of `condition`.

    An AssertionError in the condition counts as "not yet", so a condition may be a row of
    asserts that ends in `return True`.

    Raises:
        AssertionError: Nothing truthy before the deadline; tells the last value or assertion.
    """
    deadline = asyncio.get_running_loop().time() + timeout.total_seconds()
    while True:
        try:
            value = condition()
            result = await value if inspect.isawaitable(value) else value
            outcome: object = result
        except AssertionError as error:
            result, outcome = None, error
        if result:
            return result
        if asyncio.get_running_loop().time() >= deadline:
            raise AssertionError(f"not within {timeout.total_seconds():g} s; last: {outcome!r}")
        await asyncio.sleep(_POLL.total_seconds())
