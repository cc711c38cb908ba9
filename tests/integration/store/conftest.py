"""An open pool on a database of the test's own."""

from collections.abc import AsyncIterator

import pytest

from chatlane.postgres.pool import Store, open_store


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as opened:
        yield opened
