"""Dedupe marks: a digest of every message whose effects are committed, in a partition per day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from asyncpg import CheckViolationError

from chatlane.domain.effects import EARLY, FirstCopy
from chatlane.errors import StoreUnavailableError, SupersededError
from chatlane.postgres.pool import columns, count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from chatlane.domain.effects import SeenRow
    from chatlane.postgres.pool import Connection

PROBE_SEEN_SQL: Final[LiteralString] = """
-- seen: the known digests of a batch, in all partitions
SELECT digest, arrival, fingerprint, session_id FROM seen WHERE digest = ANY($1::bytea[])
"""


class Marks(NamedTuple):
    """Digests that were marked before; `early` holds those with only an edit so far."""

    known: set[bytes]
    early: set[bytes]
    copies: dict[bytes, FirstCopy]


async def probe(connection: Connection, digests: Iterable[bytes]) -> Marks:
    """Return the digests that were marked before."""
    wanted = list(digests)
    rows = await connection.fetch(PROBE_SEEN_SQL, wanted) if wanted else []
    return Marks(
        {row[0] for row in rows},
        {row[0] for row in rows if row[1] == EARLY},
        {row[0]: FirstCopy(row[2], row[3]) for row in rows if row[2] is not None},
    )


FIND_KEYS_SQL: Final[LiteralString] = """
-- seen: the session keys of marked messages
SELECT seen.digest, sessions.session_key
FROM seen JOIN sessions ON sessions.id = seen.session_id
WHERE seen.digest = ANY($1::bytea[])
"""


async def find_keys(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, str]:
    """Return the session keys that marked messages went to, by digest."""
    rows = await connection.fetch(FIND_KEYS_SQL, list(digests))
    return {row[0]: row[1] for row in rows}


INSERT_SEEN_SQL: Final[LiteralString] = """
-- seen: insert marks for today; a conflict means that another transaction was first
INSERT INTO seen (digest, day, session_id, arrival, fingerprint)
SELECT digest, (clock_timestamp() AT TIME ZONE 'UTC')::date, session_id, arrival, fingerprint
FROM unnest($1::bytea[], $2::uuid[], $3::bigint[], $4::int[])
    AS new (digest, session_id, arrival, fingerprint)
ORDER BY digest
ON CONFLICT DO NOTHING
"""


async def insert(connection: Connection, rows: Sequence[SeenRow]) -> None:
    """Mark digests as done.

    Raises:
        SupersededError: One of them was marked since it was probed. This happens only to messages
            without a session: all others are probed under the lock of their session.
        StoreUnavailableError: The day has no partition yet; the sweep creates it.
    """
    if await insert_new(connection, rows) != len(rows):
        raise SupersededError("seen")


async def insert_new(connection: Connection, rows: Sequence[SeenRow]) -> int:
    """Mark the digests that are not marked yet today; returns how many.

    Raises:
        StoreUnavailableError: The day has no partition yet; the sweep creates it.
    """
    if not rows:
        return 0
    try:
        status = await connection.execute(INSERT_SEEN_SQL, *columns(rows, 4))
    except CheckViolationError as error:
        # The table has no other check: today's partition is missing, which no message causes.
        raise StoreUnavailableError(error.sqlstate or "", "seen has no partition") from error
    return count_of(status)


RESUME_SEEN_SQL: Final[LiteralString] = """
-- seen: give marks of early edits their sessions
UPDATE seen
SET session_id = new.session_id, arrival = new.arrival, fingerprint = new.fingerprint
FROM unnest($1::bytea[], $2::uuid[], $3::bigint[], $4::int[])
    AS new (digest, session_id, arrival, fingerprint)
WHERE seen.digest = new.digest AND seen.arrival = -1
"""


async def resume(connection: Connection, rows: Sequence[SeenRow]) -> None:
    """Turn the marks of early edits into marks of the messages themselves."""
    if rows:
        await connection.execute(RESUME_SEEN_SQL, *columns(rows, 4))


CREATE_SEEN_DAYS_SQL: Final[LiteralString] = """
-- seen: create partitions from yesterday until some days ahead
SELECT create_seen_days(today - 1, today + $1::int)
FROM (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS today) AS clock
"""


async def create_partitions(connection: Connection, ahead: timedelta) -> int:
    """Create the missing partitions of the days up to `ahead` from now.

    A batch cannot commit without the partition of its day. Therefore this runs before the first
    batch, and then often enough that a single router always finds today's partition.

    Returns:
        How many partitions it created.
    """
    created: int = await connection.fetchval(CREATE_SEEN_DAYS_SQL, ahead.days)
    return created


DROP_SEEN_DAY_SQL: Final[LiteralString] = """
-- seen: drop the oldest partition if it is old enough
SELECT drop_seen_day(((clock_timestamp() - $1::interval) AT TIME ZONE 'UTC')::date)
"""


async def drop_oldest_partition(connection: Connection, kept: timedelta) -> bool:
    """Drop the oldest partition if all of its marks are older than `kept`.

    Returns:
        Whether it dropped a partition; more may remain to drop.

    Raises:
        asyncpg.PostgresError: The transaction translates it. A lock that is not free at once is
            a transient error; the next run retries.
    """
    dropped: bool = await connection.fetchval(DROP_SEEN_DAY_SQL, kept)
    return dropped
