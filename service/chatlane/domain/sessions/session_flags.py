"""Start, end, suspend and mark sessions, apart from their messages. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from chatlane.domain.addressing.keys import parse_session_key
from chatlane.domain.addressing.owners import is_shared_lane
from chatlane.domain.addressing.rooms import room_of
from chatlane.domain.counts import CountName
from chatlane.domain.fast_json import session_started
from chatlane.domain.ids import derived_id
from chatlane.domain.policy import served_boundary_at
from chatlane.domain.sessions.session_handoff import inherit_from
from chatlane.domain.sessions.transcripts import BRANCH, COMPRESSION
from chatlane.domain.states import Session
from chatlane_schemas.codec import encode
from chatlane_schemas.events import EndReason, ResetReason, SessionEnded
from chatlane_schemas.session_api.session_state import ModelOverride, ResumeMark

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.effects import Effects
    from chatlane.domain.policy import ResetPolicy


def end_session(session: Session, at: datetime, reason: EndReason, effects: Effects) -> None:
    """End a session; its running turn and waiting messages are still answered, unless stopped."""
    at = _not_before(at, session)
    session.ended_at = at
    session.end_reason = reason
    ended = SessionEnded(
        id=str(derived_id(at, session.id.bytes, "session.ended")),
        at=at,
        session_id=session.id,
        session_key=session.session_key,
        agent=session.agent,
        reason=reason,
    )
    effects.publish_event("ended", ended.id, encode(ended))


def next_session(
    previous: Session,
    *,
    session_key: str,
    at: datetime,
    trigger: bytes,
    policy: ResetPolicy,
    effects: Effects,
) -> Session:
    """Return the session that follows another one on a lane.

    Args:
        previous: The session that the lane pointed to; has ended.
    """
    at = _not_before(at, previous)
    session_id = derived_id(at, trigger, "session")
    session = _new(session_id, session_key, previous.agent, at, policy, previous.owner)
    inherit_from(session, previous, ResetReason.REQUESTED)
    announce_start(session, previous, ResetReason.REQUESTED, effects)
    return session


def opened_session(
    session_id: UUID,
    *,
    session_key: str,
    agent: str,
    at: datetime,
    policy: ResetPolicy,
    owner: str | None,
    effects: Effects,
) -> Session:
    """Return a session that was requested explicitly and follows no other one.

    Args:
        session_key: Key of its lane, or a unique key if no lane points to it.
        owner: Its owner, if known before the first message.
    """
    session = _new(session_id, session_key, agent, at, policy, owner)
    announce_start(session, None, None, effects)
    return session


def branch_of(
    parent: Session,
    *,
    session_key: str,
    through_seq: int,
    at: datetime,
    trigger: bytes,
    policy: ResetPolicy,
    effects: Effects,
) -> Session:
    """Return a session that begins as a copy of another one.

    Args:
        parent: Keeps all its rows; the caller decides whether it ends.
        session_key: Key of the lane it is for. If that is the lane of one person and the parent
            is shared, the parent's key is used, for the copy has messages of other people.
        through_seq: Place of the last row that it copies from its parent.
    """
    at = _not_before(at, parent)
    if is_shared_lane(parent.session_key) and not is_shared_lane(session_key):
        session_key = parent.session_key
    session_id = derived_id(at, trigger, "session")
    session = _new(session_id, session_key, parent.agent, at, policy, parent.owner)
    session.parent_id, session.link_kind = parent.id, BRANCH
    if session.room != parent.room:
        # It has rows of another place.
        session.room = None
    session.last_activity_at = at
    session.next_seq = through_seq + 1
    announce_start(session, parent, ResetReason.REQUESTED, effects)
    return session


def share_session(session: Session, lane_key: str) -> None:
    """Make a session of one person shared, if several people may write on a lane.

    The session gets the key of the lane, which names no person, so every reader treats it as a
    session of that lane: rows are found by sender and time, and commands by the key.

    Args:
        session: Receives a message; locked.
        lane_key: Key of the lane on which the message came.
    """
    if not is_shared_lane(lane_key):
        return
    session.owner = None
    if not is_shared_lane(session.session_key):
        session.session_key, session.has_new_key = lane_key, True


def _new(  # noqa: PLR0917 - the fields in which new sessions differ
    session_id: UUID, key: str, agent: str, at: datetime, policy: ResetPolicy, owner: str | None
) -> Session:
    return Session(
        id=session_id,
        session_key=key,
        agent=agent,
        platform=parse_session_key(key).platform,
        started_at=at,
        served_boundary=served_boundary_at(at, policy),
        owner=owner,
        room=room_of(key) if owner is None else None,
        is_new=True,
    )


def session_behind(parent: Session, at: datetime, trigger: bytes, effects: Effects) -> Session:
    """Return the session in which a conversation continues after a summary.

    For its people the conversation is the same: clocks, flags and owner are those of the parent.
    Only what is counted per session restarts.

    Args:
        parent: The summarized session; has ended.
    """
    child = replace(
        parent,
        id=derived_id(at, trigger, "session"),
        started_at=max(at, parent.started_at),
        start_reason=None,
        parent_id=parent.id,
        link_kind=COMPRESSION,
        ended_at=None,
        end_reason=None,
        active_turn=None,
        next_seq=1,
        next_arrival=1,
        next_out_seq=1,
        is_new=True,
        # The child has to store all flags: the database holds them for the parent only.
        has_new_flags=True,
    )
    announce_start(child, parent, None, effects, kind=COMPRESSION)
    return child


def announce_start(
    session: Session,
    previous: Session | None,
    reason: ResetReason | None,
    effects: Effects,
    *,
    source: str | None = None,
    kind: Literal["compression"] | None = None,
) -> None:
    """Publish that a session has started, and count it.

    Args:
        source: `Source` of the message that opened it, as JSON text.
        kind: Label of the count, if it is not the reason.
    """
    started_id = str(derived_id(session.started_at, session.id.bytes, "session.started"))
    previous_id = None if previous is None else previous.id
    started = session_started(started_id, session, source, reason, previous_id)
    effects.publish_event("started", started_id, started)
    effects.count((CountName.SESSIONS_STARTED, session.agent, kind or reason or "new"))


def reopen_session(session: Session, at: datetime, policy: ResetPolicy) -> None:
    """Undo the end or the suspension of a session.

    The request counts as activity of the user. Otherwise the policy would end the session again
    with their next message.
    """
    at = _not_before(at, session)
    session.ended_at = None
    session.end_reason = None
    session.last_activity_at = at
    session.served_boundary = served_boundary_at(at, policy)
    session.suspended_at = None
    session.resume_marked_at = None
    session.resume_reason = None
    session.interruptions = 0


def suspend_session(session: Session, at: datetime) -> None:
    """Suspend a session; a second suspension changes nothing."""
    if session.suspended_at is None:
        session.suspended_at = at
        session.has_new_flags = True


def mark_interrupted(session: Session, at: datetime, reason: str) -> None:
    """Mark a session as interrupted; the newest mark wins."""
    session.resume_marked_at = at
    session.resume_reason = reason
    session.has_new_flags = True


def unmark_interrupted(session: Session) -> None:
    """Remove the interruption mark, if there is one."""
    if session.resume_marked_at is not None:
        session.resume_marked_at = None
        session.resume_reason = None
        session.has_new_flags = True


def count_answer(session: Session) -> None:
    """Record a complete result: it clears the interruption and the opening note of the session."""
    session.answers += 1
    unmark_interrupted(session)
    if session.interruptions:
        session.interruptions = 0
        session.has_new_flags = True
    if session.opening_note is not None:
        session.opening_note = None
        session.has_new_flags = True


def count_interruption(session: Session) -> None:
    """Count an attempt that was lost with its worker."""
    session.interruptions += 1
    session.has_new_flags = True


def leave_note(session: Session, note: str | None) -> None:
    """Keep a note for the session that will follow; `""` removes it."""
    if note is not None:
        session.carry_over = note or None
        session.has_new_flags = True


def model_override_of(session: Session) -> ModelOverride | None:
    """Return the model that is set for a session, or None if its agent chooses."""
    if session.model_override is None:
        return None
    return ModelOverride.model_validate_json(session.model_override)


def staff_pause_of(session: Session, at: datetime) -> datetime | None:
    """Return until when the agent leaves the chat to our people; None if they did not write."""
    until = session.staff_until
    return until if until is not None and until > at else None


def resume_mark_of(session: Session) -> ResumeMark | None:
    """Return the interruption mark that the agent of a session gets, if there is one."""
    if session.resume_marked_at is None or session.resume_reason is None:
        return None
    return ResumeMark(reason=session.resume_reason, marked_at=session.resume_marked_at)


def _not_before(at: datetime, session: Session) -> datetime:
    return max(at, session.started_at, session.last_activity_at or session.started_at)
