"""A database that a test of an adapter may kill with its server."""

from collections.abc import AsyncIterator

import pytest

from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import migrated, open_database


@pytest.fixture
async def own_database_url(own_postgres: RunningPostgres) -> AsyncIterator[str]:
    """URL of a migrated database on the Postgres server of the test."""
    async with open_database(own_postgres.url) as name:
        dsn = own_postgres.dsn(name)
        await migrated(dsn)
        yield dsn
