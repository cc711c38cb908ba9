"""The outbox: rows written with a decision, published by a relay after the commit.

Ids are assigned under the lock of the session, so within a session they give the publishing
order. The router in a row publishes it; a row without a router waits for the sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from asyncpg import Record

    from chatlane.domain.effects import Publication
    from chatlane.domain.log import Trace
    from chatlane.postgres.pool import Connection

# Streams that must have the messages of a session in the order of their ids. The statements
# below repeat these names as literals, so that the planner sees them.
ORDERED_STREAMS: Final = frozenset({"ROUTED", "OUTBOUND"})

# "outbox" in ASCII.
_ADOPTION_LOCK: Final = 0x6F7574626F78


class OutboxRow(NamedTuple):
    """A message to publish; `stream` is the stream that stores it."""

    id: int
    session_id: UUID | None
    stream: str
    subject: str
    message_id: str
    payload: bytes
    created_at: datetime
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unpublished rows of all routers together.

    Attributes:
        oldest_at: When the oldest row was written; None if there is none.
    """

    rows: int
    oldest_at: datetime | None


INSERT_OUTBOX_SQL: Final[LiteralString] = """
-- outbox: insert rows in the given order, and delete published ones
WITH published AS (
    DELETE FROM outbox WHERE id = ANY($7::bigint[])
), added AS (
    INSERT INTO outbox (session_id, stream, router, subject, message_id, payload)
    SELECT new.session_id, new.stream,
           CASE WHEN new.stream = ANY($9::text[]) OR EXISTS (
               -- An older row of another router, or one that this relay is not sure of: the
               -- sweep publishes the new row after it.
               SELECT FROM outbox AS older
               WHERE older.session_id = new.session_id AND older.stream = new.stream
                 AND new.stream IN ('ROUTED', 'OUTBOUND')
                 AND (older.router IS DISTINCT FROM $1 OR older.id = ANY($8::bigint[]))
           ) THEN NULL ELSE $1::uuid END,
           new.subject, new.message_id, new.payload
    FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::bytea[]) WITH ORDINALITY
        AS new (session_id, stream, subject, message_id, payload, place)
    ORDER BY new.place
    RETURNING id, router, created_at
)
-- One row with arrays: a thousand rows take several times as long to send and to read.
SELECT array_agg(id ORDER BY id), array_agg(router IS NOT NULL ORDER BY id), min(created_at)
FROM added
"""


async def insert(
    connection: Connection,
    router_id: UUID | None,
    rows: Sequence[Publication],
    *,
    published: Iterable[int] = (),
    doubtful: Iterable[int] = (),
    left: Iterable[str] = (),
) -> list[OutboxRow]:
    """Write rows in the order given, under the locks of their sessions.

    Args:
        connection: Connection of a transaction that has locked every session in `rows`.
        router_id: Id of the router that publishes them; None leaves them all to the sweep.
        rows: Any number of messages.
        published: Ids of published rows to delete in the same round trip.
        doubtful: Ids of rows of this router that its relay does not know for certain; new rows of
            their sessions wait in the table until these are published.
        left: Streams whose rows are all left to the sweep.

    Returns:
        The rows that this router publishes, in order. The sweep publishes the others: rows of
        `left`, and rows with an older row of the same session and stream that is not this
        router's.
    """
    if not rows:
        await delete(connection, published)
        return []
    [(ids, ours, created_at)] = await connection.fetch(
        INSERT_OUTBOX_SQL,
        router_id,
        *columns([row[:5] for row in rows], 5),
        sorted(published),
        list(doubtful),
        list(left),
    )
    return [
        OutboxRow(row_id, *row[:5], created_at, row.trace)
        for row_id, is_ours, row in zip(ids, ours, rows, strict=True)
        if is_ours
    ]


