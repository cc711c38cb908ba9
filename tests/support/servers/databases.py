"""A database for each test, copied from a template that was migrated once."""

import contextlib
import re
import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from chatlane.postgres.grants import Roles, grant
from chatlane.postgres.migrations import migrate
from chatlane.postgres.pool import open_store

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

_LOGINS: Final[set[tuple[str, str]]] = set()


def with_database(dsn: str, database: str) -> str:
    """Return `dsn` pointing at another database of the same server."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{database}"))


def with_login(dsn: str, user: str, password: str) -> str:
    """Return `dsn` for another user of the same database."""
    parts = urlsplit(dsn)
    hosts = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{hosts}"))


@contextlib.asynccontextmanager
async def open_database(dsn: str, template: str | None = None) -> AsyncIterator[str]:
    """Create a database, yield its name and drop it, with whoever is still connected.

    Args:
        dsn: Of a database of the server that is not the template.
        template: Database to copy; nobody may be connected to it.
    """
    name = f"test_{secrets.token_hex(6)}"
    statement = f"CREATE DATABASE {_identifier(name)}"
    if template is not None:
        # As files, with the one that spares the first connection to read the whole catalog.
        statement += f" TEMPLATE {_identifier(template)} STRATEGY file_copy"
    await execute(dsn, statement)
    try:
        yield name
    finally:
        await execute(dsn, f"DROP DATABASE IF EXISTS {_identifier(name)} WITH (FORCE)")


async def login_of(dsn: str, role: str = "chatlane_application") -> str:
    """Return `dsn` for a user who is a member of a role and nothing more.

    Users and roles are there for all databases of a server, and stay. Names of databases are
    random, so what was done for a database is not done again.
    """
    user = f"{role}_login"
    if (dsn, role) in _LOGINS:
        return with_login(dsn, user, user)
    connection = await asyncpg.connect(dsn)
    try:
        for statement in (
            f"CREATE ROLE {_identifier(role)} NOLOGIN",
            # Reached over loopback, for as long as the tests run.
            f"CREATE ROLE {_identifier(user)} LOGIN PASSWORD '{user}'",
        ):
            with contextlib.suppress(asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
                await connection.execute(statement)
        await connection.execute(f"GRANT {role} TO {user}")
    finally:
        await connection.close()
    _LOGINS.add((dsn, role))
    return with_login(dsn, user, user)


async def grant_rights(dsn: str) -> None:
    """Do what `chatlane admin grants --apply` does, but for what it finds."""
    async with open_store(dsn) as store, store.transaction() as connection:
        await grant(connection, Roles())


async def migrated(dsn: str) -> None:
    """Do what the owner of a database does for a release."""
    await migrate(dsn)
    await grant_rights(dsn)


async def execute(dsn: str, statement: str, *values: object) -> None:
    """Run a statement over a connection of its own."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement, *values)
    finally:
        await connection.close()


def _identifier(name: str) -> str:
    """Names of databases cannot be parameters; ours need no quotes."""
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise ValueError(name)
    return name


_DISCONNECT: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def disconnect_others(connection: asyncpg.Connection) -> None:
    """End the other sessions of the database, whose locks would delay the next test."""
    await connection.execute(_DISCONNECT)


_TABLES: Final = """
SELECT string_agg('DELETE FROM ' || relname, ';') FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
  AND relname <> 'schema_migrations'
"""


async def empty(connection: "asyncpg.Connection | PoolConnectionProxy") -> None:
    """Leave the rows that the migrations wrote, and no others."""
    await connection.execute(await connection.fetchval(_TABLES))
    await connection.execute("INSERT INTO reconciliation DEFAULT VALUES")
