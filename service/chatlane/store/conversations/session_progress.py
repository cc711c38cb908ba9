"""Read what is known about the work on a session; writes nothing and locks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.sessions.session_outlook import SessionProgress, TurnProgress

if TYPE_CHECKING:
    from uuid import UUID

    from chatlane.postgres.pool import Connection

PROGRESS_SQL: Final[LiteralString] = """
-- sessions: a session, its live turn, its agent, and what waits
SELECT clock_timestamp() AS now, session.ended_at, session.end_reason, session.suspended_at,
    session.staff_until,
    (SELECT count(*) FROM (SELECT FROM waiting WHERE session_id = $1 LIMIT 1000) AS counted)
        AS waiting,
    (SELECT stored_at FROM waiting WHERE session_id = $1 ORDER BY arrival LIMIT 1)
        AS waiting_since,
    (SELECT count(*) FROM (
        SELECT FROM dead_letters WHERE session_id = $1 AND stage = 'turns' LIMIT 100) AS counted)
        AS failed_turns,
    (SELECT until FROM agent_pauses WHERE agent = coalesce(turn.agent, session.agent))
        AS agent_pause,
    turn.id AS turn_id, turn.agent, turn.state, turn.rest IS NOT DISTINCT FROM 'resting' AS rests,
    turn.attempt, turn.worker, turn.created_at, turn.claimed_at, turn.due_at, turn.cancel,
    turn.waits_since, turn.question ->> 'state' IS NOT DISTINCT FROM 'open' AS is_asking
FROM sessions AS session LEFT JOIN turns AS turn ON turn.id = session.active_turn
WHERE session.id = $1
"""


async def find(
    connection: Connection, session_id: UUID, *, is_streamed: bool
) -> SessionProgress | None:
    """Return the state of the work on a session; None if there is no such session."""
    row = await connection.fetchrow(PROGRESS_SQL, session_id)
    if row is None:
        return None
    turn = None
    if row["turn_id"] is not None:
        turn = TurnProgress(
            agent=row["agent"],
            state=row["state"],
            is_resting=row["rests"],
            attempt=row["attempt"],
            worker=row["worker"],
            created_at=row["created_at"],
            claimed_at=row["claimed_at"],
            due_at=row["due_at"],
            cancel=row["cancel"],
            waits_since=row["waits_since"],
            is_asking=row["is_asking"],
        )
    return SessionProgress(
        now=row["now"],
        ended_at=row["ended_at"],
        end_reason=row["end_reason"],
        suspended_at=row["suspended_at"],
        staff_until=row["staff_until"],
        is_streamed=is_streamed,
        waiting=row["waiting"],
        waiting_since=row["waiting_since"],
        failed_turns=row["failed_turns"],
        agent_pause=row["agent_pause"],
        turn=turn,
    )
