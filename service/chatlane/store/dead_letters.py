"""Dead letters: messages set aside with a reason, kept with their body for the operator."""

from datetime import datetime
from typing import TYPE_CHECKING, Final, LiteralString
from uuid import UUID

from chatlane.domain.effects import DeadRow
from chatlane.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg.pool import PoolConnectionProxy

INSERT_DEAD_LETTERS_SQL: Final[LiteralString] = """
-- dead_letters: set messages aside; a repeat changes nothing
INSERT INTO dead_letters (
    id, stage, reason, log, partition, sequence, stored_at, subject, session_id, digest,
    size_bytes, detail, body)
SELECT * FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::bigint[], $7::timestamptz[],
    $8::text[], $9::uuid[], $10::bytea[], $11::int[], $12::text[], $13::bytea[])
ON CONFLICT (id) DO NOTHING
RETURNING id
"""


async def insert(connection: "PoolConnectionProxy", rows: "Sequence[DeadRow]") -> set[UUID]:
    """Write dead letters.

    Returns:
        The ids that were not there before.
    """
    if not rows:
        return set()
    return {row[0] for row in await connection.fetch(INSERT_DEAD_LETTERS_SQL, *columns(rows, 13))}


RECENT_DEAD_LETTERS_SQL: Final[LiteralString] = """
-- dead_letters: the newest, without their bodies
SELECT at, id, stage, reason, log, partition, sequence, stored_at, subject, session_id, digest,
       size_bytes, detail
FROM dead_letters WHERE at < coalesce($2, 'infinity'::timestamptz)
ORDER BY at DESC, id DESC LIMIT $1
"""


async def list_recent(
    connection: "PoolConnectionProxy", limit: int, before: datetime | None = None
) -> list[tuple[datetime, DeadRow]]:
    """Return when each was set aside and what it was, newest first; bodies stay where they are.

    Args:
        connection: Any.
        limit: At most so many.
        before: Only older ones; the time of the last of the page before.
    """
    rows = await connection.fetch(RECENT_DEAD_LETTERS_SQL, limit, before)
    return [(at, DeadRow._make((*fields, None))) for at, *fields in rows]
