"""Reads sessions for the API; writes nothing and locks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane_schemas.sessions import SessionView

if TYPE_CHECKING:
    import asyncpg

    from chatlane.store.pool import Store

# Session ids start with the time of their first message: above all of them is no cursor at all.
_ABOVE_ALL: Final = UUID(int=2**128 - 1)


class SessionReads:
    """Answers questions about sessions, each with one statement."""

    def __init__(self, store: Store) -> None:
        self._store = store

    _FIND: Final = """
        -- session_reads.find: one session by its id
        SELECT id, session_key, agent, platform, started_at, ended_at, end_reason,
               last_activity_at, next_seq, title, active_turn
        FROM sessions
        WHERE id = $1
    """

    async def find(self, session_id: UUID) -> SessionView | None:
        """Return the session, if there is one."""
        async with self._store.transaction() as connection:
            row = await connection.fetchrow(self._FIND, session_id)
        return None if row is None else _session(row)

    _FIND_BY_KEY: Final = """
        -- session_reads.find_by_key: the session a lane leads to now, by its key or an old one
        SELECT s.id, s.session_key, s.agent, s.platform, s.started_at, s.ended_at, s.end_reason,
               s.last_activity_at, s.next_seq, s.title, s.active_turn
        FROM lanes l
        JOIN sessions s ON s.id = l.session_id
        WHERE l.session_key = coalesce(
            (SELECT session_key FROM lane_aliases WHERE alias = $1), $1)
    """

    async def find_by_key(self, session_key: str) -> SessionView | None:
        """Return the session a key leads to now; never creates one."""
        async with self._store.transaction() as connection:
            row = await connection.fetchrow(self._FIND_BY_KEY, session_key)
        return None if row is None else _session(row)

    # One statement per index: with an optional filter the planner may settle on a plan that
    # walks all sessions to find a rare platform.
    _LIST: Final = """
        -- session_reads.list: sessions, newest first
        SELECT id, session_key, agent, platform, started_at, ended_at, end_reason,
               last_activity_at, next_seq, title, active_turn
        FROM sessions
        WHERE id < $1
        ORDER BY id DESC
        LIMIT $2
    """
    _LIST_OF_PLATFORM: Final = """
        -- session_reads.list_of_platform: sessions of one platform, perhaps of one agent
        SELECT id, session_key, agent, platform, started_at, ended_at, end_reason,
               last_activity_at, next_seq, title, active_turn
        FROM sessions
        WHERE platform = $3 AND id < $1 AND ($4::text IS NULL OR agent = $4)
        ORDER BY id DESC
        LIMIT $2
    """
    _LIST_OF_AGENT: Final = """
        -- session_reads.list_of_agent: sessions of one agent
        SELECT id, session_key, agent, platform, started_at, ended_at, end_reason,
               last_activity_at, next_seq, title, active_turn
        FROM sessions
        WHERE agent = $3 AND id < $1
        ORDER BY id DESC
        LIMIT $2
    """

    async def list(
        self,
        *,
        platform: str | None = None,
        agent: str | None = None,
        older_than: UUID | None = None,
        limit: int,
    ) -> tuple[SessionView, ...]:
        """Return up to `limit` sessions, newest first, that began before `older_than`."""
        upper = older_than or _ABOVE_ALL
        async with self._store.transaction() as connection:
            if platform is not None:
                rows = await connection.fetch(self._LIST_OF_PLATFORM, upper, limit, platform, agent)
            elif agent is not None:
                rows = await connection.fetch(self._LIST_OF_AGENT, upper, limit, agent)
            else:
                rows = await connection.fetch(self._LIST, upper, limit)
        return tuple(map(_session, rows))


def _session(row: asyncpg.Record) -> SessionView:
    return SessionView(
        id=row["id"],
        session_key=row["session_key"],
        agent=row["agent"],
        platform=row["platform"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        end_reason=row["end_reason"],
        # A session that a timer opened has no activity yet.
        last_activity_at=row["last_activity_at"] or row["started_at"],
        message_count=row["next_seq"] - 1,
        title=row["title"],
        is_busy=row["active_turn"] is not None,
    )
