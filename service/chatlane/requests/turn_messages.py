"""Decide requests of running turns that send a message or a question before their answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from chatlane.domain.effects import Effects
from chatlane.domain.ids import derived_id, time_of
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.sessions.refusals import conflict, invalid
from chatlane.domain.sessions.session_flags import count_answer
from chatlane.domain.turns.questions import buttons_of
from chatlane.requests.outbox import add_message, says_nothing
from chatlane.store import deliveries, questions, turns
from chatlane.store.conversations import sessions
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.questions import QuestionReply, QuestionState
from chatlane_schemas.session_api.outbox import OutboxReply
from chatlane_schemas.session_api.sessions import ApiError

if TYPE_CHECKING:
    from uuid import UUID

    from chatlane.domain.states import Session, Turn
    from chatlane.requests.context import Call
    from chatlane_schemas.questions import OfAttempt, TurnAsk, TurnSay
    from chatlane_schemas.results import Part


async def say(request: TurnSay, call: Call) -> OutboxReply:
    """Send a message of a running turn."""
    running = await _lock(request, call)
    if isinstance(running, ApiError):
        return OutboxReply(id=new_envelope_id(), at=datetime.now(UTC), error=running)
    session, turn = running
    message_id = derived_id(call.at, call.trigger, "said")
    if request.key is not None:
        seed = turn.id.bytes + request.key.encode()
        message_id = derived_id(time_of(turn.id), seed, "said")
    is_known = request.key is not None and await deliveries.find(
        call.connection, session.id, message_id
    )
    if not is_known:
        await _add(request.message, session, turn, message_id, call)
        await questions.note_spoken(call.connection, turn.id)
    return OutboxReply(
        id=new_envelope_id(), at=datetime.now(UTC), session_id=session.id, message_id=message_id
    )


async def ask(request: TurnAsk, call: Call) -> QuestionReply:
    """Ask the person of a running turn."""
    running = await _lock(request, call)
    if isinstance(running, ApiError):
        return QuestionReply(id=new_envelope_id(), at=datetime.now(UTC), error=running)
    session, turn = running
    if session.id in await questions.find_open(call.connection, [turn.id]):
        error = conflict("the turn has an open question")
        return QuestionReply(id=new_envelope_id(), at=datetime.now(UTC), error=error)
    message_id = derived_id(call.at, call.trigger, "said")
    question_id = derived_id(call.at, call.trigger, "question")
    buttons = buttons_of(question_id, request.options)
    said = request.message.model_copy(update={"buttons": buttons or None})
    due_at = call.at + timedelta(milliseconds=request.within_ms)
    await _add(said, session, turn, message_id, call)
    question = {
        "id": question_id,
        "attempt": turn.attempt,
        "state": QuestionState.OPEN,
        "options": [(option.label, option.value or option.label) for option in request.options],
        "default": request.default,
        "asked_at": call.at,
        "due_at": due_at,
        "message_id": message_id,
    }
    await questions.note_spoken(call.connection, turn.id, question)
    return QuestionReply(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        question_id=question_id,
        message_id=message_id,
        state=QuestionState.OPEN,
        due_at=due_at,
    )


async def _lock(request: TurnSay | TurnAsk, call: Call) -> tuple[Session, Turn] | ApiError:
    """Lock the session and the turn of a request, or return why it may not speak."""
    if says_nothing(request.message):
        return invalid("message: says nothing")
    locked = await sessions.lock(call.connection, [request.session_id])
    turn = (await turns.lock(call.connection, [request.turn_id])).get(request.turn_id)
    session = locked.get(request.session_id)
    if session is None or turn is None or not _is_current(request, turn):
        return conflict("this attempt does not run any more")
    if turn.cancel is not None:
        return conflict("the turn is to end")
    return session, turn


def _is_current(request: OfAttempt, turn: Turn) -> bool:
    return (
        turn.state == "claimed"
        and turn.session_id == request.session_id
        and (turn.attempt, turn.token) == (request.attempt, request.token)
    )


async def _add(said: Part, session: Session, turn: Turn, message_id: UUID, call: Call) -> None:
    effects = Effects()
    speaking = Speaking(session, turn.agent, turn.source, call.at, turn.id)
    add_message(speaking, said, message_id, effects)
    count_answer(session)
    await call.unit_of_work.write(effects, sessions_of=[session])
