"""Questions of running turns, in the row of the turn."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from pydantic_core import from_json, to_json

from chatlane.domain.turns.questions import OpenQuestion
from chatlane.postgres.pool import columns
from chatlane.postgres.stored_values import known_value
from chatlane_schemas.questions import QuestionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chatlane.domain.turns.questions import Answer
    from chatlane.postgres.pool import Connection

NOTE_SPOKEN_SQL: Final[LiteralString] = """
-- turns: a running one has sent a message; it may ask something
UPDATE turns SET has_spoken = true, question = coalesce($2::jsonb, question) WHERE id = $1
"""


async def note_spoken(
    connection: Connection, turn_id: UUID, question: dict[str, object] | None = None
) -> None:
    """Note that a locked turn has sent a message, and its question, if it asks one."""
    body = None if question is None else to_json(question).decode()
    await connection.execute(NOTE_SPOKEN_SQL, turn_id, body)


FIND_OPEN_SQL: Final[LiteralString] = """
-- turns: the open questions of running ones
SELECT id, session_id, agent, question FROM turns
WHERE id = ANY($1::uuid[]) AND state = 'claimed' AND cancel IS NULL AND question IS NOT NULL
  AND question ->> 'state' = 'open' AND (question ->> 'attempt')::int = attempt
"""


async def find_open(connection: Connection, turn_ids: Iterable[UUID]) -> dict[UUID, OpenQuestion]:
    """Return the open questions of locked sessions' running turns, by session."""
    wanted = sorted(turn_ids)
    rows = await connection.fetch(FIND_OPEN_SQL, wanted) if wanted else []
    found: dict[UUID, OpenQuestion] = {}
    for row in rows:
        question = from_json(row["question"])
        asked_at = question.get("asked_at")
        found[row["session_id"]] = OpenQuestion(
            id=UUID(question["id"]),
            turn_id=row["id"],
            session_id=row["session_id"],
            agent=row["agent"],
            options=tuple((label, value) for label, value in question["options"]),
            due_at=datetime.fromisoformat(question["due_at"]),
            asked_at=None if asked_at is None else datetime.fromisoformat(asked_at),
        )
    return found


ANSWER_SQL: Final[LiteralString] = """
-- turns: the first answers to open questions
UPDATE turns SET question = question || jsonb_build_object(
    'state', 'answered', 'answer', new.value, 'answered_at', new.at)
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[])
    AS new (turn_id, question_id, value, at)
WHERE turns.id = new.turn_id AND question ->> 'id' = new.question_id::text
  AND question ->> 'state' = 'open' AND state = 'claimed'
"""


async def answer(connection: Connection, answers: Sequence[Answer]) -> None:
    """Write the answers to questions of locked sessions."""
    if answers:
        await connection.execute(ANSWER_SQL, *columns(answers, 4))


EXPIRE_SQL: Final[LiteralString] = """
-- turns: a question whose time is over gets its default
UPDATE turns SET question = question || '{"state": "expired"}'
WHERE id = $1 AND question ->> 'state' = 'open'
  AND (question ->> 'due_at')::timestamptz <= clock_timestamp()
"""

FIND_SQL: Final[LiteralString] = """
-- turns: the question of a running attempt
SELECT question FROM turns
WHERE id = $1 AND session_id = $2 AND attempt = $3 AND token = $4 AND state = 'claimed'
"""


class AskedQuestion(NamedTuple):
    """The question of a running attempt; `answer` is the default once its time is over."""

    id: UUID
    message_id: UUID
    state: QuestionState
    answer: str | None
    due_at: datetime


async def find(
    connection: Connection, turn_id: UUID, session_id: UUID, attempt: int, token: str
) -> AskedQuestion | None:
    """Return the question of a running attempt; a question whose time is over has expired."""
    await connection.execute(EXPIRE_SQL, turn_id)
    found: str | None = await connection.fetchval(FIND_SQL, turn_id, session_id, attempt, token)
    if found is None:
        return None
    question = from_json(found)
    state = known_value(QuestionState, question["state"], "turns.question") or QuestionState.OVER
    is_expired = state is QuestionState.EXPIRED
    return AskedQuestion(
        id=UUID(question["id"]),
        message_id=UUID(question["message_id"]),
        state=state,
        answer=question.get("default") if is_expired else question.get("answer"),
        due_at=datetime.fromisoformat(question["due_at"]),
    )
