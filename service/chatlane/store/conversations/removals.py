"""Delete sessions, and find sessions that may be deleted or ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.search import index_sql

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from chatlane.postgres.pool import Connection


REMOVE_SQL: Final[LiteralString] = """
-- sessions: delete sessions with their transcripts
-- Marks in `seen` stay, so that a repeated message does not run. Dead letters expire by age.
WITH live AS (
    DELETE FROM messages WHERE session_id = ANY($1::uuid[]) RETURNING turn_id
), archived AS (
    DELETE FROM removed_messages WHERE session_id = ANY($1::uuid[]) RETURNING turn_id
), of_turns AS (
    -- Found by their messages: an index on the session would cost every turn a write.
    DELETE FROM turns
    USING (SELECT turn_id FROM live UNION SELECT turn_id FROM archived
           UNION SELECT active_turn FROM sessions WHERE id = ANY($1::uuid[])) AS had
    WHERE turns.id = had.turn_id AND turns.session_id = ANY($1::uuid[])
    RETURNING turns.id
), steps AS (
    DELETE FROM turn_steps USING of_turns WHERE turn_steps.turn_id = of_turns.id
), line AS (
    DELETE FROM waiting WHERE session_id = ANY($1::uuid[]) RETURNING 1
), revisions AS (
    DELETE FROM message_revisions WHERE session_id = ANY($1::uuid[]) RETURNING 1
), late AS (
    DELETE FROM late_results WHERE session_id = ANY($1::uuid[]) RETURNING 1
), named AS (
    DELETE FROM delivered_messages WHERE session_id = ANY($1::uuid[])
), spoken AS (
    DELETE FROM deliveries WHERE session_id = ANY($1::uuid[]) RETURNING 1
), holds AS (
    DELETE FROM session_holds WHERE session_id = ANY($1::uuid[])
), typed AS (
    DELETE FROM drafts WHERE session_id = ANY($1::uuid[]) RETURNING 1
), marks AS (
    DELETE FROM read_marks WHERE session_id = ANY($1::uuid[])
), led AS (
    -- The compare-and-set of a transaction that has read one fails, and it starts again.
    DELETE FROM lanes WHERE session_id = ANY($1::uuid[])
), removed AS (
    DELETE FROM sessions WHERE id = ANY($1::uuid[])
)
SELECT (SELECT count(*) FROM live) AS messages, (SELECT count(*) FROM archived) AS removed_messages,
    (SELECT count(*) FROM line) AS waiting_messages, (SELECT count(*) FROM revisions) AS revisions,
    (SELECT count(*) FROM late) AS late_results, (SELECT count(*) FROM spoken) AS deliveries,
    (SELECT count(*) FROM typed) AS drafts
"""


async def remove(connection: Connection, ids: Iterable[UUID]) -> dict[str, int]:
    """Delete locked sessions with their transcripts; copies in branches stay.

    The next message of a lane that led to a deleted session opens a new session.

    Returns:
        How many rows were deleted, by what they hold, without those of which there were none.
    """
    session_ids = sorted(ids)
    [counts] = await connection.fetch(REMOVE_SQL, session_ids)
    await index_sql.forget_sessions(connection, session_ids)
    return {name: number for name, number in counts.items() if number}


class Candidate(NamedTuple):
    """A session that may be deleted, as of an unlocked read; `rows` counts every row it ever had."""

    id: UUID
    rows: int


OF_ORIGIN_SQL: Final[LiteralString] = """
-- sessions: the newest sessions of an origin below an id, except those that a lane of a chat
-- points to
SELECT id, next_seq - 1 FROM sessions
WHERE origin = $1 AND origin <> 'chat' AND id < $2
  AND ($3::text[] IS NULL OR owner = ANY($3))
  AND NOT EXISTS (SELECT FROM lanes
                  WHERE lanes.session_id = sessions.id AND lanes.session_key <> sessions.session_key)
ORDER BY id DESC LIMIT $4
"""


async def of_origin(
    connection: Connection,
    origin: str,
    *,
    below: UUID,
    owners: Iterable[str] | None,
    limit: int,
) -> list[Candidate]:
    """Return up to `limit` sessions of an origin, of a person or of all, newest first."""
    texts = None if owners is None else sorted(owners)
    rows = await connection.fetch(OF_ORIGIN_SQL, origin, below, texts, limit)
    return [Candidate(*row.values()) for row in rows]


OPEN_SQL: Final[LiteralString] = """
-- sessions: the oldest open sessions between two ids
SELECT id FROM sessions WHERE ended_at IS NULL AND id > $1 AND id < $2 ORDER BY id LIMIT $3
"""


async def find_open(connection: Connection, *, above: UUID, below: UUID, limit: int) -> list[UUID]:
    """Return up to `limit` open sessions with ids between two others, oldest first."""
    return [row[0] for row in await connection.fetch(OPEN_SQL, above, below, limit)]


FORGOTTEN_SQL: Final[LiteralString] = """
-- sessions: locked sessions without activity since a time and without a reason to keep them
SELECT id FROM sessions
WHERE id = ANY($1::uuid[]) AND ended_at IS NULL AND suspended_at IS NULL AND active_turn IS NULL
  AND coalesce(last_activity_at, started_at) < $2
  AND (held_until IS NULL OR held_until <= clock_timestamp())
  AND NOT EXISTS (SELECT FROM waiting WHERE waiting.session_id = sessions.id)
"""


async def find_forgotten(connection: Connection, ids: Iterable[UUID], since: datetime) -> set[UUID]:
    """Return the locked open sessions without recent activity, a turn, a hold or a waiting message."""
    return {row[0] for row in await connection.fetch(FORGOTTEN_SQL, list(ids), since)}
