"""The day partitions of the dedupe marks: made ahead of time, dropped when none can matter."""

from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from datetime import timedelta

    from asyncpg.pool import PoolConnectionProxy

CREATE_SEEN_DAYS_SQL: Final[LiteralString] = """
-- seen: partitions from yesterday until some days ahead
SELECT create_seen_days(today - 1, today + $1::int)
FROM (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS today) AS clock
"""


async def create(connection: "PoolConnectionProxy", ahead: "timedelta") -> int:
    """Make the partitions of the days up to `ahead` from now that are not there yet.

    Without the partition of its day no batch commits, so this runs before the first batch,
    and then often enough that a router which runs alone never meets a day without one.

    Returns:
        How many it made.
    """
    created: int = await connection.fetchval(CREATE_SEEN_DAYS_SQL, ahead.days)
    return created


DROP_SEEN_DAY_SQL: Final[LiteralString] = """
-- seen: away with the oldest partition, if it is old enough
SELECT drop_seen_day(((clock_timestamp() - $1::interval) AT TIME ZONE 'UTC')::date)
"""


async def drop_oldest(connection: "PoolConnectionProxy", kept: "timedelta") -> bool:
    """Drop the oldest partition if all of its marks are older than `kept`.

    Returns:
        Whether there was one; there may be more.

    Raises:
        asyncpg.PostgresError: Translated by the transaction; a lock that was not free at once
            is a transient one, and the next time will do.
    """
    dropped: bool = await connection.fetchval(DROP_SEEN_DAY_SQL, kept)
    return dropped
