"""Both logs and a database with their partitions."""

from collections.abc import AsyncIterator

import pytest

from chatlane.postgres.pool import Store, open_store
from tests.support.servers.log_streams import LogStreams, open_logs
from tests.support.worlds.small_router import prepare

OWNED = 32


@pytest.fixture
async def logs(nats_url: str) -> AsyncIterator[LogStreams]:
    async with open_logs(nats_url, OWNED) as opened:
        yield opened


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as opened:
        await prepare(opened, OWNED)
        yield opened
