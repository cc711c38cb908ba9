"""A migrated database, its pool, and a router without its log on it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest

from chatlane.domain.catalog import Catalog
from chatlane.postgres.pool import Store, open_store
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import disconnect_others, empty, open_database
from tests.support.worlds.kernel import Kernel, open_kernel


@pytest.fixture(scope="session")
async def shared_database_url(
    postgres_server: RunningPostgres, template_database: str
) -> AsyncIterator[str]:
    """URL of a migrated database that the tests of a run share; each empties it first."""
    async with open_database(postgres_server.url, template_database) as name:
        yield postgres_server.dsn(name)


@pytest.fixture
async def database_url(shared_database_url: str) -> str:
    """URL of a migrated database without rows: 4 ms, where to copy a database takes 340 ms."""
    connection = await asyncpg.connect(shared_database_url)
    try:
        await disconnect_others(connection)
        await empty(connection)
    finally:
        await connection.close()
    return shared_database_url


@pytest.fixture
async def own_database_url(
    postgres_server: RunningPostgres, template_database: str
) -> AsyncIterator[str]:
    """URL of a migrated database of the test's own, for tests that change more than rows."""
    async with open_database(postgres_server.url, template_database) as name:
        yield postgres_server.dsn(name)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as opened:
        yield opened


@pytest.fixture
async def kernel(database_url: str) -> AsyncIterator[Kernel]:
    """A kernel with the usual platforms, one agent `main` and no resets."""
    async with open_kernel(database_url) as opened:
        yield opened


@pytest.fixture
async def own_kernel(own_database_url: str) -> AsyncIterator[Kernel]:
    """A kernel on a database of its own, for tests that change more than rows."""
    async with open_kernel(own_database_url) as opened:
        yield opened


@pytest.fixture
async def kernel_with(database_url: str) -> AsyncIterator[Callable[[Catalog], Awaitable[Kernel]]]:
    """Open a kernel with a catalog of the test's own."""
    async with AsyncExitStack() as stack:

        async def opened(declared: Catalog) -> Kernel:
            return await stack.enter_async_context(open_kernel(database_url, declared))

        yield opened
