"""Routers: the live ones by the clock of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from chatlane.postgres.pool import Connection


class Peer(NamedTuple):
    """A live router, and the time until it no longer counts as live."""

    id: UUID
    seconds_left: float


class Heartbeat(NamedTuple):
    """The result of a heartbeat.

    Attributes:
        written: Until when the router counts as live.
        found: The previous value; None if there was no row.
    """

    written: datetime
    found: datetime | None


HEARTBEAT_SQL: Final[LiteralString] = """
-- routers: write a heartbeat
INSERT INTO routers (id, version, seen_until)
VALUES ($1, $2, clock_timestamp() + $3::interval)
ON CONFLICT (id) DO UPDATE SET seen_until = clock_timestamp() + $3::interval
RETURNING seen_until, (SELECT before.seen_until FROM routers AS before WHERE id = $1) AS found
"""


async def heartbeat(
    connection: Connection, router: UUID, version: str, lease: timedelta
) -> Heartbeat:
    """Mark a router as live for `lease` from now."""
    [row] = await connection.fetch(HEARTBEAT_SQL, router, version, lease)
    return Heartbeat(row["seen_until"], row["found"])


LIVE_SQL: Final[LiteralString] = """
-- routers: the live routers by id, the order in which partitions are distributed
SELECT id, extract(epoch FROM seen_until - clock_timestamp())::float8 AS seconds_left
FROM routers WHERE seen_until > clock_timestamp() ORDER BY id
"""


async def live(connection: Connection) -> list[Peer]:
    """Return the routers that are live now, in id order."""
    return [Peer(row["id"], row["seconds_left"]) for row in await connection.fetch(LIVE_SQL)]


WITHDRAW_SQL: Final[LiteralString] = """
-- routers: end the lease of a router
UPDATE routers SET seen_until = clock_timestamp() WHERE id = $1 AND seen_until > clock_timestamp()
"""


async def withdraw(connection: Connection, router: UUID) -> None:
    """Stop counting as live at once, so that the other routers take over the partitions."""
    await connection.execute(WITHDRAW_SQL, router)


PRUNE_SQL: Final[LiteralString] = """
-- routers: delete routers that expired long ago
DELETE FROM routers WHERE seen_until < clock_timestamp() - $1::interval
"""


async def prune(connection: Connection, dead_for: timedelta) -> None:
    """Delete the rows of routers that expired at least `dead_for` ago."""
    await connection.execute(PRUNE_SQL, dead_for)
