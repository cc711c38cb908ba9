"""Continue a compacted session in a new session; both are locked, and the new one exists."""

from typing import TYPE_CHECKING, Final, LiteralString
from uuid import UUID

from chatlane.search import index_sql

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

COUNT_TAIL_SQL: Final[LiteralString] = """
-- messages: how many come behind a place, and whether one of them waits for a `stream` answer
SELECT count(*),
       coalesce(bool_or(
           role = 'user' AND id IS NOT NULL AND source IS NOT NULL AND turn_id IS NULL
           AND unanswered IS NULL AND state IS DISTINCT FROM 'deleted'
           AND NOT EXISTS (SELECT FROM messages AS answer WHERE answer.reply_to = tail.id)), false)
FROM messages AS tail WHERE session_id = $1 AND seq > $2
"""


async def count_tail(
    connection: "PoolConnectionProxy", session_id: UUID, through_seq: int
) -> tuple[int, bool]:
    """Return how many rows follow a place, and whether one of them still waits for an answer.

    Only messages that were routed to a `stream` agent count: turns have their own state.
    """
    [[count, is_asking]] = await connection.fetch(COUNT_TAIL_SQL, session_id, through_seq)
    return count, is_asking


MOVE_TAIL_SQL: Final[LiteralString] = """
-- messages: what comes behind a summary to the session that begins with it
WITH placed AS (
    SELECT ctid AS place, $4 - 1 + row_number() OVER (ORDER BY seq) AS to_seq
    FROM messages WHERE session_id = $1 AND seq > $2
), counted AS (
    UPDATE sessions SET revision = revision + 1, seq_gaps = seq_gaps + moved.rows
    FROM (SELECT count(*) AS rows FROM placed) AS moved
    WHERE sessions.id = $1 AND moved.rows > 0
)
UPDATE messages SET session_id = $3, seq = placed.to_seq FROM placed
-- Rows change under the lock of their session only, so they are where they were. By their keys,
-- a plan made while the table was small compares each with each.
WHERE messages.ctid = placed.place
"""


async def move_tail(
    connection: "PoolConnectionProxy",
    session_id: UUID,
    through_seq: int,
    to_session: UUID,
    first_seq: int,
) -> None:
    """Move the rows after a place to another session, to the places from `first_seq` on."""
    await connection.execute(MOVE_TAIL_SQL, session_id, through_seq, to_session, first_seq)
    await index_sql.forget_rows(connection, session_id, through_seq + 1)


GIVE_TITLE_UP_SQL: Final[LiteralString] = """
-- sessions: the title goes on with the conversation
UPDATE sessions SET title = NULL, title_scope = NULL
FROM (SELECT title, title_scope FROM sessions WHERE id = $1) AS before
WHERE sessions.id = $1 RETURNING before.title, before.title_scope
"""

INHERIT_SQL: Final[LiteralString] = """
-- sessions: what users chose and what is in force, from the session that a new one continues
WITH holds AS (UPDATE session_holds SET session_id = $2 WHERE session_id = $1)
UPDATE sessions AS child SET
    title = $3, title_scope = $4, cwd = parent.cwd, model = parent.model, config = parent.config,
    model_override = parent.model_override, held_until = parent.held_until,
    answers = parent.answers, origin = parent.origin, archived_at = parent.archived_at
FROM sessions AS parent WHERE child.id = $2 AND parent.id = $1
"""


async def inherit(connection: "PoolConnectionProxy", parent: UUID, child: UUID) -> None:
    """Move the title of a session, which must be unique, to its successor and copy its settings."""
    [[title, scope]] = await connection.fetch(GIVE_TITLE_UP_SQL, parent)
    await connection.execute(INHERIT_SQL, parent, child, title, scope)
