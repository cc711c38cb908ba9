"""List and count sessions for the API; writes nothing and locks nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from chatlane.domain.addressing.keys import escaped
from chatlane.domain.catalog import canonical_profile
from chatlane.store.addressing import identities
from chatlane.store.addressing.rooms import RoomReads
from chatlane.store.catalogue import person_state
from chatlane.store.conversations import session_views
from chatlane.store.conversations.session_views import VIEW_COLUMNS
from chatlane_schemas.session_api.session_marks import SCHEDULED_ORIGIN, SCHEDULED_PROJECT
from chatlane_schemas.session_api.sessions import CHAT_ORIGIN, SessionCounts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    import asyncpg

    from chatlane.postgres.pool import Connection, Store
    from chatlane_schemas.session_api.sessions import SessionFilter, SessionView

# Session ids start with the time of their first message; the largest id means no cursor.
_ABOVE_ALL: Final = UUID(int=2**128 - 1)
# How many sessions a page reads if a filter has no index, about 5 ms. The rest is left to the
# next page, so a rare match costs more pages and never a long statement.
_LOOKED_AT: Final = 2000
# Most filters leave nearly all sessions, so a page first reads some times as many as it shows.
_FIRST_LOOK: Final = 4
MOST_COUNTED: Final = 50_000
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, newest first, and the start of the next page; None on the last page."""

    sessions: tuple[SessionView, ...]
    next_below: UUID | None


class Activity(NamedTuple):
    """A place in the order of activity, among the pinned sessions or behind them."""

    at: datetime
    session_id: UUID
    is_pinned: bool = False


class ActivePage(NamedTuple):
    """Sessions with their places, last active first, and the end of the page if more follow."""

    sessions: tuple[tuple[SessionView, Activity], ...]
    end: Activity | None


_FILTERED: Final[LiteralString] = """
    id, session_key, owner, platform, agent, origin, archived_at, started_at, end_reason,
    last_activity_at, last_message_at, cwd, project_id, labels, title, next_seq, seq_gaps,
    active_turn, worktree, ended_at, read_only
"""
# $22 are the shared sessions that a person sees as a member of their room. Postgres evaluates the
# last condition only for sessions that seem empty.
_MATCHES: Final[LiteralString] = """
        ($4::text[] IS NULL OR owner = ANY($4) OR id = ANY($22::uuid[])) AND ($5::text IS NULL OR platform = $5)
    AND ($6::text IS NULL OR agent = $6) AND ($7::text IS NULL OR origin = $7)
    AND ($8::timestamptz IS NULL OR last_activity_at >= $8)
    AND ($9::boolean IS NULL OR (archived_at IS NOT NULL) = $9)
    AND ($10::timestamptz IS NULL
         OR coalesce(greatest(last_activity_at, last_message_at), started_at) < $10)
    AND origin <> ALL ($11::text[])
    AND ($12::text IS NULL OR starts_with(session_key, $12))
    AND ($13::text IS NULL OR cwd = $13)
    AND ($14::uuid IS NULL OR (project_id = $14 AND EXISTS (SELECT FROM projects WHERE id = $14)))
    AND (NOT $15::boolean OR (origin = $16::text AND NOT EXISTS (
         SELECT FROM projects WHERE projects.id = looked_at.project_id)))
    AND ($17::text IS NULL OR $17 = ANY(labels))
    AND ($18::text IS NULL OR strpos(lower(title COLLATE "pg_c_utf8"), $18) > 0)
    AND (NOT $19::boolean OR end_reason IS DISTINCT FROM 'compression')
    AND (NOT $20::boolean OR next_seq - seq_gaps > 1 OR title IS NOT NULL
         OR active_turn IS NOT NULL OR worktree IS NOT NULL
         OR EXISTS (SELECT FROM waiting WHERE waiting.session_id = looked_at.id))
    AND ($21::text IS NULL OR CASE $21
         WHEN 'running' THEN active_turn IS NOT NULL
         WHEN 'read_only' THEN read_only
         WHEN 'waiting' THEN EXISTS (SELECT FROM waiting WHERE waiting.session_id = looked_at.id)
         ELSE false END)
"""
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
        (SELECT {_FILTERED} FROM sessions
         WHERE $1 = 'project' AND project_id = $14 AND id < $2 ORDER BY id DESC LIMIT $3)
        UNION ALL
        (SELECT * FROM (
             SELECT own.* FROM unnest($4::text[]) AS of_person (owner) CROSS JOIN LATERAL (
                 SELECT {_FILTERED} FROM sessions
                 WHERE $1 = 'owner' AND sessions.owner = of_person.owner AND id < $2
                 ORDER BY id DESC LIMIT $3) AS own
             UNION ALL
             (SELECT {_FILTERED} FROM sessions
              WHERE $1 = 'owner' AND id = ANY($22::uuid[]) AND id < $2
              ORDER BY id DESC LIMIT $3)) AS seen
         ORDER BY id DESC LIMIT $3)
