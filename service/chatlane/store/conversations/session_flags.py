"""Holds and model overrides, which only requests and commands write; under the session's row lock."""

from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

HOLD_SQL: Final[LiteralString] = """
-- session_holds: set one anew, or renew it
INSERT INTO session_holds (session_id, name, held_until) VALUES ($1, $2, $3)
ON CONFLICT (session_id, name) DO UPDATE SET held_until = excluded.held_until
"""

RELEASE_SQL: Final[LiteralString] = """
-- session_holds: away with one, and with those that have ended by themselves
DELETE FROM session_holds WHERE session_id = $1 AND (name = $2 OR held_until <= $3)
"""

COUNT_HOLDS_SQL: Final[LiteralString] = """
-- session_holds: how many others a session has
SELECT count(*) FROM session_holds WHERE session_id = $1 AND name <> $2
"""

HELD_UNTIL_SQL: Final[LiteralString] = """
-- sessions: until when the last of its holds keeps one
UPDATE sessions SET held_until = (
    SELECT max(held_until) FROM session_holds WHERE session_id = $1)
WHERE id = $1
"""


async def hold(
    connection: "PoolConnectionProxy",
    session_id: "UUID",
    name: str,
    *,
    now: "datetime",
    until: "datetime",
    most: int,
) -> bool:
    """Set or renew a hold of a locked session; returns False if it has `most` other holds."""
    await connection.execute(RELEASE_SQL, session_id, name, now)
    if await connection.fetchval(COUNT_HOLDS_SQL, session_id, name) >= most:
        return False
    await connection.execute(HOLD_SQL, session_id, name, until)
    await connection.execute(HELD_UNTIL_SQL, session_id)
    return True


async def release(
    connection: "PoolConnectionProxy", session_id: "UUID", name: str, now: "datetime"
) -> None:
    """End the hold of a locked session with this name, if there is one."""
    await connection.execute(RELEASE_SQL, session_id, name, now)
    await connection.execute(HELD_UNTIL_SQL, session_id)


OVERRIDE_SQL: Final[LiteralString] = """
-- sessions: which model answers instead of the agent's own choice
UPDATE sessions SET model_override = $2::jsonb WHERE id = $1
"""


async def override(
    connection: "PoolConnectionProxy", session_id: "UUID", model_override: str | None
) -> None:
    """Set or clear the model override of a locked session; it is JSON text."""
    await connection.execute(OVERRIDE_SQL, session_id, model_override)


COUNT_ROUNDS_SQL: Final[LiteralString] = """
-- messages: how often something was said in a session and then answered
SELECT count(*) FROM (
    SELECT role, lag(role) OVER (ORDER BY seq) AS before FROM messages
    WHERE session_id = $1 AND role IN ('user', 'assistant')
      AND ($2::timestamptz IS NULL OR created_at > $2)
) AS said
WHERE role = 'assistant' AND before = 'user'
"""


async def count_rounds(
    connection: "PoolConnectionProxy", session_id: "UUID", since: "datetime | None"
) -> int:
    """Return the number of complete rounds of a session, of rows later than `since`."""
    rounds: int = await connection.fetchval(COUNT_ROUNDS_SQL, session_id, since)
    return rounds
