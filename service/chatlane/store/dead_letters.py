"""Dead letters: messages that could not be processed, kept with reason and body for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.domain.effects import DeadRow
from chatlane.postgres.pool import columns, count_of
from chatlane_schemas.dead import DeadReason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from chatlane.postgres.pool import Connection


# All columns but the body, in the order of `DeadRow`.
_COLUMNS: Final[LiteralString] = """
    id, stage, reason, log, partition, sequence, stored_at, subject, session_id, digest,
    size_bytes, detail"""
_INSERT: Final[LiteralString] = f"""
INSERT INTO dead_letters ({_COLUMNS}, body)
SELECT * FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::bigint[], $7::timestamptz[],
    $8::text[], $9::uuid[], $10::bytea[], $11::int[], $12::text[], $13::bytea[])"""  # noqa: S608 - constants

INSERT_DEAD_LETTERS_SQL: Final[LiteralString] = f"""
-- dead_letters: set messages aside; a repeat changes nothing{_INSERT}
ON CONFLICT (id) DO NOTHING
RETURNING id
"""


async def insert(connection: Connection, rows: Sequence[DeadRow]) -> set[UUID]:
    """Write dead letters.

    Returns:
        The ids that did not exist before.
    """
    if not rows:
        return set()
    return {row[0] for row in await connection.fetch(INSERT_DEAD_LETTERS_SQL, *columns(rows, 13))}


WRITE_SUMMARIES_SQL: Final[LiteralString] = f"""
-- dead_letters: letters that stand for those that were not kept{_INSERT}
ON CONFLICT (id) DO UPDATE
SET detail = excluded.detail, size_bytes = excluded.size_bytes, sequence = excluded.sequence
RETURNING id, xmax = 0
"""


async def write_summaries(connection: Connection, rows: Sequence[DeadRow]) -> set[UUID]:
    """Write or update summaries; returns the ids of new ones."""
    found = await connection.fetch(WRITE_SUMMARIES_SQL, *columns(sorted(rows), 13))
    return {row[0] for row in found if row[1]}


RECENT_DEAD_LETTERS_SQL: Final[LiteralString] = f"""
-- dead_letters: the newest, without their bodies
SELECT at, {_COLUMNS}
FROM dead_letters
WHERE at < coalesce($2, 'infinity'::timestamptz) AND ($3::text IS NULL OR reason = $3)
ORDER BY at DESC, id DESC LIMIT $1
"""  # noqa: S608 - constants


async def list_recent(
    connection: Connection,
    limit: int,
    before: datetime | None = None,
    reason: str | None = None,
) -> list[tuple[datetime, DeadRow]]:
    """Return dead letters and the time each was written, newest first, without bodies.

    Args:
        before: Return only older ones; the time of the last one of the previous page.
    """
    rows = await connection.fetch(RECENT_DEAD_LETTERS_SQL, limit, before, reason)
    return [(at, DeadRow._make((*fields, None))) for at, *fields in rows]


OLDEST_DEAD_LETTERS_SQL: Final[LiteralString] = f"""
-- dead_letters: those of a reason that were set aside first, without their bodies
SELECT {_COLUMNS}
FROM dead_letters WHERE reason = $1 ORDER BY at, id LIMIT $2
"""  # noqa: S608 - constants


async def list_oldest(connection: Connection, reason: str, limit: int) -> list[DeadRow]:
    """Return the first dead letters with a reason, oldest first, without bodies."""
    rows = await connection.fetch(OLDEST_DEAD_LETTERS_SQL, reason, limit)
    return [DeadRow._make((*row.values(), None)) for row in rows]


FAILED_TURNS_SQL: Final[LiteralString] = f"""
-- dead_letters: the failed turns of a session, without their bodies
SELECT {_COLUMNS}
FROM dead_letters WHERE session_id = $1 AND stage = 'turns' ORDER BY stored_at, at LIMIT $2
"""  # noqa: S608 - constants


async def list_failed_turns(connection: Connection, session_id: UUID, limit: int) -> list[DeadRow]:
    """Return the dead letters of the failed turns of a session, oldest first, without bodies."""
    rows = await connection.fetch(FAILED_TURNS_SQL, session_id, limit)
    return [DeadRow._make((*row.values(), None)) for row in rows]


LOCK_DEAD_LETTER_SQL: Final[LiteralString] = f"""
-- dead_letters: one with its body, for who settles it
SELECT {_COLUMNS}, body
FROM dead_letters WHERE id = $1 ORDER BY id FOR NO KEY UPDATE
"""  # noqa: S608 - constants


async def lock(connection: Connection, letter_id: UUID) -> DeadRow | None:
    """Lock and return a dead letter; None if it does not exist."""
    row = await connection.fetchrow(LOCK_DEAD_LETTER_SQL, letter_id)
    return DeadRow._make(row.values()) if row else None


FIND_OLDER_SQL: Final[LiteralString] = """
-- dead_letters: the oldest of some subjects that came before another one
SELECT older.id FROM dead_letters AS letter JOIN dead_letters AS older
    ON older.subject = ANY($2::text[])
    -- What has the id of another message is not sent again, so nothing waits for it.
    AND older.reason <> 'message_id_reused'
    AND (older.stored_at, older.at) < (letter.stored_at, letter.at)
