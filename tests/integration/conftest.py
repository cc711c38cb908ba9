"""One migrated database that tests empty instead of copying a new one."""

from collections.abc import AsyncIterator

import pytest

from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database


@pytest.fixture(scope="session")
async def shared_database_url(
    postgres_server: RunningPostgres, template_database: str
) -> AsyncIterator[str]:
    """URL of a migrated database that the tests of a run share; each empties it first."""
    async with open_database(postgres_server.url, template_database) as name:
        yield postgres_server.dsn(name)
