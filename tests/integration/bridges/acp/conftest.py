"""A router on real servers, and editors with a bridge each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.client import Client

from chatlane_client import open_connection
from tests.integration.client.real_router import real_router
from tests.support.bridges.plain_editor import Editors


@pytest.fixture
async def client(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Client]:
    async with (
        real_router(tmp_path, nats_url, database_url),
        open_connection(nats_url, name="test") as connection,
    ):
        yield connection


@pytest.fixture
def editors(tmp_path: Path, nats_url: str) -> Editors:
    return Editors(nats_url, tmp_path / "bridge.log")
