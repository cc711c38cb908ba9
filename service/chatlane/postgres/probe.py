"""Whether Postgres takes writes: what a demoted primary, which still answers reads, does not."""

from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

PROBE_SQL: Final[LiteralString] = """
-- probe: a write that changes nothing, in a row that only this process writes
UPDATE routers SET version = version WHERE id = $1
"""


async def write(connection: "PoolConnectionProxy", router: "UUID") -> None:
    """Write; a server that is read-only refuses even when there is no row."""
    await connection.execute(PROBE_SQL, router)