"""  # noqa: S608 - constants
_ACTIVITY: Final[LiteralString] = (
    "coalesce(greatest(last_activity_at, last_message_at), started_at)"
)

PAGE_SQL: Final[LiteralString] = f"""
-- sessions: the newest sessions that match, of those below an id
WITH looked_at AS MATERIALIZED ({_CANDIDATES}), bounds AS (
    SELECT count(*) AS looked_at, (array_agg(id ORDER BY id))[1] AS lowest FROM looked_at
), matching AS (
    SELECT id FROM looked_at WHERE {_MATCHES} ORDER BY id DESC LIMIT $23
)
SELECT bounds.looked_at, bounds.lowest, {VIEW_COLUMNS}
FROM bounds LEFT JOIN (matching JOIN sessions AS s ON s.id = matching.id) ON true
ORDER BY s.id DESC
"""  # noqa: S608 - constants

# Without a place in the order, $2 and $24 are above all. The pinned sessions of a person are few:
# they are all read. $26 says that the page begins behind them.
ACTIVE_PAGE_SQL: Final[LiteralString] = f"""
-- sessions: the sessions that match, the last active first, and before them those that are pinned
WITH looked_at AS MATERIALIZED (
    (SELECT {_FILTERED}, {_ACTIVITY} AS active_at, false AS is_pinned FROM sessions
     WHERE $1 = 'every' AND active_hour <= $2 AND ({_ACTIVITY}, id) < ($2, $24)
     ORDER BY active_hour DESC, {_ACTIVITY} DESC, id DESC LIMIT $3)
    UNION ALL
    (SELECT * FROM (
         SELECT own.* FROM unnest($4::text[]) AS of_person (owner) CROSS JOIN LATERAL (
             SELECT {_FILTERED}, {_ACTIVITY} AS active_at, false AS is_pinned FROM sessions
             WHERE $1 = 'owner' AND sessions.owner = of_person.owner
               AND active_hour <= CASE WHEN $26 THEN $2 ELSE 'infinity' END
               AND ({_ACTIVITY}, id) < (CASE WHEN $26 THEN $2 ELSE 'infinity' END, $24)
               AND NOT ($25::boolean AND pinned_at IS NOT NULL)
             ORDER BY active_hour DESC, {_ACTIVITY} DESC, id DESC LIMIT $3) AS own
         UNION ALL
         (SELECT {_FILTERED}, {_ACTIVITY} AS active_at, false AS is_pinned FROM sessions
          WHERE $1 = 'owner' AND id = ANY($22::uuid[])
            AND ({_ACTIVITY}, id) < (CASE WHEN $26 THEN $2 ELSE 'infinity' END, $24)
          ORDER BY {_ACTIVITY} DESC, id DESC LIMIT $3)) AS seen
     ORDER BY active_at DESC, id DESC LIMIT $3)
    UNION ALL
    (SELECT {_FILTERED}, {_ACTIVITY} AS active_at, true AS is_pinned FROM sessions
     WHERE $1 = 'owner' AND $25 AND NOT $26::boolean
       AND owner = ANY($4) AND pinned_at IS NOT NULL AND ({_ACTIVITY}, id) < ($2, $24))
), counted AS (
    SELECT count(*) FILTER (WHERE NOT is_pinned) AS looked_at FROM looked_at
), lowest AS (
    SELECT active_at, id, is_pinned FROM looked_at ORDER BY is_pinned, active_at, id LIMIT 1
), matching AS (
    SELECT id, active_at, is_pinned FROM looked_at WHERE {_MATCHES}
    ORDER BY is_pinned DESC, active_at DESC, id DESC LIMIT $23
)
SELECT counted.looked_at, lowest.active_at AS lowest_at, lowest.id AS lowest_id,
       lowest.is_pinned AS lowest_is_pinned, matching.active_at, matching.is_pinned, {VIEW_COLUMNS}
