"""Backups and their restore as docs/operations.md describes them, with the service in between."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg

from chatlane.config.settings import load_settings
from chatlane_devkit.judge.history import History
from chatlane_schemas.topology.streams import STREAMS_OF_PEOPLE
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import NatsServer, PostgresServer, open_nats, open_postgres
from tests.support.backups.database_backup import dump, restore_database
from tests.support.backups.point_in_time import PointInTime
from tests.support.backups.stream_backup import Backup, back_up, restore
from tests.support.eventually import eventually
from tests.support.servers.databases import migrated
from tests.support.service.load_users import LoadUsers, Person
from tests.support.service.processes import apply_topology
from tests.support.service.scene import ALL_PARTITIONS, Scene, open_scene

_DATABASE: Final = "chatlane"
# Shorter than a drill, so that nothing in it rests on a repeat that the server knows by chance.
_WINDOW: Final = timedelta(seconds=3)
# As long as the backups are old, and longer.
_WINDOW_OF_A_RESTORE: Final = timedelta(hours=1)
PATIENCE: Final = timedelta(seconds=60)
# Answers of each agent that are in the log only, not in the base backup.
_REPLAYED: Final = 10


@dataclass(slots=True)
class Drill:
    """The service with servers of its own, and what was backed up."""

    scene: Scene
    nats: NatsServer
    postgres: PostgresServer
    directory: Path
    streams: tuple[Backup, ...] = ()
    point_in_time: PointInTime | None = None

    @property
    def users(self) -> LoadUsers:
        """Who writes."""
        return self.scene.users

    async def start(self) -> None:
        """Start one of everything."""
        await self.scene.start(routers=1, workers=1, subscribers=1)

    async def back_up_database(self) -> None:
        """Dump it while everything runs, or let this be the moment that its log is replayed to."""
        if self.point_in_time is None:
            await dump(self.postgres, self.scene.service.dsn, self.directory / "dump")
            return
        await self.point_in_time.begin(self.postgres)
        await self.scene.until_answers_flow(_REPLAYED)
        await self.point_in_time.remember(self.postgres)

    async def back_up_streams(self) -> None:
        """Back all streams up, one after the other, those that answers go to at the end."""
        self.streams = tuple([await back_up(self.scene.client, its) for its in STREAMS_OF_PEOPLE])

    async def stop(self) -> None:
        """Stop workers first, which answer what they have, then routers; adapters stay."""
        processes = self.scene.service.processes
        for name in ("worker-1", "subscriber 1", "router 1"):
            await processes.pop(name).stop()

    async def restore_database(self) -> None:
        """Restore it, and bring it to this release."""
        self.scene.recorder.close()
        dsn = self.scene.service.dsn
        if self.point_in_time is None:
            await restore_database(self.postgres, dsn, self.directory / "dump")
        else:
            await self.point_in_time.lose(self.postgres)
            await self.point_in_time.restore(self.postgres)
        await migrated(dsn)

    async def restore_streams(self) -> None:
        """Restore all of them."""
        for backup in self.streams:
            await restore(self.scene.client, backup)

    async def widen_window(self) -> None:
        """Let the streams know again what they took since the backup."""
        service = self.scene.service
        text = service.config.read_text("utf-8")
        old, new = (
            f'duplicate_window = "{its.total_seconds():g}s"'
            for its in (_WINDOW, _WINDOW_OF_A_RESTORE)
        )
        assert old in text
        service.config.write_text(text.replace(old, new), "utf-8")
        service.settings = load_settings(service.config, {})
        await apply_topology(service.settings)
        await self.nats.stop()
        await self.nats.start()

    async def catch_up(self) -> None:
        """Start a router, and let it read what the logs have now; then start the others."""
        service = self.scene.service
        ends = await self.scene.recorder.ends()
        router = service.router("router 1")
        await service.until_started(router)
        await self.scene.recorder.until_owned(ALL_PARTITIONS, timeout=PATIENCE)

        async def is_read() -> bool:
            unread = await self.scene.recorder.unread(ends)
            assert not unread, unread
            return True

        await eventually(is_read, PATIENCE)
        service.worker("worker-1")
        service.subscriber("subscriber 1")

    async def settle(self) -> None:
        """Wait until everything is answered."""
        await self.scene.recorder.until_settled(self.users, PATIENCE)
        self.scene.require_running()

    async def history(self) -> History:
        """Return what there is to judge once everything is answered."""
        await self.settle()
        return await self.scene.recorder.history(self.users)


@asynccontextmanager
async def open_drill(
    directory: Path, members: Iterable[Person], *, more: str = "", keeps_log: bool = False
) -> AsyncIterator[Drill]:
    """Set the stage, with servers of its own.

    Args:
        directory: For configuration, logs and backups.
        members: Who writes.
        more: More settings of the service.
        keeps_log: Backs the database up by a base backup and its log, not by a dump.
    """
    with server_directory() as files:
        point_in_time = PointInTime(files / "backup") if keeps_log else None
        settings = point_in_time.prepared() if point_in_time else None
        async with (
            open_nats(files / "nats") as nats,
            open_postgres(files / "postgres", settings=settings) as postgres,
        ):
            connection = await asyncpg.connect(postgres.url)
            try:
                await connection.execute(f"CREATE DATABASE {_DATABASE}")
            finally:
                await connection.close()
            dsn = postgres.dsn(_DATABASE)
            await migrated(dsn)
            async with open_scene(
                directory, nats.url, dsn, members, duplicate_window=_WINDOW, more=more
            ) as scene:
                scene.patience = PATIENCE
                yield Drill(scene, nats, postgres, directory, point_in_time=point_in_time)
