"""List and count sessions, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from chatlane.store.addressing import identities
from chatlane.store.conversations.session_reads import session_view
from chatlane_schemas.session_api.sessions import CHAT_ORIGIN, SessionCounts

if TYPE_CHECKING:
    from chatlane.postgres.pool import Store
    from chatlane_schemas.session_api.sessions import SessionFilter, SessionView

# Session ids start with the time of their first message; the largest id means no cursor.
_ABOVE_ALL: Final = UUID(int=2**128 - 1)
# How many sessions a page reads if a filter has no index, about 5 ms. The rest is left to the
# next page, so a rare match costs more pages and never a long statement.
_LOOKED_AT: Final = 2000
MOST_COUNTED: Final = 50_000


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, newest first, and the start of the next page; None on the last page."""

    sessions: tuple[SessionView, ...]
    next_below: UUID | None


class SessionLists:
    """Lists and counts sessions; locks nothing.

    `lead` names the index to read from: with an optional condition instead, the planner may
    choose a plan that walks all sessions to find a rare platform. Postgres does not execute the
    branches of other leads.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    _PAGE: Final = """
        -- session_lists.page: the newest sessions that match, of those below an id
        WITH looked_at AS MATERIALIZED (
            (SELECT id, owner, platform, agent, origin, archived_at,
                    coalesce(last_activity_at, started_at) AS active_at
             FROM sessions WHERE $1 = 'every' AND id < $2 ORDER BY id DESC LIMIT $3)
            UNION ALL
            (SELECT id, owner, platform, agent, origin, archived_at,
                    coalesce(last_activity_at, started_at)
             FROM sessions WHERE $1 = 'platform' AND platform = $6 AND id < $2
             ORDER BY id DESC LIMIT $3)
            UNION ALL
            (SELECT id, owner, platform, agent, origin, archived_at,
                    coalesce(last_activity_at, started_at)
             FROM sessions WHERE $1 = 'agent' AND agent = $7 AND id < $2
             ORDER BY id DESC LIMIT $3)
            UNION ALL
            (SELECT id, owner, platform, agent, origin, archived_at,
                    coalesce(last_activity_at, started_at)
             FROM sessions WHERE $1 = 'origin' AND origin = $8 AND origin <> 'chat' AND id < $2
             ORDER BY id DESC LIMIT $3)
            UNION ALL
            (SELECT own.* FROM unnest($5::text[]) AS theirs (owner) CROSS JOIN LATERAL (
                 SELECT id, owner, platform, agent, origin, archived_at,
                        coalesce(last_activity_at, started_at)
                 FROM sessions
                 WHERE $1 = 'owner' AND sessions.owner = theirs.owner AND id < $2
                 ORDER BY id DESC LIMIT $3) AS own
             ORDER BY id DESC LIMIT $3)
        ), bounds AS (
            SELECT count(*) AS looked_at, (array_agg(id ORDER BY id))[1] AS lowest FROM looked_at
        ), matching AS (
            SELECT id FROM looked_at
            WHERE ($5::text[] IS NULL OR owner = ANY($5)) AND ($6::text IS NULL OR platform = $6)
              AND ($7::text IS NULL OR agent = $7) AND ($8::text IS NULL OR origin = $8)
              AND ($9::timestamptz IS NULL OR active_at >= $9)
              AND ($10::boolean IS NULL OR (archived_at IS NOT NULL) = $10)
            ORDER BY id DESC LIMIT $4
        )
        SELECT bounds.looked_at, bounds.lowest, s.id, s.session_key, s.agent, s.platform,
               s.started_at, s.ended_at, s.end_reason, s.last_activity_at, s.next_seq, s.seq_gaps,
               s.title, s.active_turn, s.cwd, s.model, s.config, s.owner, s.suspended_at,
               s.resume_marked_at, s.resume_reason, s.held_until, s.model_override, s.answers,
               s.usage, s.origin, s.archived_at, s.parent_id, s.link_kind, s.carry_over
        FROM bounds LEFT JOIN (matching JOIN sessions AS s ON s.id = matching.id) ON true
        ORDER BY s.id DESC
    """

    async def page(self, wanted: SessionFilter, *, below: UUID | None, limit: int) -> SessionPage:
        """Return up to `limit` sessions that began before `below`, newest first.

        A page may hold fewer sessions, even none, without being the last one.
        """
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, wanted.acting_for)
            lead = _lead(wanted)
            # One row beyond the limit shows whether there is another page.
            looks_at = limit + 1 if lead.is_all else _LOOKED_AT
            rows = await connection.fetch(
                self._PAGE,
                lead.name,
                below or _ABOVE_ALL,
                looks_at,
                limit + 1,
                owners,
                wanted.platform,
                wanted.agent,
                wanted.origin,
                wanted.active_since,
                wanted.archived,
            )
        found = [row for row in rows if row["id"] is not None]
        page = tuple(filter(None, map(session_view, found[:limit])))
        if len(found) > limit:
            return SessionPage(page, found[limit - 1]["id"])
        is_last = rows[0]["looked_at"] < looks_at
        return SessionPage(page, None if is_last else rows[0]["lowest"])

    _COUNT: Final = """
        -- session_lists.count: how many sessions there are of a kind, up to a number
        WITH looked_at AS (
            (SELECT owner, platform, agent, origin, archived_at, ended_at,
                    coalesce(last_activity_at, started_at) AS active_at
             FROM sessions WHERE $1 = 'every' ORDER BY id DESC LIMIT $2)
            UNION ALL
            (SELECT owner, platform, agent, origin, archived_at, ended_at,
                    coalesce(last_activity_at, started_at)
             FROM sessions WHERE $1 = 'platform' AND platform = $4 ORDER BY id DESC LIMIT $2)
            UNION ALL
            (SELECT owner, platform, agent, origin, archived_at, ended_at,
                    coalesce(last_activity_at, started_at)
             FROM sessions WHERE $1 = 'agent' AND agent = $5 ORDER BY id DESC LIMIT $2)
            UNION ALL
            (SELECT owner, platform, agent, origin, archived_at, ended_at,
                    coalesce(last_activity_at, started_at)
             FROM sessions WHERE $1 = 'origin' AND origin = $6 AND origin <> 'chat'
             ORDER BY id DESC LIMIT $2)
            UNION ALL
            (SELECT own.* FROM unnest($3::text[]) AS theirs (owner) CROSS JOIN LATERAL (
                 SELECT owner, platform, agent, origin, archived_at, ended_at,
                        coalesce(last_activity_at, started_at)
                 FROM sessions WHERE $1 = 'owner' AND sessions.owner = theirs.owner
                 ORDER BY id DESC LIMIT $2) AS own
             LIMIT $2)
        ), counted AS (
            SELECT *, ($3::text[] IS NULL OR owner = ANY($3))
                  AND ($4::text IS NULL OR platform = $4) AND ($5::text IS NULL OR agent = $5)
                  AND ($6::text IS NULL OR origin = $6)
                  AND ($7::timestamptz IS NULL OR active_at >= $7)
                  AND ($8::boolean IS NULL OR (archived_at IS NOT NULL) = $8) AS matches
            FROM looked_at
        )
        SELECT count(*) FILTER (WHERE matches) AS total,
               count(*) FILTER (WHERE matches AND ended_at IS NULL) AS open,
               count(*) FILTER (WHERE matches AND archived_at IS NOT NULL) AS archived,
               count(*) AS looked_at
        FROM counted
    """

    async def count(self, wanted: SessionFilter) -> SessionCounts:
        """Return how many sessions match, among the newest `MOST_COUNTED` of the filter's index."""
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, wanted.acting_for)
            [row] = await connection.fetch(
                self._COUNT,
                _lead(wanted).name,
                MOST_COUNTED + 1,
                owners,
                wanted.platform,
                wanted.agent,
                wanted.origin,
                wanted.active_since,
                wanted.archived,
            )
        return SessionCounts(
            total=row["total"],
            open=row["open"],
            archived=row["archived"],
            is_complete=row["looked_at"] <= MOST_COUNTED,
        )


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
    filters = (
        wanted.acting_for,
        wanted.origin,
        wanted.platform,
        wanted.agent,
        wanted.active_since,
        wanted.archived,
    )
    given = sum(value is not None for value in filters)
    return _Lead(name, is_all=given == (name != "every"))
