"""Read, list and count sessions for the API; writes nothing and locks nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from pydantic_core import from_json, to_json

from chatlane.domain.sessions.transcripts import MAX_HOPS
from chatlane.postgres.stored_values import read_override, read_reason, read_record
from chatlane.store.addressing import identities
from chatlane.store.conversations import lineage, titles
from chatlane.store.conversations.sessions import TITLE_KEY
from chatlane_schemas.content.visible_text import title_key
from chatlane_schemas.fields import MAX_AMOUNT, MAX_COUNTERS
from chatlane_schemas.session_api.session_state import ResumeMark
from chatlane_schemas.session_api.sessions import (
    CHAT_ORIGIN,
    SessionChain,
    SessionCounts,
    SessionView,
)

if TYPE_CHECKING:
    import asyncpg

    from chatlane.postgres.pool import Connection, Store
    from chatlane_schemas.session_api.people import Person
    from chatlane_schemas.session_api.sessions import SessionFilter

_REPLACEABLE: Final = ("title", "cwd", "model", "config", "model_override", "carry_over")
_VERSION_DIGITS: Final = 32
# Session ids start with the time of their first message; the largest id means no cursor.
_ABOVE_ALL: Final = UUID(int=2**128 - 1)
# How many sessions a page reads if a filter has no index, about 5 ms. The rest is left to the
# next page, so a rare match costs more pages and never a long statement.
_LOOKED_AT: Final = 2000
MOST_COUNTED: Final = 50_000
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)

_VIEW_COLUMNS: Final[LiteralString] = """
    s.id, s.session_key, s.agent, s.platform, s.started_at, s.ended_at, s.end_reason,
    s.last_activity_at, s.next_seq, s.seq_gaps, s.title, s.active_turn, s.cwd, s.model, s.config,
    s.owner, s.suspended_at, s.resume_marked_at, s.resume_reason, s.held_until, s.model_override,
    s.answers, s.usage, s.costs, s.gauges, s.origin, s.archived_at, s.parent_id, s.link_kind, s.carry_over
"""
# Columns of a view that keep their names and values.
_UNCHANGED: Final = (
    *("id", "session_key", "agent", "platform", "started_at", "ended_at", "end_reason"),
    *("title", "cwd", "model", "held_until", "origin", "archived_at", "parent_id", "link_kind"),
)

FIND_VIEW_SQL: Final[LiteralString] = f"""
-- session_reads: one session by its id
SELECT {_VIEW_COLUMNS}
FROM sessions AS s WHERE s.id = $1
"""  # noqa: S608 - a constant


async def find_view(connection: Connection, session_id: UUID) -> SessionView | None:
    """Return the API view of a session as seen by the current transaction."""
    row = await connection.fetchrow(FIND_VIEW_SQL, session_id)
    return None if row is None else _view(row)


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


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, newest first, and the start of the next page; None on the last page."""

    sessions: tuple[SessionView, ...]
    next_below: UUID | None


class Activity(NamedTuple):
    """A place in the order of activity."""

    at: datetime
    session_id: UUID


class ActivePage(NamedTuple):
    """Sessions with their places, last active first, and the end of the page if more follow."""

    sessions: tuple[tuple[SessionView, Activity], ...]
    end: Activity | None


