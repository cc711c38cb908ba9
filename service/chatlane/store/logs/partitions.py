"""Partitions: the owner of each, its fencing number, and its committed position.

Rows are locked in the order of (log, id), before anything else in a transaction. A router that
looks for free partitions skips locked rows, so no router waits for the batch of another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.domain.log import LogName, LogPosition, PartitionId, describe_partition_count
from chatlane.errors import SchemaMismatchError
from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from asyncpg import Record

    from chatlane.postgres.pool import Connection


class PartitionLease(NamedTuple):
    """A partition held under a fencing number."""

    partition: PartitionId
    epoch: int


class Claim(NamedTuple):
    """A newly claimed partition, and the state that its last owners left.

    Attributes:
        dirty: Take-overs without a hand-back, this one included, since the last committed batch
            or since an owner had read everything.
        had_owner: Whether it was taken from a router that had not handed it back.
    """

    partition: PartitionId
    epoch: int
    position: LogPosition
    dirty: int
    had_owner: bool


class PartitionOwner(NamedTuple):
    """The current owner of a partition.

    Attributes:
        lease_seconds: Remaining lease time by the clock of the database; None without a lease.
        cursor: The committed position.
    """

    partition: PartitionId
    owner: UUID | None
    epoch: int
    lease_seconds: float | None
    cursor: int = 0


class Advance(NamedTuple):
    """One step of a cursor, valid only if the cursor still is at `cursor_from`.

    Attributes:
        stored_at: When the server stored the message at `cursor_to`; None if unknown.
    """

    partition: PartitionId
    epoch: int
    cursor_from: int
    cursor_to: int
    stored_at: datetime | None


ENSURE_SQL: Final[LiteralString] = """
-- partitions: insert the rows of a log that has none
INSERT INTO partitions (log, id)
SELECT $1, number FROM generate_series(0, $2 - 1) AS number
WHERE NOT EXISTS (SELECT FROM partitions WHERE log = $1)
ON CONFLICT DO NOTHING
"""
COUNT_SQL: Final[LiteralString] = """
-- partitions: count the partitions of a log
SELECT count(*) FROM partitions WHERE log = $1
"""


async def ensure(connection: Connection, log: LogName, count: int) -> None:
    """Insert the rows of a log that has none; `count` is the setting `router.partitions`.

    Raises:
        SchemaMismatchError: The log has another number of rows.
    """
    await connection.execute(ENSURE_SQL, log, count)
    found = await connection.fetchval(COUNT_SQL, log)
    if found != count:
        place = f"the {log} log in the database"
        raise SchemaMismatchError((describe_partition_count(place, found, count),))


HOLDINGS_SQL: Final[LiteralString] = """
-- partitions: owners and remaining leases
SELECT log, id, owner, epoch,
    extract(epoch FROM lease_until - clock_timestamp())::float8 AS lease_seconds, cursor
