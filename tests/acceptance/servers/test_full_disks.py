"""No room for a server: who writes is told to come later, and nothing that was stored is lost."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from chatlane_servers.binaries import server_directory, unprivileged_identity
from chatlane_servers.embedded import NatsServer, PostgresServer
from tests.acceptance.conftest import ReportLine
from tests.acceptance.servers.small_disk import SmallDisk, open_small_disk
from tests.support.eventually import eventually
from tests.support.servers.databases import migrated
from tests.support.servers.postgres_pair import execute
from tests.support.service.load_users import Person
from tests.support.service.scene import Scene, open_scene, seconds_since

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(180)]

PER_SECOND: Final = 60
TOLD_WITHIN: Final = timedelta(seconds=4)
# What people write while there is no room.
UNHEARD: Final = 100
DATABASE: Final = "chatlane"


@pytest.fixture
async def small_nats() -> AsyncIterator[tuple[NatsServer, SmallDisk]]:
    with server_directory() as directory:
        store = directory / "store"
        store.mkdir()
        with open_small_disk(store, 64) as disk:
            server = NatsServer(directory, sync_always=True)
            await server.start()
            try:
                yield server, disk
            finally:
                await server.kill()


@pytest.fixture
async def small_postgres() -> AsyncIterator[tuple[PostgresServer, SmallDisk]]:
    with server_directory() as directory:
        place = directory / "disk"
        place.mkdir()
        if identity := unprivileged_identity():
            shutil.chown(place, identity.uid, identity.gid)
        with open_small_disk(place, 320) as disk:
            # The user of the server has to get through.
            place.chmod(0o755)
            server = PostgresServer(place / "postgres")
            await server.start()
            try:
                yield server, disk
            finally:
                await server.kill()


async def test_without_room_for_nats_adapters_are_told_and_nothing_is_lost(
    small_nats: tuple[NatsServer, SmallDisk],
    database_url: str,
    tmp_path: Path,
    report_line: ReportLine,
) -> None:
    """A stream that could not be written takes nothing more until its server is restarted."""
    server, disk = small_nats
    async with open_scene(tmp_path, server.url, database_url) as scene:
        await scene.start()
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            disk.fill()
            await scene.until_unheard(UNHEARD)
            impatient = asyncio.create_task(_say_until_put_off(scene))
            await eventually(lambda: scene.users.put_off, timedelta(seconds=30))
            disk.empty()
            await server.stop()
            await server.start()
            began_at = monotonic()
            await scene.until_answers_flow()
            flow = seconds_since(began_at)
            await impatient
        await scene.verify()
        scene.require_running()
    assert scene.users.put_off[0] < 2 * TOLD_WITHIN.total_seconds()
    report_line(f"answers flow {flow} after the restart")


async def _say_until_put_off(scene: Scene) -> None:
    """Write as an adapter does that has to answer its platform soon."""
    person = Person("impatient")
    while not scene.users.put_off:
        await scene.users.say(person, give_up_after=TOLD_WITHIN)


async def test_without_room_for_postgres_messages_wait_in_the_log(
    nats_url: str,
    small_postgres: tuple[PostgresServer, SmallDisk],
    tmp_path: Path,
    report_line: ReportLine,
) -> None:
    server, disk = small_postgres
    await execute(server, f"CREATE DATABASE {DATABASE}")
    await migrated(server.dsn(DATABASE))
    async with open_scene(tmp_path, nats_url, server.dsn(DATABASE)) as scene:
        await scene.start()
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            disk.fill()
            await _until_nothing_is_written(server)
            await scene.until_unheard(UNHEARD)
            disk.empty()
            await server.stop(is_immediate=True)
            await server.start()
            began_at = monotonic()
            await scene.until_answers_flow()
            flow = seconds_since(began_at)
        await scene.verify()
        scene.require_running()
    report_line(f"answers flow {flow} after the restart")


async def _until_nothing_is_written(server: PostgresServer) -> None:
    """Use up the room that the server has set aside for its log."""

    async def is_full() -> bool:
        try:
            await execute(server, "SELECT pg_switch_wal()")
            await execute(server, "SELECT pg_logical_emit_message(false, 'x', repeat('x', 900000))")
        except Exception:  # noqa: BLE001 - refused, gone, or not back yet
            return True
        return False

    await eventually(is_full, timedelta(seconds=30))