FROM counted CROSS JOIN lowest
LEFT JOIN (matching JOIN sessions AS s ON s.id = matching.id) ON true
ORDER BY matching.is_pinned DESC, matching.active_at DESC, s.id DESC
"""  # noqa: S608 - constants

COUNT_SQL: Final[LiteralString] = f"""
-- sessions: the number of sessions that match, of the newest ones below an id
WITH looked_at AS ({_CANDIDATES}), counted AS (
    SELECT *, {_MATCHES} AS matches FROM looked_at
)
SELECT count(*) FILTER (WHERE matches) AS total,
       count(*) FILTER (WHERE matches AND ended_at IS NULL) AS open,
       count(*) FILTER (WHERE matches AND archived_at IS NOT NULL) AS archived,
       count(*) <= $3 - 1 AS is_complete
FROM counted
"""  # noqa: S608 - constants


class SessionLists:
    """Lists and counts sessions for API requests."""

    def __init__(self, store: Store, rooms: RoomReads | None = None) -> None:
        self._store = store
        self._rooms = rooms or RoomReads()

    async def page(self, wanted: SessionFilter, *, below: UUID | None, limit: int) -> SessionPage:
        """Return up to `limit` sessions that began before `below`, newest first.

        A page may hold fewer sessions, even none, without being the last one.
        """
        lead = _lead(wanted)
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, wanted.acting_for)
            shared = await self._find_shared(connection, wanted)
            conditions = (owners, *_conditions(wanted), shared, limit + 1)
            read = await _read_enough(
                lambda looks_at: connection.fetch(
                    PAGE_SQL, lead.name, below or _ABOVE_ALL, looks_at, *conditions
                ),
                limit,
                is_all=lead.is_all,
            )
            found = read.found
            page = await _views(connection, found[:limit], wanted, shared)
        if len(found) > limit:
            return SessionPage(page, found[limit - 1]["id"])
        return SessionPage(page, None if read.is_last else read.rows[0]["lowest"])

    async def active_page(
        self,
        wanted: SessionFilter,
        *,
        before: Activity | None,
        limit: int,
        pinned_first: bool = False,
    ) -> ActivePage:
        """Return up to `limit` sessions behind a place in the order of activity.

        A page may hold fewer sessions, even none, without being the last one.

        Args:
            pinned_first: Whether the pinned sessions of the person come before the others.
        """
        is_owned = wanted.acting_for is not None
        place = before or Activity(_LATEST, _ABOVE_ALL, is_pinned=True)
        pinned_first = pinned_first and is_owned
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, wanted.acting_for)
            shared = await self._find_shared(connection, wanted)
            conditions = (
                *(owners, *_conditions(wanted), shared, limit + 1, place.session_id),
                *(pinned_first, not (pinned_first and place.is_pinned)),
            )
            lead = "owner" if is_owned else "every"
            read = await _read_enough(
                lambda looks_at: connection.fetch(
                    ACTIVE_PAGE_SQL, lead, place.at, looks_at, *conditions
                ),
                limit,
                is_all=not any(_given(wanted)),
            )
            found = read.found
            shown = {
                session.id: session
                for session in await _views(connection, found[:limit], wanted, shared)
            }
        listed = tuple(
            (shown[row["id"]], _place(row)) for row in found[:limit] if row["id"] in shown
        )
        if len(found) > limit:
            return ActivePage(listed, _place(found[limit - 1]))
        if read.is_last:
            return ActivePage(listed, None)
        lowest = read.rows[0]
        return ActivePage(
            listed,
            Activity(lowest["lowest_at"], lowest["lowest_id"], lowest["lowest_is_pinned"]),
        )

    async def count(self, wanted: SessionFilter) -> SessionCounts:
        """Return how many sessions match, among the newest `MOST_COUNTED` of the filter's index."""
        lead, most = _lead(wanted).name, MOST_COUNTED + 1
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, wanted.acting_for)
            shared = await self._find_shared(connection, wanted)
            [row] = await connection.fetch(
                COUNT_SQL, lead, _ABOVE_ALL, most, owners, *_conditions(wanted), shared
            )
        return SessionCounts(**dict(row.items()))

    async def _find_shared(self, connection: Connection, wanted: SessionFilter) -> list[UUID]:
        """Return the sessions that the person of a request sees as a member of their rooms."""
        if not wanted.with_rooms or _asks_for_hidden(wanted):
            return []
        return await self._rooms.find(connection, wanted.acting_for)


