"""Early purges of messages, made because one owner used too much of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

if TYPE_CHECKING:
    from datetime import timedelta

    from chatlane.domain.limits.shares import SharedStream
    from chatlane.postgres.pool import Connection


class Holes(NamedTuple):
    """Messages of a stream that the service deleted itself, between two places.

    Attributes:
        noted: Messages that were deleted or are about to be.
        deleted: Messages that were certainly deleted.
    """

    noted: int
    deleted: int


NO_HOLES: Final = Holes(0, 0)


class Trim(NamedTuple):
    """Messages of one owner between two places of a log, both included."""

    log: SharedStream
    generation: str
    owner: str
    first_sequence: int
    last_sequence: int


NOTE_TRIM_SQL: Final[LiteralString] = """
-- log_trims: record a range that is about to be purged
INSERT INTO log_trims AS trims
    (log, generation, owner, hour, first_seq, last_seq, noted, trimmed_at)
VALUES ($1, $2, $3, date_trunc('hour', clock_timestamp(), 'UTC'), $4::bigint, $5::bigint,
        $5::bigint - $4::bigint + 1, clock_timestamp())
ON CONFLICT (log, generation, owner, hour) DO UPDATE
SET first_seq = least(trims.first_seq, excluded.first_seq),
    last_seq = greatest(trims.last_seq, excluded.last_seq),
    noted = trims.noted + excluded.noted, trimmed_at = excluded.trimmed_at
"""


async def note(connection: Connection, trim: Trim) -> None:
    """Record that messages are about to be purged; counts every place between the two."""
    await connection.execute(NOTE_TRIM_SQL, *trim)


CONFIRM_TRIM_SQL: Final[LiteralString] = """
-- log_trims: record how many messages of the last range existed
UPDATE log_trims
SET noted = greatest(noted - ($5::bigint - $4::bigint + 1) + $6::bigint, 0),
    purged = purged + $6::bigint
WHERE log = $1 AND generation = $2 AND owner = $3
    AND hour = (SELECT max(hour) FROM log_trims
                WHERE log = $1 AND generation = $2 AND owner = $3)
"""


async def confirm(connection: Connection, trim: Trim, purged: int) -> None:
    """Record how many messages were purged in a range that was recorded before."""
    await connection.execute(CONFIRM_TRIM_SQL, *trim, purged)


TRIMMED_SQL: Final[LiteralString] = """
-- log_trims: count the purged messages between two places of a log
SELECT coalesce(sum(noted), 0)::bigint, coalesce(sum(purged), 0)::bigint FROM log_trims
WHERE log = $1 AND generation = $2 AND last_seq >= $3 AND first_seq <= $4
"""


async def count_holes(
    connection: Connection, log: SharedStream, generation: str, first: int, last: int
) -> Holes:
    """Return how many messages of a log trims have removed; the number may be too high, never too low."""
    row = await connection.fetchrow(TRIMMED_SQL, log, generation, first, last)
    return NO_HOLES if row is None else Holes(*row.values())


class Trimmed(NamedTuple):
    """The number of messages that an owner lost of a log recently."""

    log: str
    owner: str
    messages: int


RECENT_TRIMS_SQL: Final[LiteralString] = """
-- log_trims: the owners whose messages were purged recently
SELECT log, owner, sum(purged)::bigint FROM log_trims
WHERE trimmed_at > clock_timestamp() - $1::interval
GROUP BY log, owner ORDER BY log, owner
"""


async def list_recent(connection: Connection, within: timedelta) -> list[Trimmed]:
    """Return the owners whose messages were purged within a time, with counts of the whole hours."""
    return [Trimmed(*row.values()) for row in await connection.fetch(RECENT_TRIMS_SQL, within)]


EXPIRE_TRIMS_SQL: Final[LiteralString] = """
-- log_trims: delete records of messages that are expired by now
DELETE FROM log_trims WHERE hour < clock_timestamp() - 2 * $1::interval
"""


async def expire(connection: Connection, longest: timedelta) -> None:
    """Delete records older than twice the time that a trimmed stream keeps a message."""
    await connection.execute(EXPIRE_TRIMS_SQL, longest)