class SessionReads:
    """Reads sessions for API requests."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(
        self, session_id: UUID, person: Person | None = None, *, with_chain: bool = False
    ) -> SessionView | None:
        """Return a session; None if it does not exist, or a named person does not own it.

        Args:
            with_chain: Whether the view has the sums over its conversation.
        """
        async with self._store.transaction() as connection:
            row = await connection.fetchrow(FIND_VIEW_SQL, session_id)
            view = await _visible(connection, row, person)
            if view is None or not with_chain:
                return view
            return view.model_copy(update={"chain": await _chain(connection, session_id)})

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
        SELECT {_VIEW_COLUMNS}
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
        SELECT {_VIEW_COLUMNS}
        FROM sessions AS s
        WHERE {TITLE_KEY} = $1
        ORDER BY id DESC
        LIMIT $2
    """  # noqa: S608 - a constant
    _FIND_OWN: Final[LiteralString] = f"""
        -- session_reads.find_own: some sessions of owners, the newest first
        SELECT {_VIEW_COLUMNS}
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
        return tuple(filter(None, map(_view, rows)))

    _FILTERED: Final[LiteralString] = (
        "id, owner, platform, agent, origin, archived_at, ended_at, last_activity_at"
    )
    # The newest sessions below an id, read from the index that $1 names. With optional conditions
    # instead, the planner may choose a plan that walks all sessions to find a rare platform.
    # Postgres does not execute the other branches.
    _CANDIDATES: Final[LiteralString] = f"""
            (SELECT {_FILTERED} FROM sessions
             WHERE $1 = 'every' AND id < $2 ORDER BY id DESC LIMIT $3)
            UNION ALL
            (SELECT {_FILTERED} FROM sessions
             WHERE $1 = 'platform' AND platform = $5 AND id < $2 ORDER BY id DESC LIMIT $3)
            UNION ALL
            (SELECT {_FILTERED} FROM sessions
             WHERE $1 = 'agent' AND agent = $6 AND id < $2 ORDER BY id DESC LIMIT $3)
            UNION ALL
            (SELECT {_FILTERED} FROM sessions
             WHERE $1 = 'origin' AND origin = $7 AND origin <> 'chat' AND id < $2
             ORDER BY id DESC LIMIT $3)
            UNION ALL
            (SELECT own.* FROM unnest($4::text[]) AS of_person (owner) CROSS JOIN LATERAL (
                 SELECT {_FILTERED} FROM sessions
                 WHERE $1 = 'owner' AND sessions.owner = of_person.owner AND id < $2
                 ORDER BY id DESC LIMIT $3) AS own
             ORDER BY id DESC LIMIT $3)
    """  # noqa: S608 - a constant
    _MATCHES: Final[LiteralString] = """
                  ($4::text[] IS NULL OR owner = ANY($4)) AND ($5::text IS NULL OR platform = $5)
              AND ($6::text IS NULL OR agent = $6) AND ($7::text IS NULL OR origin = $7)
              AND ($8::timestamptz IS NULL OR last_activity_at >= $8)
              AND ($9::boolean IS NULL OR (archived_at IS NOT NULL) = $9)
    """

    _PAGE: Final[LiteralString] = f"""
        -- session_reads.page: the newest sessions that match, of those below an id
        WITH looked_at AS MATERIALIZED ({_CANDIDATES}), bounds AS (
            SELECT count(*) AS looked_at, (array_agg(id ORDER BY id))[1] AS lowest FROM looked_at
        ), matching AS (
            SELECT id FROM looked_at WHERE {_MATCHES} ORDER BY id DESC LIMIT $10
        )
        SELECT bounds.looked_at, bounds.lowest, {_VIEW_COLUMNS}
        FROM bounds LEFT JOIN (matching JOIN sessions AS s ON s.id = matching.id) ON true
        ORDER BY s.id DESC
    """  # noqa: S608 - a constant

    async def page(self, wanted: SessionFilter, *, below: UUID | None, limit: int) -> SessionPage:
        """Return up to `limit` sessions that began before `below`, newest first.

        A page may hold fewer sessions, even none, without being the last one.
        """
        lead = _lead(wanted)
        # One row beyond the limit shows whether there is another page.
        looks_at = limit + 1 if lead.is_all else _LOOKED_AT
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, wanted.acting_for)
            rows = await connection.fetch(
                self._PAGE,
                lead.name,
                below or _ABOVE_ALL,
                looks_at,
                owners,
                *_filters(wanted),
                limit + 1,
            )
        found = [row for row in rows if row["id"] is not None]
        page = tuple(filter(None, map(_view, found[:limit])))
        if len(found) > limit:
            return SessionPage(page, found[limit - 1]["id"])
        is_last = rows[0]["looked_at"] < looks_at
        return SessionPage(page, None if is_last else rows[0]["lowest"])

    _ACTIVITY: Final[LiteralString] = "coalesce(last_activity_at, started_at)"
    _ACTIVE_PAGE: Final[LiteralString] = f"""
        -- session_reads.active_page: the sessions that match, the last active first
        WITH looked_at AS MATERIALIZED (
            (SELECT {_FILTERED}, {_ACTIVITY} AS active_at FROM sessions
             WHERE $1 = 'every' AND active_hour <= $2 AND ({_ACTIVITY}, id) < ($2, $11)
             ORDER BY active_hour DESC, {_ACTIVITY} DESC, id DESC LIMIT $3)
            UNION ALL
            (SELECT own.* FROM unnest($4::text[]) AS of_person (owner) CROSS JOIN LATERAL (
                 SELECT {_FILTERED}, {_ACTIVITY} AS active_at FROM sessions
                 WHERE $1 = 'owner' AND sessions.owner = of_person.owner
                   AND ({_ACTIVITY}, id) < ($2, $11)) AS own
             ORDER BY active_at DESC, id DESC LIMIT $3)
        ), lowest AS (
            SELECT active_at, id FROM looked_at ORDER BY active_at, id LIMIT 1
        ), matching AS (
            SELECT id, active_at FROM looked_at WHERE {_MATCHES}
            ORDER BY active_at DESC, id DESC LIMIT $10
        )
        SELECT (SELECT count(*) FROM looked_at) AS looked_at, lowest.active_at AS lowest_at,
               lowest.id AS lowest_id, matching.active_at, {_VIEW_COLUMNS}
        FROM lowest LEFT JOIN (matching JOIN sessions AS s ON s.id = matching.id) ON true
        ORDER BY matching.active_at DESC, s.id DESC
    """  # noqa: S608 - constants

    async def active_page(
        self, wanted: SessionFilter, *, before: Activity | None, limit: int
    ) -> ActivePage:
        """Return up to `limit` sessions that were last active before a place in the order.

        A page may hold fewer sessions, even none, without being the last one.
        """
        is_owned = wanted.acting_for is not None
        is_all = all(value is None for value in _filters(wanted))
        looks_at = limit + 1 if is_all else _LOOKED_AT
        at, below = before or Activity(_LATEST, _ABOVE_ALL)
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, wanted.acting_for)
            rows = await connection.fetch(
                self._ACTIVE_PAGE,
                "owner" if is_owned else "every",
                at,
                looks_at,
                owners,
                *_filters(wanted),
                limit + 1,
                below,
            )
        found = [row for row in rows if row["id"] is not None]
        listed = tuple(
            (view, Activity(row["active_at"], row["id"]))
            for row in found[:limit]
            if (view := _view(row)) is not None
        )
        if len(found) > limit:
            return ActivePage(
                listed, Activity(found[limit - 1]["active_at"], found[limit - 1]["id"])
            )
        if not rows or rows[0]["looked_at"] < looks_at:
            return ActivePage(listed, None)
        return ActivePage(listed, Activity(rows[0]["lowest_at"], rows[0]["lowest_id"]))

    _COUNT: Final[LiteralString] = f"""
        -- session_reads.count: the number of sessions that match, of the newest ones below an id
        WITH looked_at AS ({_CANDIDATES}), counted AS (
            SELECT *, {_MATCHES} AS matches FROM looked_at
        )
        SELECT count(*) FILTER (WHERE matches) AS total,
               count(*) FILTER (WHERE matches AND ended_at IS NULL) AS open,
               count(*) FILTER (WHERE matches AND archived_at IS NOT NULL) AS archived,
               count(*) <= $3 - 1 AS is_complete
        FROM counted
    """  # noqa: S608 - a constant

    async def count(self, wanted: SessionFilter) -> SessionCounts:
        """Return how many sessions match, among the newest `MOST_COUNTED` of the filter's index."""
        lead, most = _lead(wanted).name, MOST_COUNTED + 1
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, wanted.acting_for)
            [row] = await connection.fetch(
                self._COUNT, lead, _ABOVE_ALL, most, owners, *_filters(wanted)
            )
        return SessionCounts(**dict(row.items()))