LEAVE_OUTBOX_SQL: Final[LiteralString] = """
-- outbox: insert a row for the next sweep of any router
INSERT INTO outbox (session_id, stream, subject, message_id, payload)
VALUES ($1, $2, $3, $4, $5) RETURNING id
"""
IN_LINE_SQL: Final[LiteralString] = """
-- outbox: whether a session has unpublished messages for a stream
SELECT EXISTS (SELECT FROM outbox WHERE session_id = $1 AND stream = $2)
"""


async def is_in_line(connection: Connection, session_id: UUID, stream: str) -> bool:
    """Return whether the outbox has unpublished messages of a session for a stream."""
    found: bool = await connection.fetchval(IN_LINE_SQL, session_id, stream)
    return found


EXISTS_SQL: Final[LiteralString] = """
-- outbox: whether a row still exists
SELECT EXISTS (SELECT FROM outbox WHERE id = $1)
"""


async def leave(connection: Connection, row: Publication) -> int:
    """Write a row for the sweep to publish; under the lock of its session, if it has one."""
    row_id: int = await connection.fetchval(LEAVE_OUTBOX_SQL, *row[:5])
    return row_id


async def exists(connection: Connection, row_id: int) -> bool:
    """Return whether a row still exists."""
    return bool(await connection.fetchval(EXISTS_SQL, row_id))


DELETE_OUTBOX_SQL: Final[LiteralString] = """
-- outbox: delete published rows
DELETE FROM outbox WHERE id = ANY($1::bigint[])
"""


async def delete(connection: Connection, ids: Iterable[int]) -> None:
    """Delete published rows, even if another router has adopted them."""
    sorted_ids = sorted(ids)
    if sorted_ids:
        await connection.execute(DELETE_OUTBOX_SQL, sorted_ids)


LOCK_ADOPTION_SQL: Final[LiteralString] = """
-- outbox: one sweep at a time
SELECT pg_try_advisory_xact_lock($1)
"""

ADOPT_OUTBOX_SQL: Final[LiteralString] = """
-- outbox: adopt rows without a live router, oldest first
WITH RECURSIVE owner (router) AS (
    -- One index probe for each router that has rows, however many rows there are.
    (SELECT router FROM outbox WHERE router IS NOT NULL ORDER BY router LIMIT 1)
    UNION ALL
    SELECT (SELECT outbox.router FROM outbox WHERE outbox.router > owner.router
            ORDER BY outbox.router LIMIT 1)
    FROM owner WHERE owner.router IS NOT NULL
), other AS MATERIALIZED (
    SELECT owner.router, coalesce(routers.seen_until >= clock_timestamp(), false) AS is_live
    FROM owner LEFT JOIN routers ON routers.id = owner.router
    WHERE owner.router <> $1
), orphan AS (
    -- The oldest candidates of each stream: otherwise many rows of one stream would keep those
    -- of another from adoption.
    SELECT candidate.id FROM unnest($3::text[]) AS wanted (stream) CROSS JOIN LATERAL (
        (SELECT outbox.id FROM outbox
         WHERE router IS NULL AND outbox.stream = wanted.stream AND NOT EXISTS (
             SELECT FROM outbox AS older JOIN other ON other.router = older.router AND other.is_live
             WHERE older.session_id = outbox.session_id AND older.stream = outbox.stream
               AND older.id < outbox.id AND older.stream IN ('ROUTED', 'OUTBOUND'))
         ORDER BY outbox.id LIMIT $2)
        UNION ALL
        -- Ordered by router as well, and with a range for an equality: only the index on both
        -- gives that order, where the primary key would read the rows of all routers.
        SELECT orphaned.id FROM other CROSS JOIN LATERAL (
            SELECT outbox.id FROM outbox
            WHERE outbox.router BETWEEN other.router AND other.router
              AND outbox.stream = wanted.stream AND NOT EXISTS (
                SELECT FROM outbox AS older
                JOIN other AS rival ON rival.router = older.router AND rival.is_live
                WHERE older.session_id = outbox.session_id AND older.stream = outbox.stream
                  AND older.id < outbox.id AND older.stream IN ('ROUTED', 'OUTBOUND'))
            ORDER BY router, outbox.id LIMIT $2) AS orphaned
        WHERE NOT other.is_live
        UNION ALL
        SELECT outbox.id FROM outbox
        WHERE outbox.id = ANY($4::bigint[]) AND router = $1 AND outbox.stream = wanted.stream
        ORDER BY id LIMIT $2) AS candidate
), locked AS (
    -- Streams give the candidates in another order than that of their ids, in which the router that
    -- counts as dead may still delete what it has published.
    SELECT id FROM outbox WHERE id = ANY(ARRAY(SELECT orphan.id FROM orphan))
    ORDER BY id FOR NO KEY UPDATE
), adopted AS (
    UPDATE outbox SET router = $1 FROM locked WHERE outbox.id = locked.id
    RETURNING outbox.id, session_id, stream, subject, message_id, payload, created_at
)
SELECT * FROM adopted ORDER BY id
"""


