"""The audit: what operators did, and what was done to sessions that nobody asked for by name."""

from typing import TYPE_CHECKING, Final, LiteralString

from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

WRITE_SQL: Final[LiteralString] = """
-- audit: one line
INSERT INTO audit (action, session_id, detail, actor, outcome)
VALUES ($1, $2, $3::jsonb, $4, $5)
"""


async def write(
    connection: "PoolConnectionProxy",
    action: str,
    session_id: "UUID | None",
    detail: "Mapping[str, object]",
    *,
    actor: str | None = None,
    outcome: str | None = None,
) -> None:
    """Write a line for operators.

    Args:
        connection: Of the transaction that does it.
        action: What was done.
        session_id: To which session, if to one.
        detail: What else there is to know: ids and numbers, no text of a message.
        actor: Who did it: `nats:` with a principal, `os:` with a user; None for the service.
        outcome: `done`, or why it was not.
    """
    said = to_json(detail).decode()
    await connection.execute(WRITE_SQL, action, session_id, said, actor, outcome)


EXPIRE_SQL: Final[LiteralString] = """
-- audit: away with the oldest lines
DELETE FROM audit WHERE id = ANY(ARRAY(
    SELECT id FROM audit WHERE at < (SELECT clock_timestamp() - $1::interval)
    ORDER BY at LIMIT $2))
"""


async def expire(connection: "PoolConnectionProxy", kept: "timedelta", limit: int) -> int:
    """Delete lines that are older than that, at most so many; returns how many."""
    status = await connection.execute(EXPIRE_SQL, kept, limit)
    return int(status.rpartition(" ")[2])
