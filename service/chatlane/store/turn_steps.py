"""Results of steps of live turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from chatlane.postgres.pool import Connection
    from chatlane_schemas.questions import OfAttempt

FIND_SQL: Final[LiteralString] = """
-- turns: the result of a step, if the attempt is the current one
SELECT turn_steps.result
FROM turns LEFT JOIN turn_steps ON turn_steps.turn_id = turns.id AND turn_steps.name = $5
WHERE turns.id = $1 AND turns.session_id = $2 AND turns.attempt = $3 AND turns.token = $4
  AND turns.state IN ('ready', 'claimed')
"""


class FoundStep(NamedTuple):
    """The result of a step for its turn's current attempt; None if there is none."""

    result: str | None


async def find(connection: Connection, attempt: OfAttempt, name: str) -> FoundStep | None:
    """Return the result of a step; None if the attempt is not the current one."""
    row = await connection.fetchrow(FIND_SQL, *_ids(attempt), name)
    return None if row is None else FoundStep(row[0])


IS_ENDING_SQL: Final[LiteralString] = """
-- turns: whether the turn of a current attempt is to end
SELECT cancel IS NOT NULL FROM turns
WHERE id = $1 AND session_id = $2 AND attempt = $3 AND token = $4 AND state IN ('ready', 'claimed')
"""


async def is_ending(connection: Connection, attempt: OfAttempt) -> bool | None:
    """Return whether a turn is to end; None if the attempt is not the current one.

    The session is locked, so the turn gets no other attempt meanwhile.
    """
    found: bool | None = await connection.fetchval(IS_ENDING_SQL, *_ids(attempt))
    return found


COUNT_SQL: Final[LiteralString] = """
-- turn_steps: number and size of the results of a turn, and the result of one step
SELECT count(*), coalesce(sum(octet_length(result)), 0), max(result) FILTER (WHERE name = $2)
FROM turn_steps WHERE turn_id = $1
"""


class KeptSteps(NamedTuple):
    """The results of a turn; `result` is that of the step in question."""

    number: int
    size_bytes: int
    result: str | None


async def count(connection: Connection, turn_id: UUID, name: str) -> KeptSteps:
    """Return how much a turn of a locked session has kept."""
    row = await connection.fetchrow(COUNT_SQL, turn_id, name)
    return KeptSteps(0, 0, None) if row is None else KeptSteps(*row)


KEEP_SQL: Final[LiteralString] = """
-- turn_steps: the result of a step of a turn of a locked session
WITH noted AS (UPDATE turns SET has_steps = true WHERE id = $1 AND NOT has_steps)
INSERT INTO turn_steps (turn_id, session_id, attempt, name, result) VALUES ($1, $2, $3, $4, $5)
"""


async def keep(connection: Connection, attempt: OfAttempt, name: str, result: str) -> None:
    """Write the result of a step of a turn of a locked session; it has none of this name."""
    await connection.execute(
        KEEP_SQL, attempt.turn_id, attempt.session_id, attempt.attempt, name, result
    )


DELETE_SQL: Final[LiteralString] = """
-- turn_steps: turns that have ended need no results
DELETE FROM turn_steps WHERE turn_id = ANY($1::uuid[])
"""


async def delete(connection: Connection, turn_ids: Iterable[UUID]) -> None:
    """Delete the results of locked turns."""
    await connection.execute(DELETE_SQL, sorted(turn_ids))


def _ids(attempt: OfAttempt) -> tuple[UUID, UUID, int, str]:
    return attempt.turn_id, attempt.session_id, attempt.attempt, attempt.token
