"""Decide requests that answer the question of a turn, and end questions in time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from chatlane.domain.catalog import Agent
from chatlane.domain.counts import CountName
from chatlane.domain.effects import Effects
from chatlane.domain.lanes import Placement
from chatlane.domain.sessions.refusals import conflict, invalid, no_session
from chatlane.domain.turns.answers import Moment, settle
from chatlane.domain.turns.forms import Wrong, checked_values, summary_of
from chatlane.domain.turns.turn_events import note_question_over
from chatlane.requests.session_creation import arrived_event, person_event
from chatlane.store import questions, turns
from chatlane.store.addressing import identities
from chatlane.store.conversations import sessions
from chatlane_schemas.content.editor_calls import EditorResult
from chatlane_schemas.content.elements import Press
from chatlane_schemas.content.questions import QuestionEnd, QuestionState
from chatlane_schemas.content.visible_text import is_blank
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.inbound import Kind
from chatlane_schemas.questions import QuestionReply
from chatlane_schemas.session_api.sessions import ApiError

if TYPE_CHECKING:
    from chatlane.decisions.unit_of_work import UnitOfWork
    from chatlane.domain.states import Session
    from chatlane.domain.turns.questions import OpenQuestion
    from chatlane.requests.context import Call
    from chatlane_schemas.content.questions import FieldValue
    from chatlane_schemas.questions import TurnAnswer, TurnReply


async def reply(request: TurnReply, call: Call) -> QuestionReply:
    """Answer the open question of a session, or return why it is refused."""
    session = await _lock(request, call)
    if session is None:
        return _refused(no_session())
    running = [] if session.active_turn is None else [session.active_turn]
    question = (await questions.find_open(call.connection, running)).get(session.id)
    if question is None or question.id != request.question_id:
        return _refused(conflict("question_id: this question is not open"))
    if call.at > question.due_at:
        return _refused(conflict("question_id: the time of this question is over"))
    answer = _said(request, question)
    if isinstance(answer, ApiError):
        return _refused(answer)
    effects = Effects()
    if answer.content is not None:
        await _add_row(request, session, answer.content, call, effects)
    notices = call.catalog.notices_of(session.platform)
    settle(question, answer.patch, Moment(session, call.at, call.trigger, notices), effects)
    await call.unit_of_work.write(effects, sessions_of=[session])
    return QuestionReply(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        question_id=question.id,
        message_id=question.message_id,
        state=QuestionState.ANSWERED,
        answer=answer.value,
        values=answer.values,
        due_at=question.due_at,
    )


async def expire(unit_of_work: UnitOfWork, request: TurnAnswer) -> None:
    """End the question of a running turn if its time is over, and tell the readers of the turn."""
    connection = unit_of_work.connection
    locked = await sessions.lock(connection, [request.session_id])
    turn = (await turns.lock(connection, [request.turn_id])).get(request.turn_id)
    session = locked.get(request.session_id)
    if (
        session is None
        or turn is None
        or turn.open_question is None
        or turn.session_id != session.id
    ):
        return
    effects = Effects()
    if await questions.expire(connection, turn.id, turn.open_question.id):
        end, now = QuestionEnd.EXPIRED, datetime.now(UTC)
        note_question_over(turn, turn.open_question, session, now, effects, outcome=end)
    await unit_of_work.write(effects, sessions_of=[session])


def _refused(error: ApiError) -> QuestionReply:
    return QuestionReply(id=new_envelope_id(), at=datetime.now(UTC), error=error)


async def _lock(request: TurnReply, call: Call) -> Session | None:
    """Lock and return the session of a request, if the person it acts for may see it."""
    owners = await identities.find_owners(call.connection, request.acting_for)
    session = (await sessions.lock(call.connection, [request.session_id])).get(request.session_id)
    return session if session is None or owners is None or session.owner in owners else None


class _Said(NamedTuple):
    """The answer to a question, and the content of its row; the result of a call has none."""

    content: dict[str, object] | None
    value: str | None = None
    values: dict[str, FieldValue] | None = None

    @property
    def patch(self) -> dict[str, object]:
        return {"answer": self.value} if self.values is None else {"values": self.values}


def _said(request: TurnReply, question: OpenQuestion) -> _Said | ApiError:
    if question.fields:
        return _form(request, question)
    value = request.value
    if value is None or request.values is not None:
        return invalid("value: a question that is no form takes one value")
    if question.is_front_end_call:
        return _Said(None, value) if question.can_keep(value) else invalid("value: is too long")
    if question.is_call:
        return _result(value)
    if question.options:
        return _choice(value, question)
    return _text(value, question)


def _text(value: str, question: OpenQuestion) -> _Said | ApiError:
    if is_blank(value):
        return invalid("value: says nothing")
    if not question.can_keep(value):
        return invalid("value: is too long")
    return _Said({"text": value}, value)


def _result(value: str) -> _Said | ApiError:
    try:
        EditorResult.model_validate_json(value)
    except ValidationError:
        return invalid("value: is no result of a call")
    return _Said(None, value)


def _form(request: TurnReply, question: OpenQuestion) -> _Said | ApiError:
    if request.values is None or request.value is not None:
        return invalid("values: a form takes a value for each field, and nothing else")
    values = checked_values(question.fields, request.values)
    if isinstance(values, Wrong):
        return invalid(values.reason)
    return _Said({"text": summary_of(question.fields, values)}, values=values)


def _choice(value: str, question: OpenQuestion) -> _Said | ApiError:
    label = next((label for label, known in question.options if known == value), None)
    if label is None:
        return invalid("value: is none of the options")
    press = Press(value=value, label=label)
    return _Said({"kind": Kind.ACTION, "text": label, "press": press}, value)


async def _add_row(
    request: TurnReply, session: Session, content: dict[str, object], call: Call, effects: Effects
) -> None:
    event = await person_event(session, call, request, **content)
    agent = call.catalog.agents.get(session.agent) or Agent(session.agent)
    arrived = arrived_event(event, session, agent, call)
    placement = Placement({}, {session.id: session}, set(), effects, call.slots)
    placement.add_answer(arrived, session, event)
    effects.count((CountName.KEPT, "answer"))
