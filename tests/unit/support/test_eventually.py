import asyncio
from datetime import timedelta

import pytest

from tests.support.eventually import eventually

SHORT = timedelta(milliseconds=50)


async def test_the_first_truthy_value_is_returned() -> None:
    values = iter([0, None, 7, 8])
    assert await eventually(lambda: next(values)) == 7


async def test_a_condition_may_be_a_coroutine() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)

    async def is_set() -> bool:
        return event.is_set()

    assert await eventually(is_set)


async def test_an_assertion_in_the_condition_means_not_yet() -> None:
    calls = []

    def condition() -> bool:
        calls.append(1)
        assert len(calls) == 3
        return True

    assert await eventually(condition)


async def test_the_deadline_tells_the_last_value() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.05 s; last: \[\]"):
        await eventually(list[int], SHORT)
