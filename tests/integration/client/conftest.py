"""A NATS server with the topology, and a router on it."""

from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client

from chatlane_client import open_connection
from tests.integration.client.fake_router import FakeRouter
from tests.integration.client.routing import AGENTS, SLOTS, apply_topology, no_deliveries
from tests.support.servers.backends import RunningServer


@pytest.fixture
async def bus_url(nats_url: str) -> str:
    """URL of a NATS server with all streams and durables."""
    await apply_topology(nats_url)
    return nats_url


@pytest.fixture
async def mortal_bus(nats_server: RunningServer) -> RunningServer:
    """A NATS server of the test's own with all streams and durables, to be killed."""
    await apply_topology(nats_server.url)
    return nats_server


@pytest.fixture
async def client(bus_url: str) -> AsyncIterator[Client]:
    async with open_connection(bus_url, name="test") as connection, no_deliveries(bus_url):
        yield connection


@pytest.fixture
async def router(bus_url: str) -> AsyncIterator[FakeRouter]:
    fake = FakeRouter(bus_url, AGENTS, SLOTS)
    async with fake.running():
        yield fake
