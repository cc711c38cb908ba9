"""SQL of the search index: make transcript rows searchable, and remove rows from the index.

Indexing runs after the writes and takes no session lock. The row of a session in
`search_progress` serialises the indexer with transactions that remove rows: they lock it last,
and wait until the indexer's transaction ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.postgres.pool import columns
from chatlane.search.tokens import document
from chatlane_schemas.fields import MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from chatlane.postgres.pool import Connection


class Filling(NamedTuple):
    """Progress of the index for a session; its row of `search_progress` is locked.

    Attributes:
        agent: The current agent of the session.
        owner: The current owner of the session.
        last_seq: The last place that the session has assigned so far.
        seq: All transcript rows up to this place are searchable.
        removal: The removal of the last searchable row of the archive.
        removed_seq: The place of that row.
        marks: The marks with which its rows are indexed besides their words.
    """

    session_id: UUID
    agent: str
    owner: str | None
    last_seq: int
    seq: int
    removal: int
    removed_seq: int
    marks: tuple[str, ...]


class Unsearchable(NamedTuple):
    """A row that is not searchable yet; `removal` is 0 unless it is in the archive.

    `content` is cut to the requested length.
    """

    session_id: UUID
    removal: int
    seq: int
    content: str | None


BEGIN_SQL: Final[LiteralString] = """
-- search_progress: insert missing rows of sessions
INSERT INTO search_progress (session_id)
SELECT id FROM sessions WHERE id = ANY($1::uuid[]) ORDER BY id
ON CONFLICT DO NOTHING
"""

LOCK_SQL: Final[LiteralString] = """
-- search_progress: lock the free rows of existing sessions
SELECT progress.session_id, sessions.agent, sessions.owner, sessions.next_seq - 1, progress.seq,
       progress.removal, progress.removed_seq, progress.marks
