"""Decide requests that change the settings, the title, the end or the flags of one session."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pydantic_core import PydanticCustomError, to_json

from chatlane.decisions.operations.switch_and_fork import policy_of
from chatlane.domain.effects import Effects
from chatlane.domain.sessions.refusals import conflict, invalid, is_read_only, stale
from chatlane.domain.sessions.session_flags import (
    end_session,
    leave_note,
    mark_interrupted,
    reopen_session,
    suspend_session,
    unmark_interrupted,
)
from chatlane.store.addressing import lanes
from chatlane.store.conversations import lineage, session_changes, timed_resets, titles
from chatlane_schemas.events import EndReason
from chatlane_schemas.session_api.session_changes import checked_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pydantic import JsonValue

    from chatlane.requests.context import Case, Outcome
    from chatlane_schemas.session_api.catalogue import (
        SessionLabel,
        SessionPin,
        SessionProtect,
        SessionTree,
    )
    from chatlane_schemas.session_api.session_changes import (
        SessionArchive,
        SessionEnd,
        SessionReopen,
        SessionTitle,
        SessionUpdate,
    )
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

_MAX_HOLDS: Final = 100


async def update(request: SessionUpdate, case: Case) -> Outcome:
    """Set the working directory, the model and the configuration of a session."""
    connection = case.connection
    chosen = request.config
    if request.config_patch is not None:
        current = await session_changes.find_config(connection, case.session.id)
        try:
            chosen = checked_config(merge_patch(current, request.config_patch))
        except PydanticCustomError as exc:
            return invalid(f"config_patch: the result is refused: {exc.message()}")
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
    connection, by_model = case.connection, bool(request.by_model)
    if by_model and await titles.is_of_person(connection, case.session.id):
        return conflict("a person gave the session its title")
    if not await titles.set_title(connection, case.session, request.title, by_model=by_model):
        return conflict("another session of the owner has this title, or one that looks like it")
    return case.session.id


async def archive(request: SessionArchive, case: Case) -> UUID:
    """Archive a session, or restore it from the archive."""
    await session_changes.archive(
        case.connection, case.session.id, case.call.at, archived=request.archived
    )
    return case.session.id


async def pin(request: SessionPin, case: Case) -> UUID:
    """Pin a session, or unpin it."""
    await session_changes.pin(case.connection, case.session.id, case.call.at, pinned=request.pinned)
    return case.session.id


async def label(request: SessionLabel, case: Case) -> UUID:
    """Replace the labels of a session."""
    await session_changes.label(case.connection, case.session.id, request.labels)
    return case.session.id


async def protect(request: SessionProtect, case: Case) -> Outcome:
    """Make an ended session read only, or take that back."""
    if case.session.ended_at is None:
        return conflict("the session has not ended")
    await session_changes.protect(case.connection, case.session.id, read_only=request.read_only)
    return case.session.id


async def note_worktree(request: SessionTree, case: Case) -> UUID:
    """Note the working copy that was made for a session, or forget it."""
    tree = request.worktree
    noted = None if tree is None else tree.model_dump_json(exclude_none=True)
    await session_changes.note_worktree(case.connection, case.session.id, noted)
    return case.session.id


async def end(_request: SessionEnd, case: Case) -> UUID:
    """End a session; if it has ended before, keep its end."""
    if case.session.ended_at is None:
        effects = Effects()
        end_session(case.session, case.call.at, EndReason.REQUESTED, effects)
        await case.call.unit_of_work.write(effects, sessions_of=[case.session])
    return case.session.id


async def reopen(_request: SessionReopen, case: Case) -> Outcome:
    """Reopen an ended session, or resume a suspended one."""
    session, connection = case.session, case.connection
    if session.ended_at is None and session.suspended_at is None:
        return session.id
    if session.read_only:
        return is_read_only()
    tips = await lineage.find_tips(connection, [session.id])
    if session.end_reason == EndReason.MERGED or tips[session.id] != session.id:
        return conflict("the session continues in another one")
    reopen_session(session, case.call.at, policy_of(case.call.catalog, session.session_key))
    await session_changes.reopen(connection, session)
    return session.id


async def suspend(_request: SessionSuspend, case: Case) -> Outcome:
    """Suspend a session."""
    if case.session.ended_at is not None:
        return _has_ended()
    suspend_session(case.session, case.call.at)
    return await _flagged(case)


async def mark(request: SessionMark, case: Case) -> Outcome:
    """Mark a session as interrupted; a suspended session cannot be marked."""
    session = case.session
    if session.ended_at is not None:
        return _has_ended()
    if session.suspended_at is not None:
        return conflict("the session is suspended")
    mark_interrupted(session, case.call.at, request.reason)
    await timed_resets.look_soon(case.connection, session.id)
    return await _flagged(case)


async def unmark(_request: SessionUnmark, case: Case) -> Outcome:
    """Remove the mark of an interruption."""
    if case.session.ended_at is not None:
        return _has_ended()
    unmark_interrupted(case.session)
    await timed_resets.look_soon(case.connection, case.session.id)
    return await _flagged(case)


async def _flagged(case: Case) -> Outcome:
    if case.session.has_new_flags:
        await case.call.unit_of_work.write(Effects(), sessions_of=[case.session])
    return case.session.id


async def hold(request: SessionHold, case: Case) -> Outcome:
    """Set or renew a hold."""
    if case.session.ended_at is not None:
        return _has_ended()
    has_live_turn = await session_changes.hold(
        case.connection,
        case.session.id,
        request.name,
        now=case.call.at,
        until=case.call.at + timedelta(seconds=request.lasts_s),
        most=_MAX_HOLDS,
    )
    if not has_live_turn:
        return conflict("too many holds of one session")
    return case.session.id


async def release(request: SessionRelease, case: Case) -> Outcome:
    """End a hold, even if the session has ended meanwhile."""
    connection, session_id = case.connection, case.session.id
    await session_changes.release(connection, session_id, request.name, case.call.at)
    await timed_resets.look_soon(connection, session_id)
    return case.session.id


async def override(request: SessionOverride, case: Case) -> Outcome:
    """Replace the whole model override of a session."""
    if case.session.ended_at is not None:
        return _has_ended()
    chosen = request.override
    text = None if chosen is None else chosen.model_dump_json(exclude_none=True)
    await session_changes.override(case.connection, case.session.id, text)
    return case.session.id


async def note(request: SessionNote, case: Case) -> Outcome:
    """Store a note for the next session, unless another session has followed this one."""
    session, connection = case.session, case.connection
    if session.ended_at is not None and not await lanes.find_keys_of(connection, session.id):
        return stale("another session has followed this one")
    leave_note(session, request.note)
    return await _flagged(case)


def _has_ended() -> ApiError:
    return conflict("the session has ended")


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
