"""Lock the sessions of a request that changes one session, decide it, and build its reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from chatlane.domain.sessions.refusals import no_session, stale
from chatlane.requests.context import Case, Outcome, Shown
from chatlane.store.addressing import identities, lanes
from chatlane.store.conversations import lineage, sessions
from chatlane.store.conversations.session_views import find_view
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.session_changes import (
    SessionChange,
    SessionFork,
    SessionSwitch,
    SettingChange,
)
from chatlane_schemas.session_api.session_openings import SessionSubmit
from chatlane_schemas.session_api.sessions import ApiError, SessionReply

if TYPE_CHECKING:
    from uuid import UUID

    from chatlane.postgres.pool import Connection
    from chatlane.requests.context import Call

Decide: TypeAlias = Callable[[Any, Case], Awaitable[Outcome]]
"""Decides a request about a locked session; a refused request writes nothing."""


async def decide_session_change(decide: Decide, request: SessionChange, call: Call) -> SessionReply:
    """Decide a request about a session that it may see, and return the session."""
    case = await _find_case(request, call)
    if case is None:
        return await session_reply(call.connection, no_session())
    if await _is_outdated(call.connection, request, case.session.id):
        error = stale("the session has changed since that version; `session` shows what it is now")
        return await session_reply(call.connection, Shown(case.session.id, error=error))
    outcome = await decide(request, case)
    if not isinstance(outcome, ApiError):
        call.unit_of_work.touched[case.session.id] = case.session
    return await session_reply(call.connection, outcome)


async def session_reply(connection: Connection, outcome: Outcome) -> SessionReply:
    """Return the reply with the session to show, or with the refusal."""
    if isinstance(outcome, ApiError):
        shown = Shown(None, error=outcome)
    else:
        shown = outcome if isinstance(outcome, Shown) else Shown(outcome)
    view = None if shown.session_id is None else await find_view(connection, shown.session_id)
    return SessionReply(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        error=shown.error,
        session=view,
        message_id=shown.message_id,
        turn_id=shown.turn_id,
        dropped=shown.dropped,
        deleted=dict(shown.deleted),
    )


async def _is_outdated(connection: Connection, request: SessionChange, session_id: UUID) -> bool:
    """Return whether a locked session no longer has the version that the request expects."""
    if not isinstance(request, SettingChange) or request.expected_version is None:
        return False
    view = await find_view(connection, session_id)
    return view is None or view.version != request.expected_version


async def _find_case(request: SessionChange, call: Call) -> Case | None:
    """Lock the sessions of a request; return None if it may not see its session."""
    connection = call.connection
    owners = await identities.find_owners(connection, request.acting_for)
    subject = request.session_id
    key = request.session_key if isinstance(request, SessionSwitch | SessionFork) else None
    lane = None if key is None else await lanes.find_by_any_key(connection, key)
    if isinstance(request, SessionSwitch | SessionSubmit):
        tips = await lineage.find_tips(connection, [subject])
        subject = tips.get(subject, subject)
    wanted = {request.session_id, subject} | (set() if lane is None else {lane.session_id})
    locked = await sessions.lock(connection, wanted)
    session = locked.get(subject)
    if session is None:
        return None
    case = Case(call, session, lane, locked, owners)
    if not (case.is_visible(session) and case.is_visible(locked.get(request.session_id))):
        return None
    is_lane_visible = lane is None or owners is None or case.is_visible(locked.get(lane.session_id))
    return case if is_lane_visible else case._replace(lane=None)
