"""Session lists that were shown to users; read only by batches with a command that needs them."""

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.commands.session_summaries import ShownList

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from asyncpg.pool import PoolConnectionProxy

FIND_SHOWN_SQL: Final[LiteralString] = """
-- shown_lists: what was shown last under these keys
SELECT key, shown_at, session_ids FROM shown_lists WHERE key = ANY($1::bytea[])
"""


async def find(
    connection: "PoolConnectionProxy", keys: "Iterable[bytes]"
) -> dict[bytes, ShownList]:
    """Return the lists that were shown, by key."""
    rows = await connection.fetch(FIND_SHOWN_SQL, list(keys))
    return {row["key"]: ShownList(*row.values()) for row in rows}


WRITE_SHOWN_SQL: Final[LiteralString] = """
-- shown_lists: what is shown now
INSERT INTO shown_lists (key, shown_at, session_ids) VALUES ($1, $2, $3)
ON CONFLICT (key) DO UPDATE SET shown_at = excluded.shown_at, session_ids = excluded.session_ids
"""


async def write(connection: "PoolConnectionProxy", lists: "Sequence[ShownList]") -> None:
    """Write the lists that were shown, in the order of their keys."""
    if lists:
        await connection.executemany(WRITE_SHOWN_SQL, lists)


FORGET_SHOWN_SQL: Final[LiteralString] = """
-- shown_lists: away with those that were shown long ago, a piece at a time
WITH piece AS (
    SELECT key, shown_at FROM shown_lists WHERE key > $1
    ORDER BY key LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM shown_lists WHERE key = ANY(ARRAY(
        SELECT key FROM piece WHERE shown_at < clock_timestamp() - $2::interval))
)
SELECT (array_agg(key ORDER BY key DESC))[1] FROM piece
"""


async def forget(
    connection: "PoolConnectionProxy", after: bytes, age: "timedelta", limit: int
) -> bytes | None:
    """Delete lists that were shown more than `age` ago, among the next `limit` after a key.

    Returns:
        The last key that was checked; None at the end.
    """
    last: bytes | None = await connection.fetchval(FORGET_SHOWN_SQL, after, age, limit)
    return last
