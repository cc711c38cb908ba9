"""A backup of a database as docs/operations.md says: `pg_dump`, and `pg_restore` into a new one."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import asyncpg

from chatlane_servers.embedded import PostgresServer

_PATIENCE: Final = timedelta(minutes=10)
# Both have two cores to themselves while a database is restored.
_JOBS: Final = 2


async def dump(server: PostgresServer, dsn: str, directory: Path) -> None:
    """Write a database, as it is at this moment, to a directory that is not there yet."""
    await _run(server, "pg_dump", "--format=directory", f"--file={directory}", f"--dbname={dsn}")


async def restore_database(server: PostgresServer, dsn: str, directory: Path) -> None:
    """Put a backup in the place of a database; whoever is connected to it is cut off."""
    name = urlsplit(dsn).path.removeprefix("/")
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
    arguments = ("--exit-on-error", f"--jobs={_JOBS}", f"--dbname={dsn}", str(directory))
    await _run(server, "pg_restore", *arguments)
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


async def _run(server: PostgresServer, program: str, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        str(server.programs / program),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(_PATIENCE.total_seconds()):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode(errors="replace")[-2000:]