FROM search_progress AS progress JOIN sessions ON sessions.id = progress.session_id
WHERE progress.session_id = ANY($1::uuid[])
ORDER BY progress.session_id FOR NO KEY UPDATE OF progress SKIP LOCKED
"""


async def lock(connection: Connection, ids: Iterable[UUID]) -> list[Filling]:
    """Lock the progress of sessions and return it; skips sessions that another transaction has locked."""
    wanted = sorted(ids)
    await connection.execute(BEGIN_SQL, wanted)
    rows = await connection.fetch(LOCK_SQL, wanted)
    return [Filling(*row.values())._replace(marks=tuple(row["marks"])) for row in rows]


START_OVER_SQL: Final[LiteralString] = """
-- searchable: delete all rows of sessions
DELETE FROM searchable WHERE session_id = ANY($1::uuid[])
"""


async def start_over(connection: Connection, ids: Sequence[UUID]) -> None:
    """Remove all rows of sessions from the index; the caller resets their progress."""
    await connection.execute(START_OVER_SQL, ids)


NEXT_ROWS_SQL: Final[LiteralString] = """
-- messages: the next unindexed rows of sessions
SELECT found.session_id, 0::bigint, found.seq, found.content
FROM unnest($1::uuid[], $2::bigint[]) AS want (session_id, seq)
CROSS JOIN LATERAL (
    SELECT session_id, seq, left(content, $4) AS content FROM messages
    WHERE messages.session_id = want.session_id AND messages.seq > want.seq
    ORDER BY messages.seq LIMIT $3
) AS found
LIMIT $3
"""

NEXT_REMOVED_SQL: Final[LiteralString] = """
-- removed_messages: the next unindexed rows that a summary replaced
SELECT found.session_id, found.removal, found.seq, found.content
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS want (session_id, removal, seq)
CROSS JOIN LATERAL (
    SELECT session_id, removal, seq, left(content, $5) AS content FROM removed_messages AS removed
    WHERE removed.session_id = want.session_id
      AND (removed.removal, removed.seq) > (want.removal, want.seq)
      AND removed.reason = 'replaced'
    ORDER BY removed.removal, removed.seq LIMIT $4
) AS found
LIMIT $4
"""


async def next_rows(
    connection: Connection, sessions: Sequence[Filling], limit: int, max_length: int
) -> list[Unsearchable]:
    """Return the next unindexed rows of these sessions, in order within each session.

    Returns at most `limit` rows of their transcripts and of the archive each; fewer mean that none
    remain. Each text is cut to `max_length` characters.
    """
    live = [(session.session_id, session.seq) for session in sessions]
    removed = [(session.session_id, session.removal, session.removed_seq) for session in sessions]
    rows = await connection.fetch(NEXT_ROWS_SQL, *columns(live, 2), limit, max_length)
    rows += await connection.fetch(NEXT_REMOVED_SQL, *columns(removed, 3), limit, max_length)
    return [Unsearchable(*row.values()) for row in rows]


INSERT_SQL: Final[LiteralString] = """
-- searchable: insert rows with their terms
INSERT INTO searchable (session_id, removal, seq, id, terms)
SELECT session_id, removal, seq, id, (terms || ' ''=b:' || (id >> 13) || '''')::tsvector
FROM (
    SELECT new.*, nextval('searchable_id_seq') AS id
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[])
        AS new (session_id, removal, seq, terms)
) AS numbered
ON CONFLICT DO NOTHING
"""


async def insert(connection: Connection, rows: Sequence[tuple[UUID, int, int, str]]) -> None:
    """Add rows to the index: (session, removal, seq, document). Rows that it already has are skipped."""
    if rows:
        await connection.execute(INSERT_SQL, *columns(rows, 4))


ADVANCE_SQL: Final[LiteralString] = """
-- search_progress: write the progress and marks of sessions
UPDATE search_progress AS progress SET
    seq = new.seq, removal = new.removal, removed_seq = new.removed_seq,
    marks = string_to_array(new.marks, E'\\n')
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])
    AS new (session_id, seq, removal, removed_seq, marks)
WHERE progress.session_id = new.session_id
"""


async def advance(connection: Connection, sessions: Iterable[Filling]) -> None:
    """Write the progress of locked sessions."""
    rows = [
        (
            session.session_id,
            session.seq,
            session.removal,
            session.removed_seq,
            "\n".join(session.marks),
        )
        for session in sessions
    ]
    await connection.execute(ADVANCE_SQL, *columns(rows, 5))


class Walked(NamedTuple):
    """A session, whether some of its rows are not searchable yet, and the marks of the others."""

    session_id: UUID
    agent: str
    owner: str | None
    is_unfinished: bool
    marks: tuple[str, ...]


WALK_SQL: Final[LiteralString] = """
-- sessions: the next sessions and whether they are completely indexed, oldest first
SELECT walked.id, walked.agent, walked.owner,
       walked.next_seq > coalesce(progress.seq, 0) + 1
       OR walked.revision > coalesce(progress.removal, 0)
          AND EXISTS (
              SELECT FROM removed_messages AS removed
              WHERE removed.session_id = walked.id AND removed.reason = 'replaced'
                AND (removed.removal, removed.seq)
                    > (coalesce(progress.removal, 0), coalesce(progress.removed_seq, 0))),
       coalesce(progress.marks, '{}')
FROM (
    SELECT id, agent, owner, next_seq, revision FROM sessions WHERE id > $1 ORDER BY id LIMIT $2
) AS walked
-- A nested loop, whatever the planner assumes: the bound is a few hundred rows.
LEFT JOIN LATERAL (
    SELECT seq, removal, removed_seq, marks FROM search_progress WHERE session_id = walked.id
    LIMIT 1
) AS progress ON true
ORDER BY walked.id
"""


async def walk(connection: Connection, after: UUID, limit: int) -> list[Walked]:
    """Return up to `limit` sessions with ids above `after`, oldest first."""
    rows = await connection.fetch(WALK_SQL, after, limit)
    return [
        Walked(session_id, agent, owner, is_unfinished, tuple(marks))
        for session_id, agent, owner, is_unfinished, marks in rows
    ]


SET_BACK_SQL: Final[LiteralString] = """
-- search_progress: index again from a place on; waits for a running indexer
INSERT INTO search_progress AS progress (session_id) VALUES ($1)
ON CONFLICT (session_id) DO UPDATE SET seq = least(progress.seq, $2 - 1)
"""

# A separate statement: it must see the rows that were indexed while the previous one waited.
FORGET_ROWS_SQL: Final[LiteralString] = """
-- searchable: delete rows
DELETE FROM searchable WHERE session_id = $1 AND removal = 0 AND seq >= $2 AND seq <= $3
"""


async def forget_rows(
    connection: Connection,
    session_id: UUID,
    from_seq: int,
    through_seq: int = MAX_INT64,
) -> None:
    """Remove transcript rows from the index; rows written there later are indexed again.

    Call it in the transaction that removes the rows or changes their text.
    """
    await connection.execute(SET_BACK_SQL, session_id, from_seq)
    await connection.execute(FORGET_ROWS_SQL, session_id, from_seq, through_seq)


WAIT_SQL: Final[LiteralString] = """
-- search_progress: lock rows of sessions; waits for a running indexer
SELECT session_id, seq, marks FROM search_progress
WHERE session_id = ANY($1::uuid[]) ORDER BY session_id FOR NO KEY UPDATE
"""

FORGET_EACH_SQL: Final[LiteralString] = """
-- searchable: delete rows
DELETE FROM searchable WHERE ctid = ANY(ARRAY(
    SELECT found.place FROM unnest($1::uuid[], $2::bigint[]) AS gone (session_id, seq)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM searchable
        WHERE session_id = gone.session_id AND removal = 0 AND seq = gone.seq LIMIT 1
    ) AS found))
"""


async def rewrite(connection: Connection, rows: Sequence[tuple[UUID, int, str | None]]) -> None:
    """Index rows by their current text; rows without text leave the index.

    `rows` has (session, place, current text), each row once. Call it in the transaction that
    changes the text, which has locked the sessions.
    """
    sessions = sorted({session_id for session_id, _, _ in rows})
    await connection.execute(BEGIN_SQL, sessions)
    filled = {
        session_id: (seq, marks)
        for session_id, seq, marks in await connection.fetch(WAIT_SQL, sessions)
    }
    await connection.execute(FORGET_EACH_SQL, *columns([row[:2] for row in rows], 2))
    documents = []
    for session_id, seq, content in rows:
        through, marks = filled[session_id]
        terms = document(content, marks) if content and seq <= through else None
        if terms is not None:
            documents.append((session_id, 0, seq, terms))
    await insert(connection, documents)


LOCK_PROGRESS_SQL: Final[LiteralString] = """
-- search_progress: lock rows of sessions that are deleted
SELECT FROM search_progress WHERE session_id = ANY($1::uuid[]) ORDER BY session_id FOR UPDATE
"""

FORGET_SESSIONS_SQL: Final[LiteralString] = """
-- searchable: delete all rows of sessions that are deleted
WITH progress AS (DELETE FROM search_progress WHERE session_id = ANY($1::uuid[]))
DELETE FROM searchable WHERE session_id = ANY($1::uuid[])
"""


async def forget_sessions(connection: Connection, ids: Iterable[UUID]) -> None:
    """Remove all rows of sessions from the index, in the transaction that deletes the sessions."""
    session_ids = sorted(ids)
    await connection.execute(LOCK_PROGRESS_SQL, session_ids)
    await connection.execute(FORGET_SESSIONS_SQL, session_ids)
