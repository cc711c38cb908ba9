"""Questions of running and parked turns, in the row of the turn; answers of parked ones are steps."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from pydantic_core import from_json, to_json

from chatlane.domain.turns.questions import OpenQuestion
from chatlane.domain.turns.turn_events import TurnPointer
from chatlane.postgres.pool import columns
from chatlane.postgres.stored_values import known_value, read_record, read_source
from chatlane_schemas.content.questions import (
    FieldValue,
    FormField,
    QuestionKind,
    QuestionState,
)
from chatlane_schemas.questions import ANSWER_PREFIX, OpenQuestionView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chatlane.domain.turns.questions import QuestionChange
    from chatlane.postgres.pool import Connection

NOTE_SPOKEN_SQL: Final[LiteralString] = """
-- turns: a running one has sent a message, or asks something
UPDATE turns SET has_spoken = has_spoken OR $3, question = coalesce($2::jsonb, question)
WHERE id = $1
"""


async def note_spoken(
    connection: Connection,
    turn_id: UUID,
    question: Mapping[str, object] | None = None,
    *,
    has_spoken: bool = True,
) -> None:
    """Note that a locked turn has sent a message, and its question, if it asks one."""
    body = None if question is None else to_json(question).decode()
    await connection.execute(NOTE_SPOKEN_SQL, turn_id, body, has_spoken)


FIND_OPEN_SQL: Final[LiteralString] = """
-- turns: the open questions of running and parked ones
SELECT id, session_id, agent, attempt, source, question, state = 'ready' AS is_parked FROM turns
WHERE id = ANY($1::uuid[]) AND (state = 'claimed' OR (state = 'ready' AND rest = 'parked'))
  AND cancel IS NULL AND question IS NOT NULL
  AND question ->> 'state' = 'open' AND (question ->> 'attempt')::int = attempt
"""


async def find_open(connection: Connection, turn_ids: Iterable[UUID]) -> dict[UUID, OpenQuestion]:
    """Return the open questions of locked sessions' running and parked turns, by session."""
    wanted = sorted(turn_ids)
    rows = await connection.fetch(FIND_OPEN_SQL, wanted) if wanted else []
    found: dict[UUID, OpenQuestion] = {}
    for row in rows:
        question = from_json(row["question"])
        asked_at = question.get("asked_at")
        source = None if row["source"] is None else read_source(row["source"], "turns")
        found[row["session_id"]] = OpenQuestion(
            id=UUID(question["id"]),
            turn=TurnPointer(row["id"], row["attempt"], row["agent"], source),
            session_id=row["session_id"],
            message_id=UUID(question["message_id"]),
            options=tuple((label, value) for label, value in question.get("options", ())),
            fields=_fields(question.get("fields", ())),
            values=question.get("values", {}),
            place=question.get("place", 0),
            due_at=datetime.fromisoformat(question["due_at"]),
            asked_at=None if asked_at is None else datetime.fromisoformat(asked_at),
            is_parked=row["is_parked"],
            is_call=question.get("kind") == QuestionKind.CALL,
            is_front_end_call=question.get("front_end_call") is not None,
        )
    return found


def _fields(stored: Iterable[Mapping[str, object]]) -> tuple[FormField, ...]:
    read = (read_record(FormField, field, "turns.question", is_json=True) for field in stored)
    return tuple(field for field in read if field is not None)


CHANGE_SQL: Final[LiteralString] = """
-- turns: changes to open questions; the first answer counts. The end of its question wakes a parked
-- turn. The next attempt finds the answer among its steps if the question names one
WITH changed AS (
    UPDATE turns SET question = question || new.patch,
        rest = CASE WHEN state = 'ready' AND new.patch ? 'state' THEN NULL ELSE rest END,
        due_at = CASE WHEN state = 'ready' AND new.patch ? 'state' THEN clock_timestamp()
                      ELSE due_at END,
        has_steps = has_steps OR (question ? 'answer_name' AND new.patch @> '{"state": "answered"}')
    FROM unnest($1::uuid[], $2::uuid[], $3::jsonb[]) AS new (turn_id, question_id, patch)
    WHERE turns.id = new.turn_id AND question ->> 'id' = new.question_id::text
      AND question ->> 'state' = 'open'
      AND (state = 'claimed' OR (state = 'ready' AND rest = 'parked'))
    RETURNING turns.id, session_id, attempt, question
)
INSERT INTO turn_steps (turn_id, session_id, attempt, name, result)
SELECT id, session_id, attempt, question ->> 'answer_name', jsonb_strip_nulls(jsonb_build_object(
    'value', question -> 'answer', 'values', question -> 'values', 'is_default', false))::text
FROM changed WHERE question ? 'answer_name' AND question ->> 'state' = 'answered'
-- The last answer to a question of a name counts.
ON CONFLICT (turn_id, name) DO UPDATE SET result = excluded.result, attempt = excluded.attempt
"""


async def change(connection: Connection, changes: Iterable[QuestionChange]) -> None:
    """Write changes to questions of locked sessions, at most one for each turn."""
    rows = list(changes)
    if rows:
        await connection.execute(CHANGE_SQL, *columns(rows, 3))


EXPIRE_SQL: Final[LiteralString] = """
-- turns: a question whose time is over gets its default
UPDATE turns SET question = question || '{"state": "expired"}'
WHERE id = $1 AND question ->> 'id' = $2::uuid::text AND question ->> 'state' = 'open'
  AND (question ->> 'due_at')::timestamptz <= clock_timestamp()
RETURNING true
"""