class _Read(NamedTuple):
    """The rows of one read of a page, those with sessions, and whether it is the last page."""

    rows: list[asyncpg.Record]
    found: list[asyncpg.Record]
    is_last: bool


async def _read_enough(
    read: Callable[[int], Awaitable[list[asyncpg.Record]]], limit: int, *, is_all: bool
) -> _Read:
    """Read some sessions for a page, and more only if too few of them match.

    Args:
        read: Returns the matching sessions of so many, each with `looked_at`.
        limit: Size of the page.
        is_all: Whether each session matches.
    """
    # One row beyond the limit shows whether there is another page.
    looks_at = limit + 1 if is_all else min(_FIRST_LOOK * (limit + 1), _LOOKED_AT)
    while True:
        rows = await read(looks_at)
        found = [row for row in rows if row["id"] is not None]
        is_last = not rows or rows[0]["looked_at"] < looks_at
        if len(found) > limit or is_last or looks_at == _LOOKED_AT:
            return _Read(rows, found, is_last)
        looks_at = _LOOKED_AT


async def _views(
    connection: Connection,
    rows: Sequence[asyncpg.Record],
    wanted: SessionFilter,
    shared: Collection[UUID],
) -> tuple[SessionView, ...]:
    """Return the views of rows, with what the person of the request has not read."""
    views = await session_views.views(connection, rows)
    seen = await session_views.for_members(
        connection, (view for view in views if view.id in shared)
    )
    found = tuple(seen.get(view.id, view) for view in views)
    return found if wanted.acting_for is None else await person_state.with_unread(connection, found)


def _place(row: asyncpg.Record) -> Activity:
    return Activity(row["active_at"], row["id"], row["is_pinned"])


def _conditions(wanted: SessionFilter) -> tuple[object, ...]:
    """Return the filters other than the person, in the order of the parameters."""
    profile = wanted.profile
    is_scheduled = wanted.project_id == SCHEDULED_PROJECT
    return (
        wanted.platform,
        wanted.agent,
        wanted.origin,
        wanted.active_since,
        wanted.archived,
        wanted.active_before,
        list(wanted.without_origins),
        None if profile is None else f"agent:{escaped(canonical_profile(profile))}:",
        wanted.cwd,
        None if is_scheduled else wanted.project_id,
        is_scheduled,
        SCHEDULED_ORIGIN,
        wanted.label,
        None if wanted.title_part is None else wanted.title_part.lower(),
        wanted.tips_only,
        wanted.hide_empty,
        wanted.state,
    )


def _asks_for_hidden(wanted: SessionFilter) -> bool:
    """Return whether a filter is about what members of a room do not see of a session."""
    hidden = (wanted.cwd, wanted.project_id, wanted.label, wanted.state)
    return any(value is not None for value in hidden)


def _given(wanted: SessionFilter) -> list[bool]:
    """Return, for each filter other than the person, whether it is given."""
    optional = (
        *(wanted.platform, wanted.agent, wanted.origin, wanted.active_since, wanted.archived),
        *(wanted.active_before, wanted.profile, wanted.cwd, wanted.project_id, wanted.label),
        *(wanted.title_part, wanted.state),
    )
    flags = (bool(wanted.without_origins), wanted.tips_only, wanted.hide_empty)
    return [value is not None for value in optional] + list(flags)


class _Lead(NamedTuple):
    """The index to read from; `is_all` means that no other filter remains to check."""

    name: str
    is_all: bool


def _lead(wanted: SessionFilter) -> _Lead:
    """Return the most selective of the filters that have an index."""
    is_scheduled = wanted.project_id == SCHEDULED_PROJECT
    indexed = {
        "project": None if is_scheduled else wanted.project_id,
        "owner": wanted.acting_for,
        "origin": None if wanted.origin == CHAT_ORIGIN else wanted.origin,
        "platform": wanted.platform,
        "agent": wanted.agent,
    }
    name = next((name for name, value in indexed.items() if value is not None), "every")
    given = (wanted.acting_for is not None) + sum(_given(wanted))
    return _Lead(name, is_all=given == (name != "every"))
