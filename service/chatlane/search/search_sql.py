"""Search transcript rows by their text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.domain.ids import row_id_of
from chatlane.postgres.stored_values import known_value
from chatlane.search.tokens import (
    MAX_CHARACTERS,
    agent_mark,
    any_mark,
    owner_mark,
    session_mark,
)
from chatlane_schemas.results import Role

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
    from datetime import datetime
    from uuid import UUID

    import asyncpg

    from chatlane.postgres.pool import Connection, Store
    from chatlane.search.tokens import Search
    from chatlane_schemas.session_api.people import Person
    from chatlane_schemas.session_api.transcripts import TranscriptSearch

    FindOwners = Callable[[Connection, Person | None], Awaitable[list[str] | None]]
    FindShared = Callable[[Connection, Person | None], Awaitable[list[UUID]]]

# A search reads this many of the newest blocks first; a block has 8,192 rows, see `terms`.
_NEWEST_BLOCKS: Final = 2
# How many of the newest matching rows are ranked.
_MOST_RANKED: Final = 1000


class Place(NamedTuple):
    """Start of a page of hits: after the hit of this rank and id."""

    rank: float
    id: int


class Hit(NamedTuple):
    """A row that matches a search.

    Attributes:
        rank: How well it matches; higher is better.
        id: Orders hits of equal rank; the higher id is newer.
        removal: Number of the change that replaced the row with a summary; 0 for a current row.
        content: Beginning of the text, as far as it is searchable.
        row_id: Id of the row.
    """

    rank: float
    id: int
    session_id: UUID
    removal: int
    seq: int
    role: str
    author: str | None
    content: str
    created_at: datetime
    title: str | None
    row_id: UUID | None = None

    @property
    def place(self) -> Place:
        """Return the start of the page after this hit."""
        return Place(self.rank, self.id)


class SearchReads:
    """Searches transcripts without locks.

    Args:
        store: Opens the transactions.
        find_owners: Returns the owner texts of a person's sessions; None for any session.
        find_shared: Returns the sessions that a person reads as a member of their rooms; without it,
            nobody reads any.
    """

    def __init__(
        self, store: Store, find_owners: FindOwners, find_shared: FindShared | None = None
    ) -> None:
        self._store = store
        self._find_owners = find_owners
        self._find_shared = find_shared

    _SEARCH: Final[LiteralString] = """
        -- search: matching rows, best first among the newest
        WITH newest AS MATERIALIZED (
            SELECT session_id, removal, seq, id, terms FROM searchable
            WHERE terms @@ ($1::tsquery && (
                SELECT string_agg('''=b:' || block || '''', ' | ')::tsquery
                FROM searchable_id_seq
                CROSS JOIN generate_series((last_value >> 13) - $2 + 1, last_value >> 13)
                    AS block))
            ORDER BY id DESC LIMIT $3
        ), every AS MATERIALIZED (
            -- If the newest blocks have enough matches, no others are read.
            SELECT session_id, removal, seq, id, terms FROM searchable
            WHERE (SELECT count(*) FROM newest) < $3 AND terms @@ $1::tsquery
            ORDER BY id DESC LIMIT $3
        ), ranked AS MATERIALIZED (
            SELECT session_id, removal, seq, id, ts_rank(terms, $1::tsquery, 1) AS rank
            FROM (
                SELECT * FROM newest WHERE NOT EXISTS (SELECT FROM every)
                UNION ALL
                SELECT * FROM every
            ) AS matching
        )
        SELECT ranked.rank, ranked.id, ranked.session_id, ranked.removal, ranked.seq, found.role,
               found.author, found.content, found.created_at, sessions.title,
               found.row_id
        FROM ranked
        -- Rows that are neither in the transcript nor replaced by a summary were rewound.
        CROSS JOIN LATERAL (
            SELECT role, author, left(content, $9) AS content, created_at, row_id,
                   role = 'assistant' OR (role = 'user' AND source IS NOT NULL) AS was_said
            FROM messages
            WHERE ranked.removal = 0 AND messages.session_id = ranked.session_id
              AND messages.seq = ranked.seq
            UNION ALL
            SELECT role, author, left(content, $9), created_at, row_id, false
            FROM removed_messages AS removed
            WHERE ranked.removal > 0 AND removed.session_id = ranked.session_id
              AND removed.removal = ranked.removal AND removed.seq = ranked.seq
              AND removed.reason = 'replaced'
        ) AS found
        JOIN sessions ON sessions.id = ranked.session_id
        WHERE (ranked.rank, ranked.id) < ($4::real, $5::bigint)
          AND ($6::text[] IS NULL OR sessions.owner = ANY($6)
               OR (sessions.id = ANY($10::uuid[]) AND found.was_said))
          AND ($7::text IS NULL OR sessions.agent = $7)
          AND found.content IS NOT NULL
        ORDER BY ranked.rank DESC, ranked.id DESC
        LIMIT $8
    """

    async def search(
        self, search: Search, wanted: TranscriptSearch, *, behind: Place, limit: int
    ) -> tuple[Hit, ...]:
        """Return up to `limit` matching rows after a place, best first.

        Ranks only the newest thousand matching rows; older rows are not found.

        Args:
            search: The parsed query.
            wanted: The request, which may name a person, a session or an agent.
            behind: Start of the page.
            limit: Maximum number of rows.
        """
        async with self._store.transaction() as connection:
            owners = await self._find_owners(connection, wanted.acting_for)
            shared: list[UUID] = []
            if wanted.with_rooms and self._find_shared is not None:
                shared = await self._find_shared(connection, wanted.acting_for)
            if owners == [] and not shared:
                return ()
            # Starting parallel workers takes a third of the time of a serial search, and
            # routing needs the processors.
            await connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
            rows = await connection.fetch(
                self._SEARCH,
                search.tsquery(*_scopes(owners, shared, wanted)),
                _NEWEST_BLOCKS,
                _MOST_RANKED,
                behind.rank,
                behind.id,
                owners,
                wanted.agent,
                limit,
                MAX_CHARACTERS,
                shared,
            )
        return tuple(_hit(row, shared) for row in rows)


def _scopes(
    owners: Iterable[str] | None, shared: Iterable[UUID], wanted: TranscriptSearch
) -> Iterator[str]:
    """Yield the marks that a row must have besides its words, so that one index serves both."""
    if owners is not None:
        yield any_mark([*map(owner_mark, owners), *map(session_mark, shared)])
    if wanted.session_id is not None:
        yield any_mark([session_mark(wanted.session_id)])
    if wanted.agent is not None:
        yield any_mark([agent_mark(wanted.agent)])


def _hit(row: asyncpg.Record, shared: Collection[UUID]) -> Hit:
    hit = Hit(*row.values())
    return hit._replace(
        # A member of a room gets no ids of people.
        author=None if hit.session_id in shared else hit.author,
        role=known_value(Role, hit.role, "messages.role") or Role.SYSTEM,
        row_id=hit.row_id or row_id_of(hit.session_id, hit.seq),
    )
