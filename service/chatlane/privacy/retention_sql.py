"""Delete expired rows in batches, for the tables that routers do not clean themselves."""

from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

_START: Final = "00000000-0000-0000-0000-000000000000"

ENDED_SESSIONS_SQL: Final[LiteralString] = """
-- sessions: the next sessions that ended long ago, without lane, turn, hold or waiting message
SELECT id FROM (
    SELECT id, ended_at, active_turn, held_until FROM sessions
    WHERE id > $1 ORDER BY id LIMIT 5000
) AS piece
WHERE ended_at < (SELECT clock_timestamp() - $2::interval) AND active_turn IS NULL
  AND (held_until IS NULL OR held_until <= clock_timestamp())
  AND (SELECT session_id FROM lanes WHERE lanes.session_id = piece.id LIMIT 1) IS NULL
  AND (SELECT session_id FROM waiting WHERE waiting.session_id = piece.id LIMIT 1) IS NULL
ORDER BY id LIMIT $3
"""
END_OF_PIECE_SQL: Final[LiteralString] = """
-- sessions: the last row of the next piece of a scan
SELECT id FROM sessions WHERE id > $1 ORDER BY id OFFSET 4999 LIMIT 1
"""


async def ended_sessions(
    connection: "PoolConnectionProxy", after: "UUID", age: "timedelta", limit: int
) -> "list[UUID]":
    """Return up to `limit` long-ended sessions among the next 5,000 after an id."""
    rows = await connection.fetch(ENDED_SESSIONS_SQL, after, age, limit)
    return [row[0] for row in rows]


async def end_of_piece(connection: "PoolConnectionProxy", after: "UUID") -> "UUID | None":
    """Return the last id of the next 5,000 sessions after an id; None if there are fewer."""
    last: UUID | None = await connection.fetchval(END_OF_PIECE_SQL, after)
    return last


OLD_ARCHIVE_SQL: Final[LiteralString] = """
-- removed_messages: delete old archived rows of a range of sessions
WITH piece AS (
    SELECT session_id, removal, seq, removed_at FROM removed_messages
    WHERE session_id > $1 AND ($2::uuid IS NULL OR session_id <= $2)
), old AS (
    SELECT session_id, removal, seq FROM piece
    WHERE removed_at < (SELECT clock_timestamp() - $3::interval)
    ORDER BY session_id, removal, seq LIMIT $4
), found AS (
    DELETE FROM searchable USING old
    WHERE searchable.session_id = old.session_id AND searchable.removal = old.removal
      AND searchable.seq = old.seq
)
DELETE FROM removed_messages USING old
WHERE removed_messages.session_id = old.session_id AND removed_messages.removal = old.removal
  AND removed_messages.seq = old.seq
"""
OLD_REVISIONS_SQL: Final[LiteralString] = """
-- message_revisions: delete the oldest; ids are nearly in the order of time
DELETE FROM message_revisions WHERE id = ANY(ARRAY(
    SELECT id FROM (SELECT id, at FROM message_revisions ORDER BY id LIMIT $2) AS oldest
    WHERE at < (SELECT clock_timestamp() - $1::interval)))
"""
OLD_TURNS_SQL: Final[LiteralString] = """
-- turns: delete the oldest ended turns; ids begin with a time
WITH gone AS (
    DELETE FROM turns WHERE id = ANY(ARRAY(
        SELECT id FROM turns
        WHERE id > $1 AND id < $2 AND state NOT IN ('ready', 'claimed') ORDER BY id LIMIT $3))
    RETURNING id
), steps AS (
    -- A router of the release before ends a turn and leaves its steps.
    DELETE FROM turn_steps USING gone WHERE turn_steps.turn_id = gone.id
)
SELECT id FROM gone
"""
OVER_HOLDS_SQL: Final[LiteralString] = """
-- session_holds: delete expired holds
DELETE FROM session_holds WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM session_holds
    WHERE (session_id, name) > ($1, '') AND held_until < clock_timestamp() - interval '1 day'
    ORDER BY session_id, name LIMIT $2))
"""


async def delete_archive(
    connection: "PoolConnectionProxy",
    after: "UUID",
    through: "UUID | None",
    age: "timedelta",
    limit: int,
) -> int:
    """Delete old archived rows of a range of sessions; return their number."""
    status = await connection.execute(OLD_ARCHIVE_SQL, after, through, age, limit)
    return int(status.rpartition(" ")[2])


async def delete_revisions(connection: "PoolConnectionProxy", age: "timedelta", limit: int) -> int:
    """Delete old revisions; return their number."""
    status = await connection.execute(OLD_REVISIONS_SQL, age, limit)
    return int(status.rpartition(" ")[2])


async def delete_turns(
    connection: "PoolConnectionProxy", after: "UUID", before: "UUID", limit: int
) -> "list[UUID]":
    """Delete ended turns with ids in a range; return their ids."""
    return [row[0] for row in await connection.fetch(OLD_TURNS_SQL, after, before, limit)]


async def delete_holds(connection: "PoolConnectionProxy", limit: int) -> int:
    """Delete expired holds; return their number."""
    status = await connection.execute(OVER_HOLDS_SQL, _START, limit)
    return int(status.rpartition(" ")[2])