async def expire(connection: Connection, turn_id: UUID, question_id: UUID) -> bool:
    """End a question of a locked turn whose time is over; return whether it has ended now."""
    return bool(await connection.fetchval(EXPIRE_SQL, turn_id, question_id))


EXPIRE_PARKED_SQL: Final[LiteralString] = """
-- turns: questions of parked ones whose time is over; the next attempts find the defaults
WITH expired AS (
    UPDATE turns SET question = question || '{"state": "expired"}', has_steps = true
    WHERE id = ANY($1::uuid[]) AND state = 'ready' AND rest = 'parked'
      AND question ->> 'state' = 'open'
    RETURNING id, session_id, attempt, question
)
INSERT INTO turn_steps (turn_id, session_id, attempt, name, result)
SELECT id, session_id, attempt, question ->> 'answer_name', jsonb_strip_nulls(jsonb_build_object(
    'value', question -> 'default', 'is_default', true,
    'values', CASE WHEN question -> 'fields' <> '[]' THEN question -> 'defaults' END))::text
FROM expired
ON CONFLICT (turn_id, name) DO UPDATE SET result = excluded.result, attempt = excluded.attempt
"""


async def expire_parked(connection: Connection, turn_ids: Iterable[UUID]) -> None:
    """Give locked parked turns the defaults of their questions as answers."""
    await connection.execute(EXPIRE_PARKED_SQL, sorted(turn_ids))


FORGET_ANSWERS_SQL: Final[LiteralString] = """
-- turn_steps: answers that a session's live turn has kept; its handler asks again
DELETE FROM turn_steps
WHERE turn_id = (SELECT active_turn FROM sessions WHERE id = $1) AND starts_with(name, $2)
"""


async def forget_answers(connection: Connection, session_id: UUID) -> None:
    """Delete the answers to parked questions that the live turn of a locked session has kept."""
    await connection.execute(FORGET_ANSWERS_SQL, session_id, ANSWER_PREFIX)


FIND_SQL: Final[LiteralString] = """
-- turns: the question of a running attempt
SELECT question, cancel IS NOT NULL AS is_over,
       question ->> 'state' = 'open'
           AND (question ->> 'due_at')::timestamptz <= clock_timestamp() AS is_due
FROM turns
WHERE id = $1 AND session_id = $2 AND attempt = $3 AND token = $4 AND state = 'claimed'
  AND question IS NOT NULL
"""


class AskedQuestion(NamedTuple):
    """The question of a running attempt.

    Attributes:
        answer: The default once its time is over; as `values` of a form.
        is_due: Whether its time is over although it is open.
    """

    id: UUID
    message_id: UUID
    state: QuestionState
    answer: str | None
    values: dict[str, FieldValue] | None
    due_at: datetime | None
    is_due: bool


async def find(
    connection: Connection, turn_id: UUID, session_id: UUID, attempt: int, token: str
) -> AskedQuestion | None:
    """Return the question of a running attempt; one of a turn that is to end is over."""
    row = await connection.fetchrow(FIND_SQL, turn_id, session_id, attempt, token)
    if row is None:
        return None
    question = from_json(row["question"])
    state = known_value(QuestionState, question["state"], "turns.question") or QuestionState.OVER
    if row["is_over"]:
        state = QuestionState.OVER
    is_expired = state is QuestionState.EXPIRED
    due_at = question.get("due_at")
    return AskedQuestion(
        id=UUID(question["id"]),
        message_id=UUID(question["message_id"]),
        state=state,
        answer=question.get("default") if is_expired else question.get("answer"),
        values=_values_of(question, state),
        due_at=None if due_at is None else datetime.fromisoformat(due_at),
        is_due=bool(row["is_due"]),
    )


def _values_of(
    question: Mapping[str, dict[str, FieldValue]], state: QuestionState
) -> dict[str, FieldValue] | None:
    if not question.get("fields"):
        return None
    if state is QuestionState.EXPIRED:
        return question.get("defaults", {})
    return question.get("values", {}) if state is QuestionState.ANSWERED else None


FIND_VIEW_SQL: Final[LiteralString] = """
-- turns: the open question of a session, as callers see it; calls only for those that carry them out
SELECT turns.id, turns.agent, turns.attempt, turns.question
FROM sessions JOIN turns ON turns.id = sessions.active_turn
WHERE sessions.id = $1 AND turns.cancel IS NULL
  AND (turns.state = 'claimed' OR (turns.state = 'ready' AND turns.rest = 'parked'))
  AND turns.question ->> 'state' = 'open'
  AND (turns.question ->> 'attempt')::int = turns.attempt
  AND (turns.question ->> 'due_at')::timestamptz > clock_timestamp()
  AND CASE WHEN turns.question ->> 'kind' <> 'call' THEN true
           WHEN turns.question ? 'front_end_call' THEN $3 ELSE $2 END
"""


async def find_view(
    connection: Connection, session_id: UUID, *, with_calls: bool, with_front_end_calls: bool
) -> OpenQuestionView | None:
    """Return the open question of a session, as callers see it.

    Args:
        connection: The connection.
        session_id: The session.
        with_calls: Whether the caller is an editor.
        with_front_end_calls: Whether the caller runs tools of the front end.
    """
    row = await connection.fetchrow(FIND_VIEW_SQL, session_id, with_calls, with_front_end_calls)
    if row is None:
        return None
    question = from_json(row["question"])
    shown = {
        **question,
        "question_id": question["id"],
        "turn_id": str(row["id"]),
        "agent": row["agent"],
        "options": [{"label": label, "value": value} for label, value in question["options"]],
    }
    return read_record(OpenQuestionView, shown, "turns.question", is_json=True)