async def adopt(
    connection: Connection,
    router_id: UUID,
    streams: Iterable[str],
    limit: int,
    doubtful: Iterable[int] = (),
) -> list[OutboxRow]:
    """Adopt rows that no live router publishes: rows left to the sweep, or of dead routers.

    A row stays as it is while an older row of its session and stream belongs to a live router.
    Therefore the adopting router publishes, or has published, all rows that must precede it.

    Args:
        connection: Connection of a separate transaction, because the lock lasts until its end.
        router_id: Id of the router that publishes the rows from now on.
        streams: Streams to adopt rows of.
        limit: Maximum number of rows of each stream; the oldest rows come first.
        doubtful: Ids of rows of this router that its relay does not know for certain; those that
            exist are adopted like the others.

    Returns:
        The rows in the order of their ids; none while another sweep holds the lock.
    """
    if not await connection.fetchval(LOCK_ADOPTION_SQL, _ADOPTION_LOCK):
        return []
    rows = await connection.fetch(
        ADOPT_OUTBOX_SQL, router_id, limit, sorted(streams), list(doubtful)
    )
    return [_from_row(row) for row in rows]


def _from_row(row: Record) -> OutboxRow:
    return OutboxRow(*row.values())


REREAD_OUTBOX_SQL: Final[LiteralString] = """
-- outbox: the rows that a relay still has to publish after an interruption
SELECT id FROM outbox WHERE id = ANY($2::bigint[]) AND router = $1
"""


async def reread(connection: Connection, router_id: UUID, ids: Iterable[int]) -> set[int]:
    """Return the ids of rows that still exist and belong to this router."""
    return {row[0] for row in await connection.fetch(REREAD_OUTBOX_SQL, router_id, sorted(ids))}


COUNT_LEFT_SQL: Final[LiteralString] = """
-- outbox: count the rows of streams that wait for the sweep, up to a limit
SELECT wanted.stream, (
    SELECT count(*) FROM (
        SELECT FROM outbox WHERE router IS NULL AND outbox.stream = wanted.stream
        LIMIT $2) AS head)
FROM unnest($1::text[]) AS wanted (stream)
"""


async def count_left(connection: Connection, streams: Iterable[str], limit: int) -> dict[str, int]:
    """Return how many rows of these streams have no router, up to a limit for each stream."""
    rows = await connection.fetch(COUNT_LEFT_SQL, sorted(streams), limit)
    return {row[0]: row[1] for row in rows}


BACKLOG_SQL: Final[LiteralString] = """
-- outbox: number and age of unpublished rows
SELECT (SELECT count(*) FROM outbox), (SELECT created_at FROM outbox ORDER BY id LIMIT 1)
"""


async def backlog(connection: Connection) -> Backlog:
    """Return the number and age of unpublished rows; reads the whole table."""
    row = await connection.fetchrow(BACKLOG_SQL)
    return Backlog(*row) if row else Backlog(0, None)
