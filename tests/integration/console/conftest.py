"""A router, a connection to it, and a console behind a trusted proxy; the tests of a file share them."""

from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest
from nats.aio.client import Client

from chatlane_client import open_connection
from chatlane_client.media.store import MediaSettings
from tests.integration.client.real_router import real_router
from tests.integration.console.console_world import (
    MAX_FILE_BYTES,
    PROXY,
    ConsoleWorld,
    open_console,
)
from tests.support.servers.backends import RunningServer, delete_streams
from tests.support.servers.databases import disconnect_others, empty


@pytest.fixture(scope="module")
def router_config() -> str:
    """Further lines of the router's configuration."""
    return ""


@pytest.fixture(scope="module")
async def routed_url(
    tmp_path_factory: pytest.TempPathFactory,
    shared_nats: RunningServer,
    shared_database_url: str,
    router_config: str,
) -> AsyncIterator[str]:
    """URL of a NATS server with a router on it."""
    await delete_streams(shared_nats.url)
    connection = await asyncpg.connect(shared_database_url)
    try:
        await disconnect_others(connection)
        await empty(connection)
    finally:
        await connection.close()
    directory = tmp_path_factory.mktemp("router")
    async with real_router(
        directory, shared_nats.url, shared_database_url, more_config=router_config
    ):
        yield shared_nats.url


@pytest.fixture(scope="module")
async def client(routed_url: str) -> AsyncIterator[Client]:
    async with open_connection(routed_url, name="test") as connection:
        yield connection


@pytest.fixture(scope="module")
async def served(
    routed_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ConsoleWorld]:
    media = MediaSettings(
        url=str(tmp_path_factory.mktemp("media")), max_bytes=MAX_FILE_BYTES, types=("*/*",)
    )
    async with open_console(routed_url, **PROXY, media=media) as world:
        yield world


@pytest.fixture
def console(served: ConsoleWorld) -> ConsoleWorld:
    """A console whose people come through a trusted proxy, and are other people in each test."""
    return ConsoleWorld(served.app, served.url, suffix=f"-{uuid4().hex}")
