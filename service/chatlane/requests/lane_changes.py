"""Decide requests that point lanes to another session: reset, switch and fork."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.decisions.operations.cancellation import stop_session
from chatlane.decisions.operations.switch_and_fork import Rebinding, policy_of
from chatlane.domain.effects import Effects
from chatlane.domain.sessions.refusals import conflict, no_lane, stale
from chatlane.domain.sessions.session_flags import end_session, next_session
from chatlane.domain.states import Lane
from chatlane.requests.context import Shown
from chatlane.store.addressing import identities, lanes
from chatlane_schemas.events import EndReason
from chatlane_schemas.session_api.sessions import ApiError
from chatlane_schemas.turns import CancelReason

if TYPE_CHECKING:
    from chatlane.requests.context import Case, Outcome
    from chatlane_schemas.session_api.session_changes import (
        SessionFork,
        SessionReset,
        SessionSwitch,
    )


async def reset(_request: SessionReset, case: Case) -> Outcome:
    """Stop and end a session, drop its waiting messages, and open the next session of its lanes."""
    session, call = case.session, case.call
    keys = await lanes.find_keys_of(case.connection, session.id)
    if not keys:
        return stale("no chat leads to this session, so there is no next one to open")
    effects = Effects()
    stopped = await stop_session(
        case.connection, session, CancelReason.SESSION_ENDED, call.at, effects
    )
    if session.ended_at is None:
        end_session(session, call.at, EndReason.REQUESTED, effects)
    key = session.session_key if session.session_key in keys else min(keys)
    following = next_session(
        session,
        session_key=key,
        at=call.at,
        trigger=call.trigger,
        policy=policy_of(call.catalog, key),
        effects=effects,
    )
    moved = [Lane(lane_key, following.id, bound_to=session.id) for lane_key in keys]
    await call.unit_of_work.write(effects, lanes_of=moved, sessions_of=[session, following])
    return Shown(following.id, dropped=stopped.dropped)


async def switch(request: SessionSwitch, case: Case) -> Outcome:
    """Point a lane to an existing session."""
    if case.lane is None:
        return no_lane()
    if case.lane.session_id != request.expected_session_id:
        return _moved()
    if await _is_of_another_person(case):
        return conflict("the session is another person's")
    rebinding = _rebinding(case)
    if refusal := await rebinding.switch(case.lane, case.session):
        return refusal
    await _write(case, rebinding)
    return case.session.id


async def _is_of_another_person(case: Case) -> bool:
    """Return whether the lane and the session belong to different people.

    The next message would point the lane away again.
    """
    led = None if case.lane is None else case.locked.get(case.lane.session_id)
    owner, target = None if led is None else led.owner, case.session.owner
    if owner is None or target is None:
        return False
    return not await identities.are_one_person(case.connection, owner, target)


async def fork(request: SessionFork, case: Case) -> Outcome:
    """Copy a session, and optionally point a lane to the copy."""
    if request.session_key is not None and case.lane is None:
        return no_lane()
    if case.lane is not None and case.lane.session_id != case.session.id:
        return _moved()
    rebinding = _rebinding(case)
    branch = await rebinding.fork(
        case.session, trigger=case.call.trigger, through_seq=request.through_seq, lane=case.lane
    )
    if isinstance(branch, ApiError):
        return branch
    await _write(case, rebinding)
    return branch.id


def _rebinding(case: Case) -> Rebinding:
    return Rebinding(case.connection, case.call.catalog, case.locked, Effects(), at=case.call.at)


async def _write(case: Case, rebinding: Rebinding) -> None:
    lanes_of = [] if case.lane is None else [case.lane]
    await case.call.unit_of_work.write(
        rebinding.effects, lanes_of=lanes_of, sessions_of=case.locked.values()
    )


def _moved() -> ApiError:
    return stale("the lane leads to another session now")
