"""Answer requests for the questions of running turns and their answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.domain.sessions.refusals import no_session
from chatlane.requests.turns.questions import expire
from chatlane.store import questions
from chatlane_schemas.content.questions import QuestionState
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.questions import QuestionReply, QuestionViewReply, TurnAnswer, TurnQuestion

if TYPE_CHECKING:
    from chatlane.api.endpoint import Reads
    from chatlane.decisions.unit_of_work import UnitOfWorkFactory
    from chatlane.postgres.pool import Store
    from chatlane.store.conversations.session_reads import SessionReads
    from chatlane.store.questions import AskedQuestion


class QuestionQueries:
    """Answers `turn.answer` of workers, and `turn.question` of readers.

    Args:
        store: The database.
        writer: Opens the transaction that ends a question whose time is over.
        sessions: Reads the session of a request, if it is of the person in the request.
    """

    def __init__(self, store: Store, writer: UnitOfWorkFactory, sessions: SessionReads) -> None:
        self._store = store
        self._writer = writer
        self._sessions = sessions

    def table(self) -> Reads:
        """Return model and function of each request, by method."""
        return {
            "turn.answer": (TurnAnswer, self._answer),
            "turn.question": (TurnQuestion, self._question),
        }

    async def _question(self, request: TurnQuestion) -> QuestionViewReply:
        now = datetime.now(UTC)
        if await self._sessions.find(request.session_id, request.acting_for) is None:
            return QuestionViewReply(id=new_envelope_id(), at=now, error=no_session())
        async with self._store.transaction() as connection:
            found = await questions.find_view(
                connection,
                request.session_id,
                with_calls=request.calls,
                with_front_end_calls=request.front_end_calls,
            )
        return QuestionViewReply(id=new_envelope_id(), at=now, question=found)

    async def _answer(self, request: TurnAnswer) -> QuestionReply:
        """Return the state of a question, and its answer once there is one."""
        question = await self._find(request)
        if question is not None and question.is_due:
            async with self._writer.begin() as unit_of_work:
                await expire(unit_of_work, request)
            question = await self._find(request)
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
            values=question.values,
            due_at=question.due_at,
        )

    async def _find(self, request: TurnAnswer) -> AskedQuestion | None:
        async with self._store.transaction() as connection:
            return await questions.find(
                connection, request.turn_id, request.session_id, request.attempt, request.token
            )
