"""All machines lose power at once; their disks keep what was synced and forget the rest."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final

import asyncpg
import pytest

from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import JetStream
from chatlane_client import open_connection
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import EmbeddedServer, NatsServer, PostgresServer
from chatlane_servers.processes import ServerStartError
from tests.acceptance.conftest import ReportLine
from tests.acceptance.servers.lossy_fs import LossyFs, open_lossy_fs
from tests.support.eventually import eventually
from tests.support.servers.databases import migrated
from tests.support.servers.nats_cluster import open_nats_cluster
from tests.support.servers.postgres_pair import DATABASE, execute
from tests.support.service.scene import Scene, open_scene, seconds_since

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(300)]

CUTS: Final = 3
PER_SECOND: Final = 20
MESSAGES: Final = 200
PATIENCE: Final = timedelta(seconds=20)
# One thread of a Python program is the disk of everybody.
SLOW_DISK: Final = timedelta(seconds=120)
TURN_LEASE: Final = timedelta(seconds=5)
BODY: Final = b"x" * 500


@pytest.fixture
async def disk() -> AsyncIterator[LossyFs]:
    with server_directory() as directory:
        async with open_lossy_fs(directory) as its:
            yield its


async def cut(disk: LossyFs, *servers: EmbeddedServer) -> None:
    """Cut the power of servers and their disk, and start them again."""
    # Nobody goes on for a moment longer than the others.
    for server in servers:
        server.pause()
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


async def test_a_server_that_syncs_always_keeps_what_it_acknowledged(disk: LossyFs) -> None:
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
    disk: LossyFs,
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
    disk: LossyFs,
) -> None:
    async with open_nats_cluster(disk.directory) as cluster:
        url = cluster.urls[0]
        last = await stored(url, 3)
        await cut(disk, *cluster.servers.values())
        assert await kept(url) == last
        assert await stored(url, 3, count=1) == last + 1


@pytest.mark.parametrize("commit", ["on", "off"])
async def test_a_database_keeps_what_it_committed_where_commits_are_synced(
    disk: LossyFs, commit: str
) -> None:
    """The one that does not sync shows that the disk forgets what Postgres writes, too."""
    # Else it would be synced every 200 ms, and the test a matter of luck.
    postgres = await made_long_ago(disk, synchronous_commit=commit, wal_writer_delay="10s")
    await postgres.start()
    try:
        for number in range(1, CUTS + 1):
            await execute(postgres, "CREATE TABLE IF NOT EXISTS kept (id int)")
            await execute(postgres, "CHECKPOINT")
            connection = await asyncpg.connect(postgres.url)
            for id_ in range(MESSAGES):
                await connection.execute("INSERT INTO kept VALUES ($1)", id_)
            connection.terminate()
            await cut(disk, postgres)
            left = int(str(await execute(postgres, "SELECT count(*) FROM kept")))
            if commit == "off":
                assert left < number * MESSAGES
                return
            assert left == number * MESSAGES
    finally:
        await postgres.kill()


async def made_long_ago(disk: LossyFs, **settings: str) -> PostgresServer:
    """Return a server whose database is all on the disk; it is not running."""
    made = PostgresServer(disk.kept / "postgres")
    await made.start()
    try:
        await execute(made, f"CREATE DATABASE {DATABASE}")
        await migrated(made.dsn(DATABASE))
    finally:
        await made.stop()
    # Else it syncs every file before it recovers, one after the other.
    settings = {"recovery_init_sync_method": "syncfs", **settings}
    return PostgresServer(disk.directory / "postgres", settings=settings)


@pytest.mark.timeout(600)
async def test_a_service_that_loses_power_as_a_whole_loses_no_message(
    disk: LossyFs, tmp_path: Path, report_line: ReportLine
) -> None:
    """Only the platforms go on: they have what was not acknowledged, and what they were told."""
    nats = NatsServer(disk.directory / "nats", sync_always=True)
    postgres = await made_long_ago(disk)
    async with AsyncExitStack() as stack:
        for server in (nats, postgres):
            stack.push_async_callback(server.kill)
            await server.start()
        scene = await stack.enter_async_context(
            open_scene(
                tmp_path,
                nats.url,
                postgres.dsn(DATABASE),
                turn_lease=TURN_LEASE,
                max_attempts=2 + CUTS,
            )
        )
        scene.patience = SLOW_DISK
        await scene.start()
        async with scene.users.talking(PER_SECOND):
            for _ in range(CUTS):
                await scene.until_answers_flow()
                await cut_all(disk, scene, nats, postgres)
                began_at = monotonic()
                await scene.until_answers_flow()
                report_line(f"answers flow {seconds_since(began_at)} after the servers are back")
        await scene.verify()
        scene.require_running()


async def cut_all(disk: LossyFs, scene: Scene, *servers: EmbeddedServer) -> None:
    """Cut the power of every process, too; they come back once their servers have."""
    processes = scene.service.processes.values()
    for process in processes:
        process.send(signal.SIGSTOP)
    for server in servers:
        server.pause()
    for process in processes:
        await process.kill()
    await cut(disk, *servers)
    for process in processes:
        process.start()
