"""Answer requests for the answers to questions of running turns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.store import questions
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.questions import QuestionReply, QuestionState, TurnAnswer

if TYPE_CHECKING:
    from chatlane.api.endpoint import Reads
    from chatlane.postgres.pool import Store


class QuestionQueries:
    """Answers `turn.answer`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def table(self) -> Reads:
        """Return model and function of each request, by method."""
        return {"turn.answer": (TurnAnswer, self.answer)}

    async def answer(self, request: TurnAnswer) -> QuestionReply:
        """Return the state of a question, and its answer once there is one."""
        async with self._store.transaction() as connection:
            question = await questions.find(
                connection, request.turn_id, request.session_id, request.attempt, request.token
            )
        now = datetime.now(UTC)
        if question is None or question.id != request.question_id:
            return QuestionReply(id=new_envelope_id(), at=now, state=QuestionState.OVER)
        return QuestionReply(
            id=new_envelope_id(),
            at=now,
            question_id=question.id,
            message_id=question.message_id,
            state=question.state,
            answer=question.answer,
            due_at=question.due_at,
        )
