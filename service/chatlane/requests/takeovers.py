"""Decide requests by which a person of the team talks to a chat in place of its agent."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.decisions.operations.cancellation import live_turn, stop_session
from chatlane.decisions.result_applier import find_present
from chatlane.domain.effects import Effects, MessageRow, without_nulls
from chatlane.domain.ids import derived_id
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.sessions.refusals import conflict, invalid, is_read_only, no_session
from chatlane.domain.sessions.session_flags import staff_pause_of
from chatlane.domain.turns.claims import defer
from chatlane.domain.turns.turn_results import shown_details
from chatlane.requests.context import Shown
from chatlane.requests.outbox import says_nothing
from chatlane.requests.session_lookup import session_reply
from chatlane.store.conversations import session_changes, sessions, timed_resets
from chatlane.store.history import messages
from chatlane_schemas.results import Role
from chatlane_schemas.turns import CancelReason

if TYPE_CHECKING:
    from uuid import UUID

    from chatlane.domain.states import Session
    from chatlane.requests.context import Call, Outcome
    from chatlane_schemas.session_api.session_life import (
        SessionHandback,
        SessionSpeak,
        SessionTakeover,
    )
    from chatlane_schemas.session_api.sessions import ApiError, SessionReply
    from chatlane_schemas.source import Source

_HOLD: Final = "takeover"
_MAX_HOLDS: Final = 100
# Far more rows than an agent writes between two messages of people.
_ROWS_LOOKED_AT: Final = 1000


async def take_over(request: SessionTakeover, call: Call) -> SessionReply:
    """Let the agent of a session wait; a turn that runs goes on, and a parked one stays so."""
    session = await _lock(request.session_id, call)
    refused = _refusal(session)
    if session is None or refused is not None:
        return await _reply(call, None, refused)
    lasts = timedelta(seconds=request.lasts_s)
    is_held = await session_changes.hold(
        call.connection,
        session.id,
        _HOLD,
        now=call.at,
        until=call.at + lasts,
        most=_MAX_HOLDS,
    )
    if not is_held:
        return await _reply(call, None, conflict("too many holds of one session"))
    session.staff_until = call.at + lasts
    await _set_due(session, lasts, call)
    return await _reply(call, session, session.id)


async def hand_back(request: SessionHandback, call: Call) -> SessionReply:
    """End a takeover; without one, nothing changes."""
    session = await _lock(request.session_id, call)
    if session is None:
        return await _reply(call, None, no_session())
    await session_changes.release(call.connection, session.id, _HOLD, call.at)
    await timed_resets.look_soon(call.connection, session.id)
    if staff_pause_of(session, call.at) is not None:
        session.staff_until = None
        await _set_due(session, timedelta(0), call)
    return await _reply(call, session, session.id)


async def speak(request: SessionSpeak, call: Call) -> SessionReply:
    """Send a message of a person of the team; messages that waited are not answered."""
    session = await _lock(request.session_id, call)
    refused = _refusal(session)
    if session is None or refused is not None:
        return await _reply(call, None, refused)
    if says_nothing(request.message):
        return await _reply(call, None, invalid("message: says nothing"))
    if staff_pause_of(session, call.at) is None:
        return await _reply(call, None, conflict("take the session over first"))
    effects = Effects()
    turn = await live_turn(call.connection, session)
    if turn is None or not (turn.state == "claimed" or turn.is_parked):
        await stop_session(call.connection, session, CancelReason.STOPPED, call.at, effects)
    message_id = derived_id(call.at, call.trigger, "spoken")
    effects.messages.append(
        MessageRow(
            session_id=session.id,
            seq=session.take_seq(),
            role=Role.ASSISTANT,
            content=request.message.text,
            created_at=call.at,
            id=message_id,
            author=request.author,
            details=without_nulls(shown_details(request.message)),
        )
    )
    target = await _target(session, call)
    Speaking(session, session.agent, target, call.at).say(request.message, message_id, effects)
    await call.unit_of_work.write(effects, sessions_of=[session])
    return await _reply(call, session, Shown(session.id, message_id=message_id))


async def _set_due(session: Session, span: timedelta, call: Call) -> None:
    """Notify the workers of an unclaimed turn after a span, and write the session."""
    effects = Effects()
    turn = await live_turn(call.connection, session)
    if turn is not None and turn.state == "ready" and turn.cancel is None and not turn.is_parked:
        defer(turn, span)
        effects.changed_turns.append(turn)
        effects.due_within(span)
    await call.unit_of_work.write(effects, sessions_of=[session])


async def _lock(session_id: UUID, call: Call) -> Session | None:
    return (await sessions.lock(call.connection, [session_id])).get(session_id)


def _refusal(session: Session | None) -> ApiError | None:
    if session is None:
        return no_session()
    if session.read_only:
        return is_read_only()
    return None if session.ended_at is None else conflict("the session has ended")


async def _target(session: Session, call: Call) -> Source | None:
    """Return the present address of the chat; None for a session without one."""
    stored = await messages.find_last_source(call.connection, session.id, _ROWS_LOOKED_AT)
    if stored is None:
        return None
    [present] = await find_present(call.connection, [(session.owner, stored)], call.at)
    if present is None or call.catalog.find_account(present.platform, present.account) is None:
        return None
    return present.model_copy(update={"message_id": None})


async def _reply(call: Call, session: Session | None, outcome: Outcome | None) -> SessionReply:
    if session is not None:
        call.unit_of_work.touched[session.id] = session
    return await session_reply(call.connection, no_session() if outcome is None else outcome)
