"""Create the day partitions of the dedupe marks ahead of time, and drop expired ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from datetime import timedelta

    from chatlane.postgres.pool import Connection


CREATE_SEEN_DAYS_SQL: Final[LiteralString] = """
-- seen: partitions from yesterday until some days ahead
SELECT create_seen_days(today - 1, today + $1::int)
FROM (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS today) AS clock
"""


async def create(connection: Connection, ahead: timedelta) -> int:
    """Create the missing partitions of the days up to `ahead` from now.

    A batch cannot commit without the partition of its day. Therefore this runs before the first
    batch, and then often enough that a single router always finds today's partition.

    Returns:
        How many partitions it created.
    """
    created: int = await connection.fetchval(CREATE_SEEN_DAYS_SQL, ahead.days)
    return created


DROP_SEEN_DAY_SQL: Final[LiteralString] = """
-- seen: away with the oldest partition, if it is old enough
SELECT drop_seen_day(((clock_timestamp() - $1::interval) AT TIME ZONE 'UTC')::date)
"""


async def drop_oldest(connection: Connection, kept: timedelta) -> bool:
    """Drop the oldest partition if all of its marks are older than `kept`.

    Returns:
        Whether it dropped a partition; more may remain to drop.

    Raises:
        asyncpg.PostgresError: The transaction translates it. A lock that is not free at once is
            a transient error; the next run retries.
    """
    dropped: bool = await connection.fetchval(DROP_SEEN_DAY_SQL, kept)
    return dropped
