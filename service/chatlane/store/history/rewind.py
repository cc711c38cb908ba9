"""Take turns out of transcripts: find their first rows and text, and archive their rows.

Callers hold the lock of the session and have written all earlier decisions about it: these
statements see rows, not pending effects.
"""

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from chatlane.domain.sessions.transcripts import UserRow, turn_starts
from chatlane.domain.turns.retries import Said
from chatlane.postgres.stored_values import read_said
from chatlane.search import index_sql
from chatlane_schemas.fields import MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg.pool import PoolConnectionProxy

# A turn has at most 50 messages, and a rewind covers few turns.
_USER_ROWS_AT_ONCE: Final = 200


class LastTurns(NamedTuple):
    """The newest turns of a transcript.

    Attributes:
        from_seq: First place of the oldest of these turns; all later rows belong to them.
        text: Text of the users in the oldest of these turns.
    """

    from_seq: int
    text: str | None


async def last_turns(
    connection: "PoolConnectionProxy", session_id: UUID, turns: int
) -> LastTurns | None:
    """Return the last turns, as many as there are; None if the transcript has no user message."""
    starts = await _turn_starts(connection, session_id, turns)
    if not starts:
        return None
    return LastTurns(starts[-1], await _words_of_turn(connection, session_id, starts))


USER_ROWS_SQL: Final[LiteralString] = """
-- messages: what people said below a place, the newest first
SELECT seq, turn_id FROM messages
WHERE session_id = $1 AND seq < $2 AND role = 'user' ORDER BY seq DESC LIMIT $3
"""


async def _turn_starts(
    connection: "PoolConnectionProxy", session_id: UUID, wanted: int
) -> list[int]:
    """Return the first places of the last turns, newest first, as many as there are."""
    found: list[UserRow] = []
    below = MAX_INT64
    while True:
        rows = await connection.fetch(USER_ROWS_SQL, session_id, below, _USER_ROWS_AT_ONCE)
        found += [UserRow(*row.values()) for row in rows]
        starts = turn_starts(found)
        # A turn beyond the wanted ones was found, so the last wanted one is complete.
        if len(rows) < _USER_ROWS_AT_ONCE or len(starts) > wanted:
            return starts[:wanted]
        below = found[-1].seq


WORDS_SQL: Final[LiteralString] = """
-- messages: what people said in one turn
SELECT content FROM messages
WHERE session_id = $1 AND seq >= $2 AND seq < $3 AND role = 'user' ORDER BY seq LIMIT 50
"""


async def _words_of_turn(
    connection: "PoolConnectionProxy", session_id: UUID, starts: "Sequence[int]"
) -> str | None:
    """Return the user text at the start of the oldest of these turns."""
    end = starts[-2] if len(starts) > 1 else MAX_INT64
    rows = await connection.fetch(WORDS_SQL, session_id, starts[-1], end)
    return "\n".join(row["content"] for row in rows if row["content"]) or None


SAID_SQL: Final[LiteralString] = """
-- messages: all that people said from a place on and did not take back, to be run again
SELECT content, details, author, platform_message_id, source, created_at FROM messages
WHERE session_id = $1 AND seq >= $2 AND role = 'user' AND state IS DISTINCT FROM 'deleted'
ORDER BY seq LIMIT 50
"""


async def said_from(
    connection: "PoolConnectionProxy", session_id: UUID, from_seq: int
) -> tuple[Said, ...]:
    """Return the user messages from a place on, oldest first: at most as many as a turn takes.

    Deleted messages are omitted, so that they never run again.
    """
    rows = await connection.fetch(SAID_SQL, session_id, from_seq)
    return tuple(read_said(Said(*row.values())) for row in rows)


TAKE_OUT_SQL: Final[LiteralString] = """
-- messages → removed_messages: rows that count no more, between two places
WITH removed AS (
    DELETE FROM messages WHERE session_id = $1 AND seq >= $2 AND seq <= $3 RETURNING *
), counted AS (
    UPDATE sessions SET revision = revision + 1, seq_gaps = seq_gaps + taken.rows
    FROM (SELECT count(*) AS rows FROM removed) AS taken
    WHERE sessions.id = $1 AND taken.rows > 0
    RETURNING sessions.revision
)
INSERT INTO removed_messages (
    session_id, removal, seq, reason, id, role, content, details, author, platform_message_id,
    source, turn_id, reply_to, part, created_at)
SELECT session_id, counted.revision, seq, $4::text, id, role, content, details, author,
       platform_message_id, source, turn_id, reply_to, part, created_at
FROM removed CROSS JOIN counted
"""


async def take_out(
    connection: "PoolConnectionProxy",
    session_id: UUID,
    from_seq: int,
    *,
    through_seq: int = MAX_INT64,
    reason: str = "undone",
) -> int:
    """Move rows of a locked session to the archive; returns how many.

    If any rows move, the session's revision grows by one, and its number of places without a row
    grows by the number of rows.

    Args:
        connection: Connection of the transaction that has locked the session.
        session_id: Session of the rows.
        from_seq: First place.
        through_seq: Last place.
        reason: `undone`, or `replaced` if a summary or another row replaces them.
    """
    status = await connection.execute(TAKE_OUT_SQL, session_id, from_seq, through_seq, reason)
    await index_sql.forget_rows(connection, session_id, from_seq, through_seq)
    return int(status.rpartition(" ")[2])
