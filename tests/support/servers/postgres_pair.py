"""A Postgres and its synchronous standby, and what an operator does when the first one fails."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import asyncpg
from typing_extensions import override

from chatlane_servers.embedded import LOOPBACK, PostgresServer
from chatlane_servers.processes import ServerProcess
from tests.support.eventually import eventually
from tests.support.servers.databases import migrated

DATABASE: Final = "chatlane"
_COPIED_WITHIN: Final = timedelta(seconds=60)
_STREAMING_WITHIN: Final = timedelta(seconds=30)
# What the service calls itself.
_SERVICE: Final = "chatlane"


class Standby(PostgresServer):
    """A copy of a running primary that follows it."""

    def __init__(self, directory: Path, primary: PostgresServer) -> None:
        super().__init__(directory, programs=primary.programs)
        self._primary = primary

    @override
    async def _prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._password = urlsplit(self._primary.url).password or ""
        if (self._data / "PG_VERSION").exists():
            return
        self._data.mkdir(mode=0o700)
        identity = self._identity
        if identity is not None:
            shutil.chown(self._data, identity.uid, identity.gid)
        process = ServerProcess(
            [
                str(self.programs / "pg_basebackup"),
                *("--pgdata", str(self._data), "--write-recovery-conf", "--no-sync"),
                *("--checkpoint", "fast", "--wal-method", "stream"),
                *("--dbname", f"{self._primary.dsn('postgres')}&application_name=standby"),
            ],
            log_path=self.log_path,
            identity=identity,
            parent_death_signal=self._parent_death_signal,
        )
        code = await process.wait(_COPIED_WITHIN)
        if code != 0:
            raise self._failure(f"pg_basebackup ended with exit code {code}")


@dataclass(frozen=True, slots=True)
class PostgresPair:
    """Both servers; commits wait until both have them on disk, unless the pair is asynchronous."""

    primary: PostgresServer
    standby: Standby

    @property
    def dsn(self) -> str:
        """Names both; who connects wants the one that takes writes."""
        parts = urlsplit(self.primary.dsn(DATABASE))
        identity = parts.netloc.rpartition("@")[0]
        hosts = f"{LOOPBACK}:{self.primary.port},{LOOPBACK}:{self.standby.port}"
        query = f"{parts.query}&target_session_attrs=read-write"
        return f"{parts.scheme}://{identity}@{hosts}{parts.path}?{query}"

    async def hold_back_standby(self) -> None:
        """Let the standby receive nothing from here on, as one that is far behind."""
        await execute(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        await execute(self.standby, "SELECT pg_reload_conf()")

        async def is_cut_off() -> bool:
            return await execute(self.primary, "SELECT count(*) FROM pg_stat_replication") == 0

        await eventually(is_cut_off, _STREAMING_WITHIN)

    async def demote(self) -> None:
        """Let the primary answer reads and refuse writes, as one that lost an election does."""
        await execute(self.primary, "ALTER SYSTEM SET default_transaction_read_only = on")
        await execute(self.primary, "SELECT pg_reload_conf()")

    async def promote(self) -> None:
        """Make the standby the primary; returns when it takes writes."""
        assert await execute(self.standby, "SELECT pg_promote(wait => true)")

    async def connections_to_old(self) -> int:
        """Return how many connections of the service the old primary has that do something."""
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"
            " AND state_change > clock_timestamp() - interval '1 second'"
        )
        return int(str(await execute(self.primary, query, _SERVICE)))


async def execute(server: PostgresServer, statement: str, *arguments: object) -> object:
    """Run one statement and return its first value, if it has one."""
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(statement, *arguments)
    finally:
        await connection.close()


@asynccontextmanager
async def open_postgres_pair(
    directory: Path, *, is_synchronous: bool = True
) -> AsyncIterator[PostgresPair]:
    """Run a primary with a migrated database and a standby.

    Args:
        directory: For their files; as for `open_postgres`.
        is_synchronous: Whether commits wait for the standby.
    """
    primary = PostgresServer(directory / "primary", settings={"wal_level": "replica"})
    standby = Standby(directory / "standby", primary)
    try:
        await primary.start()
        await execute(primary, f"CREATE DATABASE {DATABASE}")
        await migrated(primary.dsn(DATABASE))
        await standby.start()
        if is_synchronous:
            await execute(primary, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            await execute(primary, "SELECT pg_reload_conf()")
        wanted = "sync" if is_synchronous else "async"

        async def follows() -> bool:
            state = await execute(primary, "SELECT sync_state FROM pg_stat_replication")
            return state == wanted

        await eventually(follows, _STREAMING_WITHIN)
        yield PostgresPair(primary, standby)
    finally:
        await standby.kill()
        await primary.kill()
