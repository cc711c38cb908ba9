"""Decide requests that suspend, mark or hold a session, or override its model."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.decisions.operations.request_context import refused
from chatlane.domain.effects import Effects
from chatlane.domain.sessions.session_flags import (
    leave_note,
    mark_interrupted,
    suspend_session,
    unmark_interrupted,
)
from chatlane.store.addressing import lanes
from chatlane.store.conversations import session_flags, timed_resets
from chatlane_schemas.session_api.sessions import ApiErrorCode

if TYPE_CHECKING:
    from chatlane.decisions.operations.request_context import Case, Outcome
    from chatlane_schemas.session_api.session_life import (
        SessionHold,
        SessionMark,
        SessionNote,
        SessionOverride,
        SessionRelease,
        SessionSuspend,
        SessionUnmark,
    )
    from chatlane_schemas.session_api.sessions import ApiError

_MOST_HOLDS: Final = 100


async def suspend(_request: SessionSuspend, case: Case) -> Outcome:
    """Suspend a session."""
    if case.session.ended_at is not None:
        return _has_ended()
    suspend_session(case.session, case.at)
    return await _flagged(case)


async def mark(request: SessionMark, case: Case) -> Outcome:
    """Mark a session as interrupted; a suspended session cannot be marked."""
    session = case.session
    if session.ended_at is not None:
        return _has_ended()
    if session.suspended_at is not None:
        return refused(ApiErrorCode.CONFLICT, "the session is suspended")
    mark_interrupted(session, case.at, request.reason)
    await timed_resets.look_soon(case.unit_of_work.connection, session.id)
    return await _flagged(case)


async def unmark(_request: SessionUnmark, case: Case) -> Outcome:
    """Remove the mark of an interruption."""
    if case.session.ended_at is not None:
        return _has_ended()
    unmark_interrupted(case.session)
    await timed_resets.look_soon(case.unit_of_work.connection, case.session.id)
    return await _flagged(case)


async def _flagged(case: Case) -> Outcome:
    if case.session.has_new_flags:
        await case.unit_of_work.write(Effects(), sessions_of=[case.session])
    return case.session.id


async def hold(request: SessionHold, case: Case) -> Outcome:
    """Set or renew a hold."""
    if case.session.ended_at is not None:
        return _has_ended()
    has_live_turn = await session_flags.hold(
        case.unit_of_work.connection,
        case.session.id,
        request.name,
        now=case.at,
        until=case.at + timedelta(seconds=request.lasts_s),
        most=_MOST_HOLDS,
    )
    if not has_live_turn:
        return refused(ApiErrorCode.CONFLICT, "too many holds of one session")
    return case.session.id


async def release(request: SessionRelease, case: Case) -> Outcome:
    """End a hold, even if the session has ended meanwhile."""
    connection, session_id = case.unit_of_work.connection, case.session.id
    await session_flags.release(connection, session_id, request.name, case.at)
    await timed_resets.look_soon(connection, session_id)
    return case.session.id


async def override(request: SessionOverride, case: Case) -> Outcome:
    """Replace the whole model override of a session."""
    if case.session.ended_at is not None:
        return _has_ended()
    chosen = request.override
    text = None if chosen is None else chosen.model_dump_json(exclude_none=True)
    await session_flags.override(case.unit_of_work.connection, case.session.id, text)
    return case.session.id


async def note(request: SessionNote, case: Case) -> Outcome:
    """Store a note for the next session, unless another session has followed this one."""
    session, connection = case.session, case.unit_of_work.connection
    if session.ended_at is not None and not await lanes.find_keys_of(connection, session.id):
        return refused(ApiErrorCode.STALE, "another session has followed this one")
    leave_note(session, request.note)
    return await _flagged(case)


def _has_ended() -> ApiError:
    return refused(ApiErrorCode.CONFLICT, "the session has ended")
