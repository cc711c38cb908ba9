"""Read sessions for the API; writes nothing and locks nothing."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from pydantic_core import from_json, to_json

from chatlane.postgres.stored_values import read_override, read_reason, read_record
from chatlane.store.addressing import identities
from chatlane.store.conversations import session_flags
from chatlane.store.conversations.title_keys import TITLE_KEY
from chatlane_schemas.session_api.session_state import ResumeMark
from chatlane_schemas.session_api.sessions import SessionView
from chatlane_schemas.visible_text import title_key

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    from chatlane.postgres.pool import Store
    from chatlane_schemas.session_api.people import Person


_REPLACEABLE: Final = ("title", "cwd", "model", "config", "model_override", "carry_over")
_VERSION_DIGITS: Final = 32


class SessionReads:
    """Reads sessions for API requests."""

    def __init__(self, store: Store) -> None:
        self._store = store

    _FIND: Final = """
        -- session_reads.find: one session by its id
        SELECT id, session_key, agent, platform, started_at, ended_at, end_reason,
               last_activity_at, next_seq, seq_gaps, title, active_turn, cwd, model, config, owner,
               suspended_at, resume_marked_at, resume_reason, held_until, model_override, answers,
               usage, origin, archived_at, parent_id, link_kind, carry_over
        FROM sessions
        WHERE id = $1
    """

    async def find(self, session_id: UUID, person: Person | None = None) -> SessionView | None:
        """Return a session; None if it does not exist, or a named person does not own it."""
        async with self._store.transaction() as connection:
            row = await connection.fetchrow(self._FIND, session_id)
            is_visible = row is not None and await _is_of(connection, row, person)
        return session_view(row) if row is not None and is_visible else None

    async def count_rounds(
        self, session_id: UUID, since: datetime | None, person: Person | None = None
    ) -> int | None:
        """Return the complete rounds of a session; None if it does not exist or is not the person's."""
        async with self._store.transaction() as connection:
            row = await connection.fetchrow(self._FIND, session_id)
            if row is None or not await _is_of(connection, row, person):
                return None
            return await session_flags.count_rounds(connection, session_id, since)

    _AGENT_OF: Final = """
        -- session_reads.agent_of: who serves a session
        SELECT agent FROM sessions WHERE id = $1
    """

    async def agent_of(self, session_id: UUID) -> str | None:
        """Return the agent of a session, if the session exists."""
        async with self._store.transaction() as connection:
            agent: str | None = await connection.fetchval(self._AGENT_OF, session_id)
        return agent

    async def find_within(
        self, connection: PoolConnectionProxy, session_id: UUID
    ) -> SessionView | None:
        """Return a session as seen by the current transaction."""
        row = await connection.fetchrow(self._FIND, session_id)
        return None if row is None else session_view(row)

    _FIND_BY_KEY: Final = """
        -- session_reads.find_by_key: the session a lane leads to now, by its key or an old one
        SELECT s.id, s.session_key, s.agent, s.platform, s.started_at, s.ended_at, s.end_reason,
               s.last_activity_at, s.next_seq, s.seq_gaps, s.title, s.active_turn, s.cwd, s.model,
               s.config, s.owner, s.suspended_at, s.resume_marked_at, s.resume_reason,
               s.held_until, s.model_override, s.answers, s.usage, s.origin, s.archived_at,
               s.parent_id, s.link_kind, s.carry_over
        FROM lanes l
        JOIN sessions s ON s.id = l.session_id
        WHERE l.session_key = coalesce(
            (SELECT session_key FROM lane_aliases WHERE alias = $1), $1)
    """

    async def find_by_key(
        self, session_key: str, person: Person | None = None
    ) -> SessionView | None:
        """Return the session a key leads to, if it is the person's; never creates one."""
        async with self._store.transaction() as connection:
            row = await connection.fetchrow(self._FIND_BY_KEY, session_key)
            is_visible = row is not None and await _is_of(connection, row, person)
        return session_view(row) if row is not None and is_visible else None

    _FIND_BY_TITLE: Final = (
        """
        -- session_reads.find_by_title: the newest of the sessions with a title
        SELECT id, session_key, agent, platform, started_at, ended_at, end_reason,
               last_activity_at, next_seq, seq_gaps, title, active_turn, cwd, model, config, owner,
               suspended_at, resume_marked_at, resume_reason, held_until, model_override, answers,
               usage, origin, archived_at, parent_id, link_kind, carry_over
        FROM sessions
        WHERE """  # noqa: S608 - a constant
        + TITLE_KEY
        + """ = $1 AND ($2::text[] IS NULL OR owner = ANY($2))
        ORDER BY id DESC
        LIMIT $3
    """
    )

    async def find_by_title(
        self, title: str, person: Person | None = None, *, limit: int
    ) -> tuple[SessionView, ...]:
        """Return up to `limit` sessions with this title, of a person or of all, newest first."""
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, person)
            rows = await connection.fetch(self._FIND_BY_TITLE, title_key(title), owners, limit)
        return tuple(filter(None, map(session_view, rows)))


async def _is_of(
    connection: PoolConnectionProxy, row: asyncpg.Record, person: Person | None
) -> bool:
    owners = await identities.find_owners(connection, person)
    return owners is None or row["owner"] in owners


def session_view(row: asyncpg.Record) -> SessionView | None:
    """Build the API view of a session from the columns that every statement here selects.

    Omits values that this release does not know; None if the view is invalid without them.
    """
    fields: dict[str, object] = {
        "id": row["id"],
        "session_key": row["session_key"],
        "agent": row["agent"],
        "platform": row["platform"],
        "started_at": row["started_at"],
        "ended_at": row["ended_at"],
        "end_reason": row["end_reason"],
        # A session that a timer opened has no activity until its first message.
        "last_activity_at": row["last_activity_at"] or row["started_at"],
        "message_count": row["next_seq"] - 1 - row["seq_gaps"],
        "title": row["title"],
        "is_busy": row["active_turn"] is not None,
        "cwd": row["cwd"],
        "model": row["model"],
        "config": None if row["config"] is None else from_json(row["config"]),
        "model_override": None
        if row["model_override"] is None
        else read_override(row["model_override"]),
        "is_suspended": row["suspended_at"] is not None,
        "resume_pending": None
        if row["resume_marked_at"] is None
        else ResumeMark(
            reason=read_reason(row["resume_reason"]), marked_at=row["resume_marked_at"]
        ),
        "held_until": row["held_until"],
        "answer_count": row["answers"],
        "usage": {} if row["usage"] is None else from_json(row["usage"]),
        "origin": row["origin"],
        "archived_at": row["archived_at"],
        "parent_id": row["parent_id"],
        "link_kind": row["link_kind"],
        "note": row["carry_over"],
        "version": _version(row),
    }
    return read_record(SessionView, fields, "sessions")


def _version(row: asyncpg.Record) -> str:
    """Return a digest of the values that requests can replace.

    It covers the values instead of a counter: chat commands and routers of other releases also
    change them, and need not maintain a counter.
    """
    values = [row[name] for name in _REPLACEABLE] + [row["archived_at"] is not None]
    return sha256(to_json(values)).hexdigest()[:_VERSION_DIGITS]
