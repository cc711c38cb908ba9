"""Check times of open sessions: find the sessions that a sweep checks, and reschedule them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.domain.log import LogPosition
from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.postgres.pool import Connection


class Check(NamedTuple):
    """The next check time of a session (None if no rule ends it) and its announced end."""

    session_id: UUID
    check_at: datetime | None
    ending_at: datetime | None


class Unchecked(NamedTuple):
    """An open session that no sweep has checked yet, and the key that determines its deadline."""

    id: UUID
    session_key: str


NOW_SQL: Final[LiteralString] = """
-- sessions: the clock for the deadlines of a sweep
SELECT clock_timestamp()
"""


async def now(connection: Connection) -> datetime:
    """Return the time of the database."""
    at: datetime = await connection.fetchval(NOW_SQL)
    return at


FIND_DUE_SQL: Final[LiteralString] = """
-- sessions: open sessions that are due for a check, longest overdue first
SELECT id FROM sessions
WHERE ended_at IS NULL AND check_at IS NOT NULL AND check_at <= (SELECT clock_timestamp())
ORDER BY check_at LIMIT $1
"""


async def find_due(connection: Connection, limit: int) -> list[UUID]:
    """Return up to `limit` sessions that are due for a check, unlocked."""
    return [row[0] for row in await connection.fetch(FIND_DUE_SQL, limit)]


FIND_UNCHECKED_SQL: Final[LiteralString] = """
-- sessions: the next sessions by id, with the key of those that no sweep has checked
SELECT id, CASE WHEN ended_at IS NULL AND check_at IS NULL AND platform = ANY($2::text[])
                THEN session_key END AS session_key
FROM (SELECT id, session_key, platform, ended_at, check_at
      FROM sessions WHERE id > $1 ORDER BY id LIMIT $3) AS next
ORDER BY id
"""


async def find_unchecked(
    connection: Connection,
    after: UUID,
    platforms: Sequence[str],
    limit: int,
) -> tuple[list[Unchecked], UUID | None]:
    """Scan the next `limit` sessions; returns the sessions to schedule and the last id scanned."""
    rows = await connection.fetch(FIND_UNCHECKED_SQL, after, platforms, limit)
    found = [Unchecked(*row.values()) for row in rows if row["session_key"] is not None]
    return found, rows[-1]["id"] if rows else None


ARM_SQL: Final[LiteralString] = """
-- sessions: schedule the first check of unlocked sessions
UPDATE sessions SET check_at = clock_timestamp()
WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM sessions
    WHERE id = ANY($1::uuid[]) AND ended_at IS NULL AND check_at IS NULL
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED))
"""


async def arm(connection: Connection, ids: Iterable[UUID]) -> None:
    """Schedule sessions for the next sweep, except those that are locked or already scheduled."""
    await connection.execute(ARM_SQL, list(ids))


LOOK_SOON_SQL: Final[LiteralString] = """
-- sessions: schedule a check of a locked session
UPDATE sessions SET check_at = clock_timestamp() WHERE id = $1
"""


async def look_soon(connection: Connection, session_id: UUID) -> None:
    """Schedule a locked session for the next sweep."""
    await connection.execute(LOOK_SOON_SQL, session_id)


ANNOUNCED_SQL: Final[LiteralString] = """
-- sessions: the announced ends of locked sessions
SELECT id, ending_at FROM sessions WHERE id = ANY($1::uuid[])
"""


async def announced(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, datetime | None]:
    """Return the announced end of each locked session."""
    return {row[0]: row[1] for row in await connection.fetch(ANNOUNCED_SQL, list(ids))}


WRITE_SQL: Final[LiteralString] = """
-- sessions: write the next check of locked sessions
UPDATE sessions SET check_at = new.check_at, ending_at = new.ending_at
FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[]) AS new (id, check_at, ending_at)
WHERE sessions.id = new.id
"""


async def write(connection: Connection, checks: Sequence[Check]) -> None:
    """Write the check times of locked sessions."""
    if checks:
        await connection.execute(WRITE_SQL, *columns(checks, 3))


POSITIONS_SQL: Final[LiteralString] = """
-- partitions: the committed positions of the inbound log
SELECT cursor, cursor_at, generation FROM partitions WHERE log = 'inbound'
"""


async def positions(connection: Connection) -> list[LogPosition]:
    """Return the position of every partition of the inbound log."""
    return [LogPosition(*row.values()) for row in await connection.fetch(POSITIONS_SQL)]
