"""All machines lose power at once; their disks keep what was synced and forget the rest."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

import pytest

from chatlane.bus.jetstream import JetStream
from chatlane.dev.binaries import server_directory
from chatlane.dev.processes import ServerStartError
from chatlane.dev.servers import EmbeddedServer, NatsServer
from chatlane.errors import BusUnavailableError
from chatlane_client import open_connection
from tests.support.eventually import eventually
from tests.support.forgetful_disk import ForgetfulDisk, open_forgetful_disk
from tests.support.nats_cluster import open_nats_cluster

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(300)]

CUTS: Final = 3
MESSAGES: Final = 200
PATIENCE: Final = timedelta(seconds=20)
BODY: Final = b"x" * 500


@pytest.fixture
async def disk() -> AsyncIterator[ForgetfulDisk]:
    with server_directory() as directory:
        async with open_forgetful_disk(directory) as its:
            yield its


async def cut(disk: ForgetfulDisk, *servers: EmbeddedServer) -> None:
    """Cut the power of servers and their disk, and start them again."""
    for server in servers:
        await server.kill()
    await disk.cut()
    await disk.mount()
    await asyncio.gather(*(server.start() for server in servers))


async def stored(url: str, replicas: int, *, count: int = MESSAGES) -> int:
    """Publish to a stream; returns the sequence of the last acknowledged message."""
    async with open_connection(url, name="test") as client:
        config = {"name": "KEPT", "subjects": ["kept"], "num_replicas": replicas}
        jetstream = JetStream(client, PATIENCE)
        if await jetstream.find_stream("KEPT") is None:
            await jetstream.request("STREAM.CREATE.KEPT", {**config, "storage": "file"})
        acknowledged = [
            await client.jetstream().publish("kept", BODY, timeout=10) for _ in range(count)
        ]
        return acknowledged[-1].seq


async def kept(url: str) -> int:
    """Return the last sequence that a stream has; 0 when there is no stream any more."""
    async with open_connection(url, name="test") as client:

        async def look() -> tuple[int, ...]:
            try:
                state = await JetStream(client).find_stream("KEPT")
            except BusUnavailableError:
                # Servers that elect a leader answer nothing.
                return ()
            return (state.last_sequence if state else 0,)

        return (await eventually(look, timedelta(seconds=60)))[0]


async def test_a_server_that_syncs_always_keeps_what_it_acknowledged(disk: ForgetfulDisk) -> None:
    server = NatsServer(disk.directory / "nats", sync_always=True)
    await server.start()
    try:
        for _ in range(CUTS):
            last = await stored(server.url, 1)
            await cut(disk, server)
            assert await kept(server.url) == last
    finally:
        await server.kill()


async def test_a_server_that_syncs_now_and_then_loses_what_it_acknowledged(
    disk: ForgetfulDisk,
) -> None:
    """Shows that the disk forgets; it is also why production syncs always."""
    server = NatsServer(disk.directory / "nats", sync_always=False)
    await server.start()
    try:
        last = await stored(server.url, 1)
        try:
            async with asyncio.timeout(10):
                await cut(disk, server)
            left = await kept(server.url)
        except (ServerStartError, TimeoutError):
            # Not even the stream is there, and the server calls itself unhealthy.
            left = 0
        assert left < last
    finally:
        await server.kill()


async def test_a_cluster_that_loses_power_as_a_whole_keeps_what_it_acknowledged(
    disk: ForgetfulDisk,
) -> None:
    async with open_nats_cluster(disk.directory) as cluster:
        url = cluster.urls[0]
        last = await stored(url, 3)
        await cut(disk, *cluster.servers.values())
        assert await kept(url) == last
        assert await stored(url, 3, count=1) == last + 1
