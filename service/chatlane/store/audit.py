"""Audit log: actions and reads of operators, and automatic actions on sessions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, LiteralString, Self

from pydantic_core import to_json
from typing_extensions import override

from chatlane.postgres.pool import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from chatlane.postgres.pool import Connection, Store

# Repeated reads within this time become one audit line.
_SAME_LOOK: Final = timedelta(minutes=1)

WRITE_SQL: Final[LiteralString] = """
-- audit: insert a line
INSERT INTO audit (action, session_id, detail, actor, outcome)
VALUES ($1, $2, $3::jsonb, $4, $5)
"""


async def write(
    connection: Connection,
    action: str,
    session_id: UUID | None,
    detail: Mapping[str, object],
    *,
    actor: str | None = None,
    outcome: str | None = None,
) -> None:
    """Write an audit line.

    Args:
        action: Name of the action.
        detail: Additional ids and numbers, never message text.
        actor: `nats:` with a principal, or `os:` with a user; None for the service.
        outcome: `done`, or the reason of a failure.
    """
    detail_json = to_json(detail).decode()
    await connection.execute(WRITE_SQL, action, session_id, detail_json, actor, outcome)


READ_SQL: Final[LiteralString] = """
-- audit: insert a line about a read, unless the same read was recorded recently
INSERT INTO audit (action, session_id, detail, actor, outcome)
SELECT $1::text, $2::uuid, $6::jsonb, $3::text, $4::text
WHERE NOT EXISTS (
    SELECT FROM audit WHERE at > (SELECT clock_timestamp() - $5::interval)
      AND action = $1 AND session_id IS NOT DISTINCT FROM $2 AND actor = $3 AND outcome = $4
      AND detail = $6)
"""


class ReadNotes:
    """Audits what operators read; repeated reads of the same session become one line."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def note(
        self,
        operator: Operator,
        session_id: UUID | None,
        outcome: str,
        letter_id: UUID | None = None,
    ) -> None:
        """Audit that an operator read a session, a dead letter or something else, with the outcome."""
        actor = f"nats:{operator}"
        detail = to_json({} if letter_id is None else {"letter": letter_id}).decode()
        async with self._store.transaction() as connection:
            await connection.execute(
                READ_SQL, operator.method, session_id, actor, outcome, _SAME_LOOK, detail
            )


EXPIRE_SQL: Final[LiteralString] = """
-- audit: delete the oldest lines
DELETE FROM audit WHERE id = ANY(ARRAY(
    SELECT id FROM audit WHERE at < (SELECT clock_timestamp() - $1::interval)
    ORDER BY at LIMIT $2))
"""


async def expire(connection: Connection, kept: timedelta, limit: int) -> int:
    """Delete up to `limit` lines older than `kept`; returns how many."""
    status = await connection.execute(EXPIRE_SQL, kept, limit)
    return count_of(status)


class Operator(str):
    """The audited principal of a request that is bound to no agent and no account.

    Attributes:
        method: The requested method, such as `session.title`.
    """

    __slots__ = ("method",)

    method: str

    @override
    def __new__(cls, principal: str, method: str) -> Self:
        made = super().__new__(cls, principal)
        made.method = method
        return made
