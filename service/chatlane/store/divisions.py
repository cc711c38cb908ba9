"""How the logs are divided into partitions, and the change of that.

The rows of a log are its partitions: `0` to `count - 1`, or one that is the whole log. To change
them a stop is set, which no cursor gets to; once all cursors stand right before it the rows give
way to others, which go on there. So whatever was stored before the stop is decided under the one
division, and everything else under the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.domain.log import UNDIVIDED, LogName

if TYPE_CHECKING:
    from datetime import datetime

    from asyncpg import Record
    from asyncpg.pool import PoolConnectionProxy


class Stop(NamedTuple):
    """What ends a division.

    Attributes:
        before: The sequence that no cursor gets to.
        next_count: How many partitions there are from it on; 0 when the log is read as a whole.
    """

    before: int
    next_count: int


@dataclass(frozen=True, slots=True)
class Division:
    """How a log is divided now.

    Attributes:
        count: Its partitions; 0 while it is read as a whole.
        stop: What ends this division; None when nothing does.
        behind: How many cursors do not stand before the stop yet; 0 without one.
        cursor: The least of its cursors.
        generations: The logs that the cursors count in: one, unless routers have yet to look at a
            log that was made anew; none before the first reader.
        changed_for: How long ago this division was made or given a stop; None when that was never
            done.
    """

    count: int
    stop: Stop | None
    behind: int
    cursor: int
    generations: frozenset[str]
    changed_for: timedelta | None

    @property
    def is_changing(self) -> bool:
        """Whether a change goes on."""
        return self.stop is not None or self.count == 0


READ_SQL: Final[LiteralString] = """
-- divisions: into how many partitions each log is divided, and what ends that
SELECT log, count(*) FILTER (WHERE id >= 0) AS count,
    min(stop_before) AS stop_before, min(next_count) AS next_count,
    count(*) FILTER (WHERE cursor < stop_before - 1) AS behind,
    min(cursor) AS cursor,
    array_agg(DISTINCT generation) FILTER (WHERE generation IS NOT NULL) AS generations,
    clock_timestamp() - max(changed_at) AS changed_for
FROM partitions GROUP BY log
"""


async def read(connection: "PoolConnectionProxy") -> dict[LogName, Division]:
    """Return the division of each log that has one."""
    return {row["log"]: _division(row) for row in await connection.fetch(READ_SQL)}


TRY_LOCK_SQL: Final[LiteralString] = """
-- divisions: one change at a time, for the length of the transaction
SELECT pg_try_advisory_xact_lock(hashtextextended('chatlane: division of the logs', 0))
"""


async def try_lock(connection: "PoolConnectionProxy") -> bool:
    """Keep others from changing divisions until the transaction ends; False when one does."""
    is_ours: bool = await connection.fetchval(TRY_LOCK_SQL)
    return is_ours


LOCK_ALL_SQL: Final[LiteralString] = """
-- divisions: all partitions of a log, once nobody works on them
SELECT epoch FROM partitions WHERE log = $1 ORDER BY id FOR UPDATE
"""

STOP_SQL: Final[LiteralString] = """
-- divisions: no cursor gets past what there is; the rows are locked
UPDATE partitions
SET stop_before = greatest($2, (SELECT max(cursor) FROM partitions WHERE log = $1)) + 1,
    next_count = $3,
    changed_at = clock_timestamp()
WHERE log = $1
"""


async def stop(
    connection: "PoolConnectionProxy", log: LogName, last_sequence: int, next_count: int
) -> None:
    """End the division of a log behind a sequence, or behind the furthest cursor.

    Args:
        connection: In a transaction.
        log: Which one.
        last_sequence: The end of the log, or something before it.
        next_count: How many partitions there are from there on; 0 for the log as a whole.
    """
    await connection.execute(LOCK_ALL_SQL, log)
    await connection.execute(STOP_SQL, log, last_sequence, next_count)


LOCK_SQL: Final[LiteralString] = """
-- divisions: the partitions of a log that nobody else works on now
SELECT id, epoch, cursor, cursor_at, generation, stop_before, next_count,
    (SELECT count(*) FROM partitions WHERE log = $1) AS count
FROM partitions WHERE log = $1 ORDER BY id FOR UPDATE SKIP LOCKED
"""

DELETE_SQL: Final[LiteralString] = """
-- divisions: away with the partitions of a log
DELETE FROM partitions WHERE log = $1
"""

INSERT_SQL: Final[LiteralString] = """
-- divisions: the next partitions of a log
INSERT INTO partitions (log, id, epoch, cursor, cursor_at, generation, changed_at)
SELECT $1, number, $4, $5, $6, $7, clock_timestamp() FROM generate_series($2::int, $3::int) AS number
"""


async def hand_over(connection: "PoolConnectionProxy", log: LogName) -> int | None:
    """Put the next partitions in the place of those whose cursors all stand before the stop.

    Does nothing while one of them is in work, and never waits.

    Args:
        connection: In a transaction.
        log: Which one.

    Returns:
        How many partitions there are now, 0 for the log as a whole; None when nothing changed.
    """
    rows = await connection.fetch(LOCK_SQL, log)
    if not rows or len(rows) < rows[0]["count"] or not _have_stopped(rows):
        return None
    first = rows[0]
    next_count: int = first["next_count"]
    await _replace(
        connection,
        log,
        next_count,
        epoch=max(row["epoch"] for row in rows) + 1,
        cursor=first["cursor"],
        # Where one of them has seen the message at the stop, the others have passed it.
        cursor_at=max((row["cursor_at"] for row in rows if row["cursor_at"]), default=None),
        generation=max((row["generation"] for row in rows if row["generation"]), default=None),
    )
    return next_count


async def start_over(connection: "PoolConnectionProxy", log: LogName) -> None:
    """Have a log read as a whole from its first message on.

    Args:
        connection: In a transaction.
        log: Which one; its division is not the one its messages are stored by.
    """
    rows = await connection.fetch(LOCK_ALL_SQL, log)
    epoch = max(row["epoch"] for row in rows) + 1
    await _replace(connection, log, 0, epoch=epoch, cursor=0, cursor_at=None, generation=None)


async def _replace(
    connection: "PoolConnectionProxy",
    log: LogName,
    count: int,
    *,
    epoch: int,
    cursor: int,
    cursor_at: "datetime | None",
    generation: str | None,
) -> None:
    # A number under which somebody may still read never means something else at once: between
    # two divisions into partitions there is always the log as a whole.
    first, last = (0, count - 1) if count else (UNDIVIDED, UNDIVIDED)
    await connection.execute(DELETE_SQL, log)
    await connection.execute(INSERT_SQL, log, first, last, epoch, cursor, cursor_at, generation)


def _have_stopped(rows: Sequence["Record"]) -> bool:
    """Tell whether all cursors stand before the stop, in one and the same log."""
    generations = {row["generation"] for row in rows if row["generation"]}
    return len(generations) <= 1 and all(
        row["stop_before"] is not None and row["cursor"] == row["stop_before"] - 1 for row in rows
    )


def _division(row: "Record") -> Division:
    stop = None
    if row["stop_before"] is not None:
        stop = Stop(row["stop_before"], row["next_count"])
    return Division(
        count=row["count"],
        stop=stop,
        behind=row["behind"],
        cursor=row["cursor"],
        generations=frozenset(row["generations"] or ()),
        changed_for=row["changed_for"],
    )