WHERE letter.id = $1 ORDER BY older.stored_at, older.at LIMIT 1
"""


async def find_older(
    connection: Connection, letter_id: UUID, subjects: Sequence[str]
) -> UUID | None:
    """Return the oldest dead letter under any of these subjects that precedes this one."""
    older: UUID | None = await connection.fetchval(FIND_OLDER_SQL, letter_id, subjects)
    return older


FIND_OLDER_OF_SESSION_SQL: Final[LiteralString] = """
-- dead_letters: the oldest of a session that came before another one and is of its kind
SELECT older.id FROM dead_letters AS letter JOIN dead_letters AS older
    ON older.session_id = letter.session_id AND older.stage = letter.stage
    -- What a platform has refused is not sent again, so nothing waits for it.
    AND older.reason <> 'delivery_failed'
    AND (older.stored_at, older.at) < (letter.stored_at, letter.at)
WHERE letter.id = $1 ORDER BY older.stored_at, older.at LIMIT 1
"""


async def find_older_of_session(connection: Connection, letter_id: UUID) -> UUID | None:
    """Return the oldest dead letter of the same session and stage that precedes this one."""
    older: UUID | None = await connection.fetchval(FIND_OLDER_OF_SESSION_SQL, letter_id)
    return older


SMALL_BODIES_SQL: Final[LiteralString] = """
-- dead_letters: bodies of some that are small enough to be read for a list
SELECT id, body FROM dead_letters WHERE id = ANY($1::uuid[]) AND size_bytes <= 65536
"""


async def small_bodies(
    connection: Connection, letter_ids: Sequence[UUID]
) -> dict[UUID, bytes | None]:
    """Return the bodies of these dead letters, except large ones."""
    rows = await connection.fetch(SMALL_BODIES_SQL, letter_ids)
    return {row[0]: row[1] for row in rows}


FIND_BY_END_SQL: Final[LiteralString] = """
-- dead_letters: the newest whose ids end with these digits
SELECT id FROM dead_letters WHERE right(replace(id::text, '-', ''), length($1)) = $1
ORDER BY at DESC LIMIT 4
"""


async def find_by_end(connection: Connection, digits: str) -> list[UUID]:
    """Return at most four ids that end with these hexadecimal digits."""
    return [row[0] for row in await connection.fetch(FIND_BY_END_SQL, digits)]


DELETE_DEAD_LETTER_SQL: Final[LiteralString] = """
-- dead_letters: away with one that is settled
DELETE FROM dead_letters WHERE id = $1
"""


async def delete(connection: Connection, letter_id: UUID) -> None:
    """Delete a dead letter."""
    await connection.execute(DELETE_DEAD_LETTER_SQL, letter_id)


MOST_TALLIED: Final = 10_000


class Tally(NamedTuple):
    """The number of dead letters with a reason.

    Attributes:
        number: Counted up to a limit.
        oldest_seconds: Age of the oldest one.
        newest_seconds: Age of the newest one.
    """

    reason: str
    number: int
    oldest_seconds: float
    newest_seconds: float


TALLY_SQL: Final[LiteralString] = """
-- dead_letters: how many of each reason, counted up to a bound, and their ages
SELECT known.reason,
       (SELECT count(*) FROM (
            SELECT FROM dead_letters WHERE dead_letters.reason = known.reason
            ORDER BY at LIMIT $2) AS counted),
       (SELECT extract(epoch FROM clock_timestamp() - at)::float8 FROM dead_letters
        WHERE dead_letters.reason = known.reason ORDER BY at LIMIT 1),
       (SELECT extract(epoch FROM clock_timestamp() - at)::float8 FROM dead_letters
        WHERE dead_letters.reason = known.reason ORDER BY at DESC LIMIT 1)
FROM unnest($1::text[]) AS known (reason)
"""


async def tally(connection: Connection, most: int = MOST_TALLIED) -> list[Tally]:
    """Return the reasons that have dead letters, with their number."""
    rows = await connection.fetch(TALLY_SQL, list(DeadReason), most)
    return [Tally(*row.values()) for row in rows if row[1]]


EXPIRE_DEAD_LETTERS_SQL: Final[LiteralString] = """
-- dead_letters: away with those kept long enough, the oldest first
DELETE FROM dead_letters WHERE id = ANY (ARRAY(
    SELECT id FROM dead_letters WHERE at < (SELECT clock_timestamp() - $1::interval)
    ORDER BY at LIMIT $2))
"""
EXPIRE_LATE_SQL: Final[LiteralString] = """
-- late_results: away with those kept long enough, the oldest first
DELETE FROM late_results WHERE id = ANY (ARRAY(
    SELECT id FROM late_results WHERE at < (SELECT clock_timestamp() - $1::interval)
    ORDER BY at LIMIT $2))
"""


async def expire(connection: Connection, kept: timedelta, limit: int) -> int:
    """Delete dead letters and late results older than `kept`, at most `limit` of each.

    Returns:
        How many were deleted.
    """
    count = 0
    for query in (EXPIRE_DEAD_LETTERS_SQL, EXPIRE_LATE_SQL):
        status = await connection.execute(query, kept, limit)
        count += count_of(status)
    return count
