"""Decide requests of running turns that send a message or a question before their answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from chatlane.domain.effects import Effects
from chatlane.domain.ids import derived_id, time_of
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.sessions.refusals import conflict, invalid
from chatlane.domain.sessions.session_flags import count_answer
from chatlane.domain.states import AskedQuestion
from chatlane.domain.turns.answers import field_part
from chatlane.domain.turns.forms import defaults_of, problem_of
from chatlane.domain.turns.parked_turns import park
from chatlane.domain.turns.questions import buttons_of
from chatlane.domain.turns.turn_events import note_asked, withdraw_question
from chatlane.domain.turns.turn_results import add_message
from chatlane.requests.outbox import says_nothing
from chatlane.store import deliveries, questions, turn_steps, turns
from chatlane.store.conversations import sessions
from chatlane_schemas.content.questions import QuestionKind, QuestionState
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.questions import (
    ANSWER_PREFIX,
    LARGEST_STEP,
    LARGEST_STEPS,
    LONGEST_QUESTION_MS,
    MOST_STEPS,
    QuestionReply,
)
from chatlane_schemas.session_api.outbox import OutboxReply
from chatlane_schemas.session_api.sessions import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from chatlane.domain.notices import Notices
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
        effects = Effects()
        _say([(request.message, message_id)], session, turn, call, effects)
        await call.unit_of_work.write(effects, sessions_of=[session])
        await questions.note_spoken(call.connection, turn.id)
    return OutboxReply(
        id=new_envelope_id(), at=datetime.now(UTC), session_id=session.id, message_id=message_id
    )


async def ask(request: TurnAsk, call: Call) -> QuestionReply:
    """Ask the person of a running turn; a parked one ends its attempt with the question."""
    problem = _problem_of(request)
    running = invalid(problem) if problem is not None else await _lock(request, call)
    if isinstance(running, ApiError):
        return QuestionReply(id=new_envelope_id(), at=datetime.now(UTC), error=running)
    session, turn = running
    error = await _refusal(request, turn, call)
    if error is not None:
        return QuestionReply(id=new_envelope_id(), at=datetime.now(UTC), error=error)
    question_id = derived_id(call.at, call.trigger, "question")
    asking = _messages_of(request, question_id, call.catalog.notices_of(session.platform))
    message_ids = [
        derived_id(call.at, call.trigger, "said", number) for number in range(len(asking))
    ]
    opened = AskedQuestion(question_id, message_ids[-1])
    kind = _kind_of(request)
    within = timedelta(milliseconds=request.within_ms)
    due_at, is_parked = call.at + within, request.park_as is not None
    effects = Effects()
    # A handler that parks its turn has given up a question that it asked before.
    withdraw_question(turn, session, call.at, effects)
    is_said = kind is not QuestionKind.CALL
    if is_said:
        _say(list(zip(asking, message_ids, strict=True)), session, turn, call, effects)
    note_asked(
        turn, opened, session, call.at, effects, kind=kind, due_at=due_at, is_parked=is_parked
    )
    if is_parked:
        park(turn, within, effects)
    await call.unit_of_work.write(effects, sessions_of=[session])
    question = {
        "id": question_id,
        "attempt": turn.attempt,
        "state": QuestionState.OPEN,
        "kind": kind,
        "text": request.message.text,
        "format": request.message.format,
        "options": [(option.label, option.value or option.label) for option in request.options],
        "fields": request.fields,
        "defaults": defaults_of(request.fields),
        "default": request.default,
        "asked_at": call.at,
        "due_at": due_at,
        "message_id": opened.message_id,
    }
    if request.call is not None:
        question["call"] = request.call
    if request.front_end_call is not None:
        question["front_end_call"] = request.front_end_call
    if (name := _kept_as(request)) is not None:
        question["answer_name"] = ANSWER_PREFIX + name
    await questions.note_spoken(call.connection, turn.id, question, has_spoken=is_said)
    return QuestionReply(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        question_id=question_id,
        message_id=opened.message_id,
        state=QuestionState.OPEN,
        due_at=due_at,
        parked=is_parked,
    )


async def _refusal(request: TurnAsk, turn: Turn, call: Call) -> ApiError | None:
    """Return why a turn may not ask: it has an open question, or no room for another answer."""
    if request.park_as is None and turn.open_question is not None:
        return conflict("the turn has an open question")
    name = _kept_as(request)
    if name is None:
        return None
    kept = await turn_steps.count(call.connection, turn.id, ANSWER_PREFIX + name)
    if kept.number >= MOST_STEPS or kept.size_bytes + LARGEST_STEP > LARGEST_STEPS:
        field = "front_end_call" if request.park_as is None else "park_as"
        return invalid(f"{field}: the turn has too many steps and answers")
    return None


def _kept_as(request: TurnAsk) -> str | None:
    """Return the name under which a later attempt finds the answer, or None if it is not kept."""
    if request.front_end_call is not None:
        return None if request.front_end_call.is_state else request.front_end_call.id
    return request.park_as


def _messages_of(request: TurnAsk, question_id: UUID, notices: Notices) -> list[Part]:
    """Return the messages that ask: a form begins with its first field."""
    if request.fields:
        return [request.message, field_part(request.fields[0], 0, question_id, notices)]
    labels = [option.label for option in request.options]
    buttons = buttons_of(question_id, labels) or None
    return [request.message.model_copy(update={"buttons": buttons})]


def _kind_of(request: TurnAsk) -> QuestionKind:
    if request.kind is not None:
        return request.kind
    if request.call is not None or request.front_end_call is not None:
        return QuestionKind.CALL
    if request.fields:
        return QuestionKind.FORM
    return QuestionKind.CHOICE if request.options else QuestionKind.TEXT


def _problem_of(request: TurnAsk) -> str | None:
    kind = _kind_of(request)
    calls = [it for it in (request.call, request.front_end_call) if it is not None]
    if len(calls) != (kind is QuestionKind.CALL):
        return "call: a question of this kind has one call, and no other question has any"
    if calls and request.park_as is not None:
        return "park_as: a call is not parked"
    if bool(request.fields) != (kind is QuestionKind.FORM):
        return "fields: a form has fields, and no other question has any"
    if request.park_as is None and request.within_ms > LONGEST_QUESTION_MS:
        return "within_ms: a question of a running turn is open for 7 days at most"
    has_options = kind in {QuestionKind.CHOICE, QuestionKind.PERMISSION}
    if bool(request.options) != has_options:
        return "options: a choice and a permission have options, and no other question has any"
    return problem_of(request.fields)


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


def _say(
    said: Sequence[tuple[Part, UUID]], session: Session, turn: Turn, call: Call, effects: Effects
) -> None:
    speaking = Speaking(session, turn.agent, turn.source, call.at, turn.id, is_interim=True)
    for part, message_id in said:
        add_message(speaking, part, message_id, effects)
    count_answer(session)
