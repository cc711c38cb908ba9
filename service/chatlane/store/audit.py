"""The audit: what operators did and looked at, and what sessions underwent unasked."""

from datetime import timedelta
from typing import TYPE_CHECKING, Final, LiteralString

from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.callers import Operator
    from chatlane.postgres.pool import Store

# Who goes on looking within it looks once.
_SAME_LOOK: Final = timedelta(minutes=1)

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


READ_SQL: Final[LiteralString] = """
-- audit: that somebody looked, unless the same was noted a moment ago
INSERT INTO audit (action, session_id, detail, actor, outcome)
SELECT $1::text, $2::uuid, '{}', $3::text, $4::text
WHERE NOT EXISTS (
    SELECT FROM audit WHERE at > (SELECT clock_timestamp() - $5::interval)
      AND action = $1 AND session_id IS NOT DISTINCT FROM $2 AND actor = $3 AND outcome = $4)
"""


class ReadNotes:
    """Notes what operators look at: a page, or a look at what comes, is no line of its own."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    async def note(self, operator: "Operator", session_id: "UUID | None", outcome: str) -> None:
        """Note that an operator looked, at a session if it was one, and what became of it."""
        actor = f"nats:{operator}"
        async with self._store.transaction() as connection:
            await connection.execute(
                READ_SQL, operator.method, session_id, actor, outcome, _SAME_LOOK
            )


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
