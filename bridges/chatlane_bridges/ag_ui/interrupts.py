"""Questions of turns as interrupts of runs, and the runs that answer them."""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from ag_ui.core import Interrupt, ResumeEntry

from chatlane_bridges.answers.answer_streams import Place
from chatlane_bridges.answers.form_schemas import form_schema, value_of
from chatlane_bridges.answers.person_service import PersonService
from chatlane_bridges.http.problems import invalid
from chatlane_client import ConflictingRequestError, Submission
from chatlane_schemas.questions import OpenQuestionView
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.sessions import SessionView

_ID: Final = re.compile("[0-9a-f]{64}")


class Asked(NamedTuple):
    """The question of an interrupt, and the turn that asks it."""

    question_id: UUID
    turn_id: UUID


def interrupt_of(question: OpenQuestionView) -> Interrupt:
    """Return the interrupt of a run whose turn asks."""
    schema: dict[str, Any] = {"type": "string"}
    if question.fields:
        schema = form_schema(question.fields)
    elif question.options:
        schema["enum"] = [option.label for option in question.options]
    return Interrupt(
        id=f"{question.question_id.hex}{question.turn_id.hex}",
        reason=question.kind.value,
        message=question.text,
        response_schema=schema,
        expires_at=question.due_at.isoformat(),
    )


def asked_by(entries: Sequence[ResumeEntry]) -> tuple[ResumeEntry, Asked]:
    """Return the answer of a run, and the question to which it belongs.

    Raises:
        ApiProblem: It is no answer to one interrupt.
    """
    if len(entries) != 1 or _ID.fullmatch(entries[0].interrupt_id) is None:
        raise invalid("A run resumes the one interrupt of its thread.", "resume")
    name = entries[0].interrupt_id
    return entries[0], Asked(UUID(name[:32]), UUID(name[32:]))


async def answer(
    service: PersonService, session: SessionView, entry: ResumeEntry, asked: Asked, request_id: str
) -> Place:
    """Answer a question, and return the place of the answer.

    An answer that the question has already, because the client repeats it, is not given again.

    Raises:
        ConflictingRequestError: The question is not open any more, and has another answer.
        RefusedRequestError: The question does not take the answer; it stays open.
        ApiProblem: The answer is neither a text nor the values of a form.
    """
    payload = entry.payload
    if not isinstance(payload, str | dict):
        raise invalid("The answer is a text, or an object of a form's values.", "resume")
    text, values = (payload, None) if isinstance(payload, str) else (None, payload)
    question = await service.sessions.question(session.id)
    options = () if question is None else question.options
    known = {option.label: value_of(option) for option in options}
    try:
        await service.sessions.reply(
            session.id,
            asked.question_id,
            None if text is None else known.get(text, text),
            values=values,
            request_id=request_id,
        )
        is_given = True
    except ConflictingRequestError:
        is_given = False
        if text is None:
            raise
    rows = await service.transcripts.newest(session.id)
    questions = [row for row in reversed(rows) if row.role is Role.USER]
    if not is_given:
        # Nobody has written since.
        questions = questions[:1]
    kept = questions[0] if questions and is_given else None
    row = next((row for row in questions if text is None or row.content == text), kept)
    if row is None or row.message_id is None:
        raise invalid("The question is not open any more.", "resume", "conflict")
    return Place(session, joined=Submission(session, row.message_id, asked.turn_id))
