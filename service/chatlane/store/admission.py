"""Buckets of the admission limits: one row for each chat or person that writes much.

Rows are locked after aliases and before sessions, in the order of their keys: a person may write
in several chats, so two routers may count the same person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.limits.admission import Bucket
from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from chatlane.postgres.pool import Connection


LOCK_ADMISSION_SQL: Final[LiteralString] = """
-- admission: lock buckets, making those that are not there
INSERT INTO admission (key) SELECT key FROM unnest($1::bytea[]) AS want (key) ORDER BY key
ON CONFLICT (key) DO UPDATE SET full_at = admission.full_at
RETURNING key, full_at, told_until
"""


async def lock(connection: Connection, keys: Iterable[bytes]) -> dict[bytes, Bucket]:
    """Return the buckets by key, locked until the transaction ends."""
    rows = await connection.fetch(LOCK_ADMISSION_SQL, sorted(set(keys)))
    return {row[0]: Bucket(*row.values()) for row in rows}


WRITE_ADMISSION_SQL: Final[LiteralString] = """
-- admission: how full those locked before are now
UPDATE admission SET full_at = new.full_at, told_until = new.told_until
FROM unnest($1::bytea[], $2::timestamptz[], $3::timestamptz[])
    AS new (key, full_at, told_until)
WHERE admission.key = new.key
"""


async def write(connection: Connection, buckets: Iterable[Bucket]) -> None:
    """Write buckets that this transaction has locked."""
    rows = [(bucket.key, bucket.full_at, bucket.told_until) for bucket in buckets]
    if rows:
        await connection.execute(WRITE_ADMISSION_SQL, *columns(rows, 3))


FORGET_FULL_SQL: Final[LiteralString] = """
-- admission: away with what has been full for long, a piece at a time
WITH piece AS (
    SELECT key, full_at, told_until FROM admission WHERE key > $1
    ORDER BY key LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM admission WHERE key = ANY(ARRAY(
        SELECT key FROM piece
        WHERE coalesce(greatest(full_at, told_until), '-infinity')
            < clock_timestamp() - $2::interval))
)
SELECT (array_agg(key ORDER BY key DESC))[1] FROM piece
"""


async def forget_full(
    connection: Connection, after: bytes, kept: timedelta, limit: int
) -> bytes | None:
    """Delete buckets that have been full for `kept`, among the next `limit` ones after a key.

    Returns:
        The last key that was checked; None at the end.
    """
    last: bytes | None = await connection.fetchval(FORGET_FULL_SQL, after, kept, limit)
    return last
