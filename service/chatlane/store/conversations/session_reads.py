"""Find sessions for the API; writes nothing and locks nothing."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Final, LiteralString

from pydantic_core import from_json

from chatlane.domain.sessions.transcripts import MAX_HOPS
from chatlane.store.addressing import identities
from chatlane.store.addressing.rooms import RoomReads
from chatlane.store.catalogue import person_state
from chatlane.store.conversations import lineage, session_views, titles
from chatlane.store.conversations.session_views import FIND_VIEW_SQL, VIEW_COLUMNS
from chatlane.store.conversations.sessions import TITLE_KEY
from chatlane_schemas.content.visible_text import title_key
from chatlane_schemas.fields import MAX_AMOUNT, MAX_COUNTERS
from chatlane_schemas.session_api.sessions import SessionChain, SessionView

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    import asyncpg

    from chatlane.postgres.pool import Connection, Store
    from chatlane_schemas.session_api.people import Person

CHAIN_SQL: Final[LiteralString] = """
-- session_reads: what a session used, and those whose conversation it continues, newest first
WITH RECURSIVE chain (id, parent_id, link_kind, owner, hops) AS (
    SELECT id, parent_id, link_kind, owner, 0 FROM sessions WHERE id = $1
    UNION ALL
    SELECT parent.id, parent.parent_id, parent.link_kind, parent.owner, chain.hops + 1
    FROM chain JOIN sessions AS parent ON parent.id = chain.parent_id
    WHERE chain.link_kind = 'compression' AND chain.hops < $2
      -- A link to another person's session is damaged, and not followed.
      AND (parent.owner IS NULL OR parent.owner = chain.owner)
)
SELECT chain.id, usage, costs
FROM chain JOIN sessions ON sessions.id = chain.id ORDER BY chain.hops
"""


async def _chain(connection: Connection, session_id: UUID) -> SessionChain:
    """Return the sums over the conversation of a session: its tip and what the tip continues."""
    tips = await lineage.find_tips(connection, [session_id])
    tip_id = tips.get(session_id, session_id)
    # A damaged chain may pass a session twice.
    rows = {row["id"]: row for row in await connection.fetch(CHAIN_SQL, tip_id, MAX_HOPS)}
    usage: Counter[str] = Counter()
    costs: dict[str, Decimal] = {}
    for row in rows.values():
        usage.update(from_json(row["usage"] or "{}"))
        for name, amount in from_json(row["costs"] or "{}").items():
            costs[name] = costs.get(name, Decimal(0)) + Decimal(amount)
    return SessionChain(
        root_id=list(rows)[-1],
        tip_id=tip_id,
        sessions=len(rows),
        usage=dict(sorted(usage.items())[:MAX_COUNTERS]),
        costs={
            name: min(amount, MAX_AMOUNT) for name, amount in sorted(costs.items())[:MAX_COUNTERS]
        },
    )


class SessionReads:
    """Reads sessions for API requests."""

    def __init__(self, store: Store, rooms: RoomReads | None = None) -> None:
        self._store = store
        self._rooms = rooms or RoomReads()

    async def find(
        self,
        session_id: UUID,
        person: Person | None = None,
        *,
        with_chain: bool = False,
        with_rooms: bool = False,
    ) -> SessionView | None:
        """Return a session; None if it does not exist, or belongs to another person.

        What the person has typed and not read is in the view.

        Args:
            with_chain: Whether the view has the sums over its conversation.
            with_rooms: Whether a member of its room gets it, too.
        """
        async with self._store.transaction() as connection:
            row = await connection.fetchrow(FIND_VIEW_SQL, session_id)
            view = await _visible(connection, row, person)
            if view is None and row is not None and with_rooms:
                return await self._find_as_member(connection, row, person)
            if view is not None and person is not None:
                [view] = await person_state.with_unread(connection, [view])
                view = await person_state.with_draft(connection, view)
            if view is None or not with_chain:
                return view
            return view.model_copy(update={"chain": await _chain(connection, session_id)})

    async def _find_as_member(
        self, connection: Connection, row: asyncpg.Record, person: Person | None
    ) -> SessionView | None:
        if row["id"] not in await self._rooms.find(connection, person):
            return None
        view = await session_views.view(connection, row)
        if view is None:
            return None
        return (await session_views.for_members(connection, [view]))[view.id]

    _COUNT_ROUNDS: Final[LiteralString] = """
        -- session_reads.count_rounds: how often a user message of a session was answered
        SELECT count(*) FROM (
            SELECT role, lag(role) OVER (ORDER BY seq) AS before FROM messages
            WHERE session_id = $1 AND role IN ('user', 'assistant')
              AND ($2::timestamptz IS NULL OR created_at > $2)
        ) AS said
        WHERE role = 'assistant' AND before = 'user'
    """

    async def count_rounds(
        self, session_id: UUID, since: datetime | None, person: Person | None = None
    ) -> int | None:
        """Return the complete rounds of a session; None if it does not exist or is not the person's."""
        async with self._store.transaction() as connection:
            row = await connection.fetchrow(FIND_VIEW_SQL, session_id)
            if await _visible(connection, row, person) is None:
                return None
            rounds: int = await connection.fetchval(self._COUNT_ROUNDS, session_id, since)
        return rounds

    _AGENT_OF: Final[LiteralString] = """
        -- session_reads.agent_of: the agent that serves a session
        SELECT agent FROM sessions WHERE id = $1
    """

    async def agent_of(self, session_id: UUID) -> str | None:
        """Return the agent of a session, if the session exists."""
        async with self._store.transaction() as connection:
            agent: str | None = await connection.fetchval(self._AGENT_OF, session_id)
        return agent

    _FIND_BY_KEY: Final[LiteralString] = f"""
        -- session_reads.find_by_key: the session that a lane leads to, by its key or an old one
        SELECT {VIEW_COLUMNS}
        FROM lanes l
        JOIN sessions s ON s.id = l.session_id
        WHERE l.session_key = coalesce(
            (SELECT session_key FROM lane_aliases WHERE alias = $1), $1)
    """  # noqa: S608 - a constant

    async def find_by_key(
        self, session_key: str, person: Person | None = None
    ) -> SessionView | None:
        """Return the session a key leads to, if it is the person's; never creates one."""
        async with self._store.transaction() as connection:
            row = await connection.fetchrow(self._FIND_BY_KEY, session_key)
            return await _visible(connection, row, person)

    _FIND_BY_TITLE: Final[LiteralString] = f"""
        -- session_reads.find_by_title: the newest of the sessions with a title
        SELECT {VIEW_COLUMNS}
        FROM sessions AS s
        WHERE {TITLE_KEY} = $1
        ORDER BY id DESC
        LIMIT $2
    """  # noqa: S608 - a constant
    _FIND_OWN: Final[LiteralString] = f"""
        -- session_reads.find_own: some sessions of owners, the newest first
        SELECT {VIEW_COLUMNS}
        FROM sessions AS s
        WHERE id = ANY($1::uuid[]) AND owner = ANY($2::text[])
        ORDER BY id DESC
        LIMIT $3
    """  # noqa: S608 - a constant

    async def find_by_title(
        self, title: str, person: Person | None = None, *, limit: int
    ) -> tuple[SessionView, ...]:
        """Return up to `limit` sessions with this title, of a person or of all, newest first.

        The titles of a person may also be in another case, or look like this one.
        """
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, person)
            if owners is None:
                rows = await connection.fetch(self._FIND_BY_TITLE, title_key(title), limit)
            else:
                alike = await titles.find_alike(connection, [title], owners)
                ids = [session.id for session in alike]
                rows = await connection.fetch(self._FIND_OWN, ids, owners, limit)
            return tuple(await session_views.views(connection, rows))


async def _visible(
    connection: Connection, row: asyncpg.Record | None, person: Person | None
) -> SessionView | None:
    """Return the view of a session, unless a named person does not own it."""
    if row is None:
        return None
    owners = await identities.find_owners(connection, person)
    if owners is not None and row["owner"] not in owners:
        return None
    return await session_views.view(connection, row)
