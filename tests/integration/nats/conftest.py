"""Both logs on the shared server."""

from collections.abc import AsyncIterator

import pytest

from tests.support.servers.log_streams import LogStreams, open_logs


@pytest.fixture
async def logs(nats_url: str) -> AsyncIterator[LogStreams]:
    async with open_logs(nats_url) as opened:
        yield opened
