"""Unused rows of tables whose rows have a digest as key: limits, and shown lists.

Batches update their times, so no index has these. They are checked in the order of their keys, some
in each transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from datetime import timedelta

    from chatlane.postgres.pool import Transaction


def _expiry_of(table: LiteralString, used_at: LiteralString) -> LiteralString:
    return f"""
-- {table}: delete the rows that have been unused for long, among the next ones
WITH piece AS (
    SELECT key, {used_at} AS used_at FROM {table} WHERE key > $1
    ORDER BY key LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM {table} WHERE key = ANY(ARRAY(
        SELECT key FROM piece WHERE used_at < clock_timestamp() - $2::interval))
)
SELECT (array_agg(key ORDER BY key DESC))[1] FROM piece
"""  # noqa: S608 - constants


EXPIRE_BUCKETS_SQL: Final = _expiry_of(
    "admission", "coalesce(greatest(full_at, told_until), '-infinity')"
)
EXPIRE_BUDGETS_SQL: Final = _expiry_of("bot_budgets", "last_at")
EXPIRE_LISTS_SQL: Final = _expiry_of("shown_lists", "shown_at")


async def expire(
    transaction: Transaction,
    query: LiteralString,
    unused: timedelta,
    at_once: int,
) -> None:
    """Delete the rows that have been unused for a time; a locked row is used."""
    after: bytes | None = b""
    while after is not None:
        async with transaction() as connection:
            after = await connection.fetchval(query, after, unused, at_once)