FROM partitions ORDER BY log, id
"""


async def holdings(connection: Connection) -> list[PartitionOwner]:
    """Return the owner of each partition of both logs."""
    return [
        PartitionOwner(_id(row), row["owner"], row["epoch"], row["lease_seconds"], row["cursor"])
        for row in await connection.fetch(HOLDINGS_SQL)
    ]


CLAIM_FREE_SQL: Final[LiteralString] = """
-- partitions: claim free and expired ones, and own ones whose claim got no reply
WITH free AS (
    SELECT log, id, owner, owner IS NOT NULL AND owner <> $1 AS had_owner
    FROM partitions
    WHERE log = $2
        AND id <> ALL ($3::int[])
        AND (owner IS NULL OR owner = $1 OR lease_until < clock_timestamp())
    ORDER BY log, id
    LIMIT $4
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE partitions AS p
SET owner = $1,
    epoch = p.epoch + 1,
    lease_until = clock_timestamp() + $5::interval,
    dirty = p.dirty + free.had_owner::int
FROM free
WHERE p.log = free.log AND p.id = free.id
RETURNING p.log, p.id, p.epoch, p.cursor, p.cursor_at, p.generation, p.dirty, free.had_owner
"""


async def claim_free(
    connection: Connection,
    router: UUID,
    log: LogName,
    *,
    except_for: Iterable[int],
    limit: int,
    lease: timedelta,
) -> list[Claim]:
    """Claim up to `limit` free partitions, each under the next fencing number.

    `except_for` has the numbers of partitions that the router already holds.
    """
    rows = await connection.fetch(CLAIM_FREE_SQL, router, log, list(except_for), limit, lease)
    return sorted(map(_claim, rows))


RENEW_IDLE_SQL: Final[LiteralString] = """
-- partitions: renew idle leases; a locked row is in a batch, which renews it
WITH mine AS (
    SELECT p.log, p.id, want.is_caught_up
    FROM partitions AS p
    JOIN unnest($2::text[], $3::int[], $4::bigint[], $5::bool[])
        AS want (log, id, epoch, is_caught_up)
        ON p.log = want.log AND p.id = want.id AND p.epoch = want.epoch
    WHERE p.owner = $1
    ORDER BY p.log, p.id
    FOR NO KEY UPDATE OF p SKIP LOCKED
)
UPDATE partitions AS p
SET lease_until = clock_timestamp() + $6::interval,
    dirty = CASE WHEN mine.is_caught_up THEN 0 ELSE p.dirty END
FROM mine
WHERE p.log = mine.log AND p.id = mine.id
RETURNING p.log, p.id
"""


async def renew_idle(
    connection: Connection,
    router: UUID,
    partition_leases: Iterable[PartitionLease],
    lease: timedelta,
    *,
    caught_up: Collection[PartitionId] = (),
) -> set[PartitionId]:
    """Renew leases; returns the renewed partitions.

    Args:
        partition_leases: Partitions without a transaction in progress.
        caught_up: Partitions that were read to their end. None of their messages crashed a router,
            however many routers crashed before.
    """
    rows = [
        (*partition_lease.partition, partition_lease.epoch, partition_lease.partition in caught_up)
        for partition_lease in partition_leases
    ]
    return await _fetch_ids(connection, RENEW_IDLE_SQL, router, *columns(rows, 4), lease)


HAND_BACK_SQL: Final[LiteralString] = """
-- partitions: release leases, so that another router need not wait for their end
WITH mine AS (
    SELECT p.log, p.id
    FROM partitions AS p
    JOIN unnest($2::text[], $3::int[]) AS want (log, id) ON p.log = want.log AND p.id = want.id
    -- The fencing number does not matter: only the owner changes it.
    WHERE p.owner = $1
    ORDER BY p.log, p.id
    FOR NO KEY UPDATE OF p
)
UPDATE partitions AS p
SET owner = NULL, lease_until = NULL
FROM mine
WHERE p.log = mine.log AND p.id = mine.id
RETURNING p.log, p.id
"""


async def hand_back(
    connection: Connection, router: UUID, partitions: Iterable[PartitionId]
) -> set[PartitionId]:
    """Release partitions; returns those that this router still held."""
    return await _fetch_ids(connection, HAND_BACK_SQL, router, *columns(partitions, 2))


ADVANCE_SQL: Final[LiteralString] = """
-- partitions: compare-and-set of the cursors of a batch, renewing their leases
WITH mine AS (
    SELECT p.log, p.id, want.cursor_to, want.stored_at
    FROM partitions AS p
    JOIN unnest(
        $2::text[], $3::int[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[]
    ) AS want (log, id, epoch, cursor_from, cursor_to, stored_at)
        ON p.log = want.log AND p.id = want.id AND p.epoch = want.epoch
        AND p.cursor = want.cursor_from
    WHERE p.owner = $1
    ORDER BY p.log, p.id
    FOR NO KEY UPDATE OF p
)
UPDATE partitions AS p
SET cursor = mine.cursor_to,
    cursor_at = mine.stored_at,
    lease_until = clock_timestamp() + $8::interval,
    dirty = 0,
    suspect_seq = NULL,
    suspect_count = 0
FROM mine
WHERE p.log = mine.log AND p.id = mine.id
RETURNING p.log, p.id
"""


async def advance(
    connection: Connection,
    router: UUID,
    advances: Sequence[Advance],
    lease: timedelta,
) -> set[PartitionId]:
    """Move cursors that are at the expected position, under the caller's fencing numbers.

    This is the first statement of a batch. A partition that is missing from the result was lost
    to another router or is already committed; the caller must omit its messages.

    Returns:
        The partitions that moved.
    """
    rows = [(*step.partition, *step[1:]) for step in advances]
    return await _fetch_ids(connection, ADVANCE_SQL, router, *columns(rows, 6), lease)


CURSOR_SQL: Final[LiteralString] = """
-- partitions: how far one of them is decided
SELECT cursor FROM partitions WHERE log = $1 AND id = $2
"""


async def get_cursor(connection: Connection, partition: PartitionId) -> int:
    """Return the committed position of a partition; 0 for one that no router has read."""
    cursor: int | None = await connection.fetchval(CURSOR_SQL, partition.log, partition.number)
    return cursor or 0


LEAST_CURSOR_SQL: Final[LiteralString] = """
-- partitions: the least cursor of a log; NULL if a partition has another generation
SELECT CASE WHEN bool_and(generation = $2 AND generation IS NOT NULL) THEN min(cursor) END
FROM partitions WHERE log = $1
"""


async def least_cursor(connection: Connection, log: LogName, generation: str) -> int | None:
    """Return the least cursor of a log; None if a partition has no generation or another one."""
    least: int | None = await connection.fetchval(LEAST_CURSOR_SQL, log, generation)
    return least


REWIND_SQL: Final[LiteralString] = """
-- partitions: reset a cursor, because the log was recreated
UPDATE partitions
SET cursor = $5, cursor_at = NULL, generation = $6, epoch = epoch + 1,
    suspect_seq = NULL, suspect_count = 0
WHERE log = $1 AND id = $2 AND owner = $3 AND epoch = $4
RETURNING epoch
"""


async def rewind(
    connection: Connection,
    router: UUID,
    partition_lease: PartitionLease,
    *,
    cursor: int,
    generation: str,
) -> int | None:
    """Reset the cursor to the new start of the log, under the next fencing number.

    Returns:
        The new fencing number, or None if the router no longer holds the partition.
    """
    epoch: int | None = await connection.fetchval(
        REWIND_SQL, *partition_lease.partition, router, partition_lease.epoch, cursor, generation
    )
    return epoch


SUSPECT_SQL: Final[LiteralString] = """
-- partitions: count an attempt at a message before it is processed
UPDATE partitions
SET suspect_count = CASE WHEN suspect_seq = $5 THEN suspect_count + 1 ELSE 1 END,
    suspect_seq = $5,
    lease_until = clock_timestamp() + $6::interval
WHERE log = $1 AND id = $2 AND owner = $3 AND epoch = $4
RETURNING suspect_count
"""


async def suspect(
    connection: Connection,
    router: UUID,
    partition_lease: PartitionLease,
    sequence: int,
    lease: timedelta,
) -> int | None:
    """Count an attempt to process a message before the attempt.

    Returns:
        The number of attempts, this one included; None if the router no longer holds the
        partition.
    """
    count: int | None = await connection.fetchval(
        SUSPECT_SQL, *partition_lease.partition, router, partition_lease.epoch, sequence, lease
    )
    return count


def _claim(row: Record) -> Claim:
    position = LogPosition(row["cursor"], row["cursor_at"], row["generation"])
    return Claim(_id(row), row["epoch"], position, row["dirty"], row["had_owner"])


def _id(row: Record) -> PartitionId:
    return PartitionId(row["log"], row["id"])


async def _fetch_ids(
    connection: Connection, query: LiteralString, *arguments: object
) -> set[PartitionId]:
    rows = await connection.fetch(query, *arguments)
    return {_id(row) for row in rows}


POSITIONS_SQL: Final[LiteralString] = """
-- partitions: the committed positions of both logs
SELECT log, id, cursor, cursor_at, generation FROM partitions ORDER BY log, id
"""


async def positions(connection: Connection) -> dict[PartitionId, LogPosition]:
    """Return the committed position of every partition of both logs."""
    rows = await connection.fetch(POSITIONS_SQL)
    return {
        PartitionId(log, number): LogPosition(*position)
        for log, number, *position in (row.values() for row in rows)
    }
