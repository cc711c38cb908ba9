"""A router without its log on a fresh database, for tests that tell a case line by line."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from chatlane.domain.catalog import Catalog
from tests.support.kernel import Kernel, open_kernel


@pytest.fixture
async def kernel(database_url: str) -> AsyncIterator[Kernel]:
    """A kernel with the usual platforms, one agent `main` and no resets."""
    async with open_kernel(database_url) as opened:
        yield opened


@pytest.fixture
async def kernel_with(database_url: str) -> AsyncIterator[Callable[[Catalog], Awaitable[Kernel]]]:
    """Open a kernel with a catalog of the test's own."""
    async with AsyncExitStack() as stack:

        async def opened(declared: Catalog) -> Kernel:
            return await stack.enter_async_context(open_kernel(database_url, declared))

        yield opened
