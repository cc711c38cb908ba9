"""Message limits: buckets of chats and people, and budgets of other bots.

Rows are locked after aliases and before sessions, in the order of their keys: a person may write
in several chats, so two routers may count the same person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.limits.message_limits import Bucket, Spent
from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from chatlane.domain.limits.message_limits import ChatRange
    from chatlane.postgres.pool import Connection

LOCK_ADMISSION_SQL: Final[LiteralString] = """
-- admission: lock buckets, making those that are not there
INSERT INTO admission (key) SELECT key FROM unnest($1::bytea[]) AS want (key) ORDER BY key
ON CONFLICT (key) DO UPDATE SET full_at = admission.full_at
RETURNING key, full_at, told_until
"""


async def lock_buckets(connection: Connection, keys: Iterable[bytes]) -> dict[bytes, Bucket]:
    """Return the buckets by key, locked until the transaction ends."""
    rows = await connection.fetch(LOCK_ADMISSION_SQL, sorted(set(keys)))
    return {row["key"]: Bucket(**row) for row in rows}


WRITE_ADMISSION_SQL: Final[LiteralString] = """
-- admission: how full those locked before are now
UPDATE admission SET full_at = new.full_at, told_until = new.told_until
FROM unnest($1::bytea[], $2::timestamptz[], $3::timestamptz[])
    AS new (key, full_at, told_until)
WHERE admission.key = new.key
"""


async def write_buckets(connection: Connection, buckets: Iterable[Bucket]) -> None:
    """Write buckets that this transaction has locked."""
    rows = [(bucket.key, bucket.full_at, bucket.told_until) for bucket in buckets]
    if rows:
        await connection.execute(WRITE_ADMISSION_SQL, *columns(rows, 3))


LOCK_BUDGETS_SQL: Final[LiteralString] = """
-- bot_budgets: lock those of a batch, in the order everybody locks them
SELECT key, opened_at, last_at, messages, is_silenced
FROM bot_budgets WHERE key = ANY($1::bytea[]) ORDER BY key FOR NO KEY UPDATE
"""


async def lock_budgets(connection: Connection, keys: Iterable[bytes]) -> dict[bytes, Spent]:
    """Return the spent budgets by key, locked until the transaction ends."""
    rows = await connection.fetch(LOCK_BUDGETS_SQL, list(keys))
    return {row["key"]: Spent(**row) for row in rows}


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


async def write_budgets(connection: Connection, spent: Iterable[Spent]) -> None:
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
