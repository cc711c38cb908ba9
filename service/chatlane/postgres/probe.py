"""Check that Postgres accepts writes; a demoted primary answers reads only."""

from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

PROBE_SQL: Final[LiteralString] = """
-- probe: a write that changes nothing, in a row that only this process writes
UPDATE routers SET version = version WHERE id = $1
"""


async def write(connection: "PoolConnectionProxy", router: "UUID") -> None:
    """Execute a write; a read-only server rejects it even if no row matches."""
    await connection.execute(PROBE_SQL, router)
