"""Delete rows that are older than `[retention]` permits, in batches that run beside the traffic.

Routers clean the other tables themselves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.domain.ids import first_id_at
from chatlane.privacy import erasure_list_sql, retention_sql
from chatlane.store import audit
from chatlane.store.conversations import removals, sessions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.postgres.pool import Store

_START: Final = UUID(int=0)
_ROWS_AT_ONCE: Final = 1_000
_SESSIONS_AT_ONCE: Final = 50
ERASED_KEPT: Final = timedelta(days=90)
# Pause between two batches, so that routers find the database idle.
_PAUSE: Final = timedelta(milliseconds=20)


@dataclass(frozen=True, slots=True)
class Ages:
    """Retention periods by kind of data; None for no limit."""

    sessions: timedelta | None
    archive: timedelta | None
    revisions: timedelta | None
    turns: timedelta
    audit: timedelta


class Retaining:
    """Deletes expired rows; it may be interrupted and run again at any time.

    Args:
        store: Database access with any timeouts, because each batch takes milliseconds.
        ages: The periods of `[retention]`.
    """

    def __init__(self, store: Store, ages: Ages) -> None:
        self._transaction = store.transaction
        self._ages = ages

    async def run(self) -> Counter[str]:
        """Delete all expired rows; return their numbers by table."""
        done: Counter[str] = Counter()
        ages = self._ages
        if ages.sessions is not None:
            done["sessions"] = await self._remove_sessions(ages.sessions)
        if ages.archive is not None:
            done["removed_messages"] = await self._delete_archive(ages.archive)
        if (revisions := ages.revisions) is not None:
            done["message_revisions"] = await self._until_done(
                lambda connection: retention_sql.delete_revisions(
                    connection, revisions, _ROWS_AT_ONCE
                )
            )
        done["turns"] = await self._delete_turns(ages.turns)
        done["session_holds"] = await self._until_done(
            lambda connection: retention_sql.delete_holds(connection, _ROWS_AT_ONCE)
        )
        done["audit"] = await self._until_done(
            lambda connection: audit.expire(connection, ages.audit, _ROWS_AT_ONCE)
        )
        done["erased_ids, erased_messages"] = await self._until_done(
            lambda connection: erasure_list_sql.expire(connection, ERASED_KEPT, _ROWS_AT_ONCE)
        )
        return done

    async def _until_done(self, delete: Callable[[PoolConnectionProxy], Awaitable[int]]) -> int:
        total = 0
        while True:
            async with self._transaction() as connection:
                count = await delete(connection)
            total += count
            if not count:
                return total
            await asyncio.sleep(_PAUSE.total_seconds())

    async def _remove_sessions(self, age: timedelta) -> int:
        total, after = 0, _START
        while True:
            async with self._transaction() as connection:
                old = await retention_sql.ended_sessions(connection, after, age, _SESSIONS_AT_ONCE)
                last = await retention_sql.end_of_piece(connection, after)
            if old:
                total += await self._remove(old)
                after = old[-1] if len(old) == _SESSIONS_AT_ONCE else last or old[-1]
                await asyncio.sleep(_PAUSE.total_seconds())
            elif last is None:
                return total
            else:
                after = last

    async def _remove(self, old: list[UUID]) -> int:
        async with self._transaction() as connection:
            removed = sorted(await sessions.lock_free(connection, old))
            await removals.remove(connection, removed)
            for session_id in removed:
                await audit.write(connection, "session_removed", session_id, {"reason": "age"})
        return len(removed)

    async def _delete_archive(self, age: timedelta) -> int:
        total: int = 0
        after: UUID | None = _START
        while after is not None:
            async with self._transaction() as connection:
                last = await retention_sql.end_of_piece(connection, after)
            total += await self._until_done(
                partial(
                    retention_sql.delete_archive,
                    after=after,
                    through=last,
                    age=age,
                    limit=_ROWS_AT_ONCE,
                )
            )
            after = last
        return total

    async def _delete_turns(self, age: timedelta) -> int:
        total, after, before = 0, _START, first_id_at(datetime.now(UTC) - age)
        while True:
            async with self._transaction() as connection:
                deleted = await retention_sql.delete_turns(connection, after, before, _ROWS_AT_ONCE)
            if not deleted:
                return total
            total, after = total + len(deleted), max(deleted)
            await asyncio.sleep(_PAUSE.total_seconds())
