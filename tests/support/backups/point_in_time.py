"""A backup of a whole Postgres as docs/operations.md says: a base backup, and the log all the time."""

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg

from chatlane_servers.binaries import unprivileged_identity
from chatlane_servers.embedded import PostgresServer
from tests.support.eventually import eventually
from tests.support.servers.databases import with_login

_PATIENCE: Final = timedelta(seconds=60)
# Who copies a server may read all of it, and is no superuser.
_COPIER: Final = "chatlane_copier"


@dataclass(slots=True)
class PointInTime:
    """Where it is kept, and the moment to go back to.

    Attributes:
        directory: What the server can write to.
    """

    directory: Path
    moment: datetime | None = None

    def prepared(self) -> Mapping[str, str]:
        """Make the place; return what settings the server needs from its start on."""
        archive = self.directory / "archive"
        for path in (self.directory, archive):
            path.mkdir()
            # The server is somebody else where the tests are run by root.
            path.chmod(0o777)
        command = f"test ! -f {archive}/%f && cp %p {archive}/%f"
        return {"archive_mode": "on", "archive_command": command, "archive_timeout": "1min"}

    async def begin(self, server: PostgresServer) -> None:
        """Take the base backup while everything runs."""
        await _ask(server, f"CREATE ROLE {_COPIER} LOGIN REPLICATION PASSWORD '{_COPIER}'")
        process = await asyncio.create_subprocess_exec(
            str(server.programs / "pg_basebackup"),
            *("--dbname", with_login(server.url, _COPIER, _COPIER)),
            *("--pgdata", str(self.directory / "base")),
            *("--wal-method", "stream", "--checkpoint", "fast"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()

    async def remember(self, server: PostgresServer) -> None:
        """Let this be the moment to go back to."""
        self.moment = await _ask(server, "SELECT clock_timestamp()")

    async def lose(self, server: PostgresServer) -> None:
        """Lose the server with all it has; the log up to now is in the archive."""
        segment = await _ask(server, "SELECT pg_walfile_name(pg_switch_wal())")
        await eventually((self.directory / "archive" / segment).exists, _PATIENCE)
        await server.kill()
        shutil.rmtree(server.directory / "data")

    async def restore(self, server: PostgresServer) -> None:
        """Bring it back as it was at the moment; returns when it takes writes."""
        assert self.moment is not None
        data = server.directory / "data"
        shutil.copytree(self.directory / "base", data)
        (data / "recovery.signal").touch()
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write(
                f"restore_command = 'cp {self.directory}/archive/%f %p'\n"
                f"recovery_target_time = '{self.moment.isoformat()}'\n"
                "recovery_target_action = promote\n"
            )
        _give(data)
        await server.start()

        async def takes_writes() -> bool:
            return not await _ask(server, "SELECT pg_is_in_recovery()")

        await eventually(takes_writes, _PATIENCE)


def _give(directory: Path) -> None:
    """Let a directory with all that is in it be the server's own."""
    if (user := unprivileged_identity()) is not None:
        for path in (directory, *directory.rglob("*")):
            shutil.chown(path, user.uid, user.gid)


async def _ask(server: PostgresServer, statement: str) -> Any:  # noqa: ANN401 - whatever it answers
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()