def _filters(wanted: SessionFilter) -> tuple[object, ...]:
    """Return the filters other than the person, in the order of the parameters."""
    return wanted.platform, wanted.agent, wanted.origin, wanted.active_since, wanted.archived


class _Lead(NamedTuple):
    """The index to read from; `is_all` means that no other filter remains to check."""

    name: str
    is_all: bool


def _lead(wanted: SessionFilter) -> _Lead:
    """Return the most selective of the filters that have an index."""
    indexed = {
        "owner": wanted.acting_for,
        "origin": None if wanted.origin == CHAT_ORIGIN else wanted.origin,
        "platform": wanted.platform,
        "agent": wanted.agent,
    }
    name = next((name for name, value in indexed.items() if value is not None), "every")
    given = sum(value is not None for value in (wanted.acting_for, *_filters(wanted)))
    return _Lead(name, is_all=given == (name != "every"))


async def _visible(
    connection: Connection, row: asyncpg.Record | None, person: Person | None
) -> SessionView | None:
    """Return the view of a session, unless a named person does not own it."""
    if row is None:
        return None
    owners = await identities.find_owners(connection, person)
    return _view(row) if owners is None or row["owner"] in owners else None


def _view(row: asyncpg.Record) -> SessionView | None:
    """Build the API view of a session from `_VIEW_COLUMNS`.

    Omits values that this release does not know; None if the view is invalid without them.
    """
    override, mark = row["model_override"], row["resume_marked_at"]
    fields: dict[str, object] = {name: row[name] for name in _UNCHANGED} | {
        # A session that a timer opened has no activity until its first message.
        "last_activity_at": row["last_activity_at"] or row["started_at"],
        "message_count": row["next_seq"] - 1 - row["seq_gaps"],
        "is_busy": row["active_turn"] is not None,
        "config": None if row["config"] is None else from_json(row["config"]),
        "model_override": None if override is None else read_override(override),
        "is_suspended": row["suspended_at"] is not None,
        "resume_pending": None
        if mark is None
        else ResumeMark(reason=read_reason(row["resume_reason"]), marked_at=mark),
        "answer_count": row["answers"],
        "usage": from_json(row["usage"] or "{}"),
        "costs": from_json(row["costs"] or "{}"),
        "gauges": from_json(row["gauges"] or "{}"),
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
