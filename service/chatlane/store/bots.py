"""Message budgets of other bots, used only by batches with a message of a bot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.limits.bots import Spent
from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime, timedelta

    from chatlane.domain.limits.bots import ChatRange
    from chatlane.postgres.pool import Connection

LOCK_BUDGETS_SQL: Final[LiteralString] = """
-- bot_budgets: lock those of a batch, in the order everybody locks them
SELECT key, opened_at, last_at, messages, is_silenced
FROM bot_budgets WHERE key = ANY($1::bytea[]) ORDER BY key FOR NO KEY UPDATE
"""


async def lock(connection: Connection, keys: Iterable[bytes]) -> dict[bytes, Spent]:
    """Return the spent budgets by key, locked until the transaction ends."""
    rows = await connection.fetch(LOCK_BUDGETS_SQL, list(keys))
    return {row["key"]: Spent(*row.values()) for row in rows}


WRITE_BUDGETS_SQL: Final[LiteralString] = """
-- bot_budgets: what is spent now
INSERT INTO bot_budgets (key, opened_at, last_at, messages, is_silenced)
SELECT * FROM unnest($1::bytea[], $2::timestamptz[], $3::timestamptz[], $4::int[], $5::bool[])
    AS new (key, opened_at, last_at, messages, is_silenced)
ORDER BY key
ON CONFLICT (key) DO UPDATE SET
    opened_at = excluded.opened_at, last_at = excluded.last_at, messages = excluded.messages,
    is_silenced = excluded.is_silenced
"""


async def write(connection: Connection, spent: Iterable[Spent]) -> None:
    """Write spent budgets, both new and locked ones."""
    rows = [
        (budget.key, budget.opened_at, budget.last_at, budget.messages, budget.is_silenced)
        for budget in spent
    ]
    if rows:
        await connection.execute(WRITE_BUDGETS_SQL, *columns(rows, 5))


FIND_PEOPLE_SQL: Final[LiteralString] = """
-- lanes: when people last spoke in chats, among some lanes of each
SELECT want.chat, max(sessions.last_activity_at)
FROM unnest($1::text[], $2::text[], $3::text[]) AS want (chat, prefix, suffix)
CROSS JOIN LATERAL (
    SELECT session_id FROM lanes
    WHERE (lanes.session_key = want.chat
           -- ";" is the character after ":", so this is the range of all keys that go on after one
           OR (lanes.session_key > want.prefix || ':' AND lanes.session_key < want.prefix || ';'))
      AND right(lanes.session_key, length(want.suffix)) = want.suffix
    LIMIT $4
) AS lane
JOIN sessions ON sessions.id = lane.session_id
WHERE sessions.last_activity_at IS NOT NULL
GROUP BY want.chat
"""


async def find_people(
    connection: Connection, chats: Collection[tuple[str, ChatRange]], limit: int
) -> dict[str, datetime]:
    """Return when a person last wrote in each chat, among the first lanes of the chat."""
    wanted = [(chat, chat_range.prefix, chat_range.suffix) for chat, chat_range in chats]
    rows = await connection.fetch(FIND_PEOPLE_SQL, *columns(wanted, 3), limit)
    return {row[0]: row[1] for row in rows}


FORGET_BUDGETS_SQL: Final[LiteralString] = """
-- bot_budgets: away with those of bots that have been quiet for long, a piece at a time
WITH piece AS (
    SELECT key, last_at FROM bot_budgets WHERE key > $1
    ORDER BY key LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM bot_budgets WHERE key = ANY(ARRAY(
        SELECT key FROM piece WHERE last_at < clock_timestamp() - $2::interval))
)
SELECT (array_agg(key ORDER BY key DESC))[1] FROM piece
"""


async def forget(
    connection: Connection, after: bytes, quiet: timedelta, limit: int
) -> bytes | None:
    """Delete budgets of bots that have been quiet for `quiet`, among the next `limit` after a key.

    Returns:
        The last key that was checked; None at the end.
    """
    last: bytes | None = await connection.fetchval(FORGET_BUDGETS_SQL, after, quiet, limit)
    return last
