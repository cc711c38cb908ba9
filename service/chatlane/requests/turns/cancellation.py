"""Decide requests that stop a session or one of its turns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.decisions.operations.cancellation import Stopped, live_turn, stop_session
from chatlane.domain.effects import Effects
from chatlane.domain.sessions.refusals import not_found
from chatlane.domain.turns.worker_controls import stop_turn
from chatlane.store import pending_messages, turns
from chatlane.store.addressing import identities
from chatlane.store.conversations import sessions
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.turns import CancelReason, StopReply, TurnCancel

if TYPE_CHECKING:
    from chatlane.domain.states import Session
    from chatlane.requests.context import Call
    from chatlane_schemas.session_api.session_changes import SessionStop


async def stop(request: SessionStop | TurnCancel, call: Call) -> StopReply:
    """Stop the session or the turn of a request."""
    session = await _lock(request, call)
    if session is None:
        error = not_found("there is no such session or turn")
        return StopReply(id=new_envelope_id(), at=datetime.now(UTC), error=error)
    effects = Effects()
    if isinstance(request, TurnCancel):
        stopped = await _cancel(request, session, call, effects)
    else:
        stopped = await stop_session(
            call.connection, session, CancelReason.STOPPED, call.at, effects
        )
    await call.unit_of_work.write(effects, sessions_of=[session])
    return StopReply(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=session.id,
        turn_id=stopped.turn_id,
        was_running=stopped.was_running,
        dropped=stopped.dropped,
    )


async def _lock(request: SessionStop | TurnCancel, call: Call) -> Session | None:
    """Lock and return the session of a request, if the person it acts for may see it."""
    if isinstance(request, TurnCancel):
        found = await turns.find_sessions(call.connection, [request.turn_id])
        session_id = found.get(request.turn_id)
    else:
        session_id = request.session_id
    if session_id is None:
        return None
    owners = await identities.find_owners(call.connection, request.acting_for)
    session = (await sessions.lock(call.connection, [session_id])).get(session_id)
    return session if session is None or owners is None or session.owner in owners else None


async def _cancel(request: TurnCancel, session: Session, call: Call, effects: Effects) -> Stopped:
    """End one turn; an unclaimed turn ends together with its pending messages."""
    connection, reason = call.connection, CancelReason.STOPPED
    turn = await live_turn(connection, session)
    if turn is None or turn.id != request.turn_id:
        return Stopped()
    if turn.is_unclaimed:
        return await stop_session(connection, session, reason, call.at, effects)
    has_waiting = bool(await pending_messages.sessions_with_waiting(connection, [session.id]))
    was_running = stop_turn(
        turn, session, reason, call.at, has_waiting=has_waiting, effects=effects
    )
    return Stopped(turn.id, was_running)
