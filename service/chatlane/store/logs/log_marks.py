"""Marks of a log's last sequence over time, and the cursors that bound its purge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from datetime import timedelta

    from chatlane.domain.log import LogName
    from chatlane.postgres.pool import Connection


@dataclass(frozen=True, slots=True)
class PurgeBounds:
    """Bounds of the purge of a log.

    Attributes:
        least_cursor: Least cursor of all its partitions; None if it has no partitions.
        marked_sequence: All messages up to this sequence are older than the replay window; None
            if no mark of this generation is old enough.
    """

    least_cursor: int | None
    marked_sequence: int | None


WRITE_LOG_MARK_SQL: Final[LiteralString] = """
-- log_marks: insert the last sequence of a log, unless there is a recent mark
INSERT INTO log_marks (log, generation, at, last_sequence)
SELECT $1, $2, clock_timestamp(), $3::bigint
WHERE NOT EXISTS (
    SELECT FROM log_marks
    WHERE log = $1 AND generation = $2 AND at > clock_timestamp() - $4::interval)
"""


async def write(
    connection: Connection,
    log: LogName,
    generation: str,
    last_sequence: int,
    every: timedelta,
) -> bool:
    """Record the last sequence of a log, at most once in `every`; the caller read it before this call."""
    status = await connection.execute(WRITE_LOG_MARK_SQL, log, generation, last_sequence, every)
    return status.endswith(" 1")


READ_PURGE_BOUNDS_SQL: Final[LiteralString] = """
-- log_marks: the bounds of a purge
SELECT (SELECT min(cursor) FROM partitions WHERE log = $1),
       (SELECT last_sequence FROM log_marks
        WHERE log = $1 AND generation = $2 AND at <= clock_timestamp() - $3::interval
        ORDER BY at DESC LIMIT 1)
"""


async def read_bounds(
    connection: Connection, log: LogName, generation: str, kept: timedelta
) -> PurgeBounds:
    """Return the least cursor of a log and the newest mark that is older than `kept`."""
    row = await connection.fetchrow(READ_PURGE_BOUNDS_SQL, log, generation, kept)
    return PurgeBounds(*row) if row else PurgeBounds(None, None)


DELETE_LOG_MARKS_SQL: Final[LiteralString] = """
-- log_marks: delete marks that no purge needs
DELETE FROM log_marks WHERE log = $1 AND at < clock_timestamp() - 2 * $2::interval
"""


async def delete_old(connection: Connection, log: LogName, kept: timedelta) -> None:
    """Delete marks older than twice `kept`."""
    await connection.execute(DELETE_LOG_MARKS_SQL, log, kept)
