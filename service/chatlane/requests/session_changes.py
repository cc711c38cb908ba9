"""Decide requests that change the settings, the title or the end of one session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError, to_json

from chatlane.decisions.operations.cancellation import stop_session
from chatlane.decisions.operations.request_context import Shown, refused
from chatlane.decisions.operations.switch_and_fork import policy_of
from chatlane.domain.effects import Effects
from chatlane.domain.sessions.session_flags import end_session, next_session, reopen_session
from chatlane.domain.states import Lane
from chatlane.store.addressing import lanes
from chatlane.store.conversations import lineage, session_changes
from chatlane_schemas.events import EndReason
from chatlane_schemas.session_api.session_changes import checked_config
from chatlane_schemas.session_api.sessions import ApiErrorCode
from chatlane_schemas.turns import CancelReason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pydantic import JsonValue

    from chatlane.decisions.operations.request_context import Case, Outcome
    from chatlane_schemas.session_api.session_changes import (
        SessionArchive,
        SessionEnd,
        SessionReopen,
        SessionReset,
        SessionTitle,
        SessionUpdate,
    )


async def update(request: SessionUpdate, case: Case) -> Outcome:
    """Set the working directory, the model and the configuration of a session."""
    connection = case.unit_of_work.connection
    chosen = request.config
    if request.config_patch is not None:
        current = await session_changes.find_config(connection, case.session.id)
        try:
            chosen = checked_config(merge_patch(current, request.config_patch))
        except PydanticCustomError as exc:
            return refused(
                ApiErrorCode.INVALID, f"config_patch: the result is refused: {exc.message()}"
            )
    config = None if chosen is None else to_json(chosen).decode()
    await session_changes.update_preferences(
        connection,
        case.session.id,
        cwd=request.cwd,
        model=request.model,
        config=config,
        clear=request.clear,
    )
    return case.session.id


async def set_title(request: SessionTitle, case: Case) -> Outcome:
    """Set the title of a session, which must be unique among the sessions of its owner."""
    connection = case.unit_of_work.connection
    if not await session_changes.set_title(connection, case.session, request.title):
        return refused(ApiErrorCode.CONFLICT, "another session of the owner has this title")
    return case.session.id


async def archive(request: SessionArchive, case: Case) -> UUID:
    """Archive a session, or restore it from the archive."""
    await session_changes.archive(
        case.unit_of_work.connection, case.session.id, case.at, archived=request.archived
    )
    return case.session.id


async def end(_request: SessionEnd, case: Case) -> UUID:
    """End a session; if it has ended before, keep its end."""
    if case.session.ended_at is None:
        effects = Effects()
        end_session(case.session, case.at, EndReason.REQUESTED, effects)
        await case.unit_of_work.write(effects, sessions_of=[case.session])
    return case.session.id


async def reopen(_request: SessionReopen, case: Case) -> Outcome:
    """Reopen an ended session, or resume a suspended one."""
    session, connection = case.session, case.unit_of_work.connection
    if session.ended_at is None and session.suspended_at is None:
        return session.id
    tips = await lineage.find_tips(connection, [session.id])
    if session.end_reason == EndReason.MERGED or tips[session.id] != session.id:
        return refused(ApiErrorCode.CONFLICT, "the session continues in another one")
    reopen_session(session, case.at, policy_of(case.catalog, session.session_key))
    await session_changes.reopen(connection, session)
    return session.id


async def reset(_request: SessionReset, case: Case) -> Outcome:
    """Stop and end a session, drop its waiting messages, and open the next session of its lanes."""
    session = case.session
    keys = await lanes.find_keys_of(case.unit_of_work.connection, session.id)
    if not keys:
        return refused(ApiErrorCode.STALE, "no lane leads to the session any more")
    effects = Effects()
    stopped = await stop_session(
        case.unit_of_work.connection, session, CancelReason.SESSION_ENDED, case.at, effects
    )
    if session.ended_at is None:
        end_session(session, case.at, EndReason.REQUESTED, effects)
    key = session.session_key if session.session_key in keys else min(keys)
    policy = policy_of(case.catalog, key)
    following = next_session(
        session, session_key=key, at=case.at, trigger=case.trigger, policy=policy, effects=effects
    )
    moved = [Lane(lane_key, following.id, bound_to=session.id) for lane_key in keys]
    await case.unit_of_work.write(effects, lanes_of=moved, sessions_of=[session, following])
    return Shown(following.id, dropped=stopped.dropped)


def merge_patch(target: JsonValue, patch: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the target with the patch applied; neither of them is changed.

    Args:
        target: The current value; anything but an object counts as an empty one.
        patch: Objects are merged key by key, null removes a key, everything else replaces.
    """
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge_patch(merged.get(key), value)
        else:
            merged[key] = value
    return merged
