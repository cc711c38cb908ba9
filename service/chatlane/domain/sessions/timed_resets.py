"""Decides when a session that nobody writes in is announced to end, and when it ends. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.effects import Effects, Publication
from chatlane.domain.ids import derived_id
from chatlane.domain.policy import reset_reason, timed_end
from chatlane.domain.sessions.session_flags import end_session
from chatlane_schemas.codec import encode
from chatlane_schemas.events import EndReason, SessionEnding
from chatlane_schemas.subjects import ending as ending_subject
from chatlane_schemas.subjects import event as event_subject

if TYPE_CHECKING:
    from chatlane.domain.policy import NextReset, ResetPolicy
    from chatlane.domain.states import Session

# How soon a session is looked at again that is in work, or whose messages may still be read.
_SOON: Final = timedelta(minutes=1)
_VERY_SOON: Final = timedelta(seconds=5)
_STEP: Final = timedelta(milliseconds=1)


class Looked(NamedTuple):
    """When to look at an open session again (None: no rule ends it), and its announced end."""

    check_at: datetime | None
    ending_at: datetime | None


def look(
    session: Session,
    policy: ResetPolicy,
    *,
    now: datetime,
    committed_until: datetime | None,
    ending_at: datetime | None,
    has_waiting: bool,
    effects: Effects,
) -> Looked:
    """Announce the end of a session, end it, or let it be for now.

    It ends once: it is locked, and whoever ended it before is seen. It does not end while a
    message that was stored before the announced end may not have been decided yet.

    Args:
        now: Time of the database.
        committed_until: Everything stored before is decided; None if that is not known.
        ending_at: The end that was announced last.
        has_waiting: Whether messages wait for a turn in it.
    """
    due = timed_end(session, policy)
    if due is None or session.ended_at is not None or session.suspended_at is not None:
        return Looked(None, ending_at)
    kept_until = _kept_until(session, due, policy, now, has_waiting=has_waiting)
    if kept_until is not None:
        return Looked(kept_until, ending_at)
    warning = _warning(policy)
    if ending_at is None or ending_at < due.at:
        ending_at = max(due.at, now + warning)
        if warning > timedelta(0):
            _announce(session, due, ending_at, effects)
            return Looked(ending_at + _STEP, ending_at)
    if now <= ending_at:
        return Looked(ending_at + _STEP, ending_at)
    if committed_until is None or committed_until <= ending_at:
        return Looked(now + _VERY_SOON, ending_at)
    return Looked(_end(session, policy, now, effects), ending_at)


def _kept_until(
    session: Session, due: NextReset, policy: ResetPolicy, now: datetime, *, has_waiting: bool
) -> datetime | None:
    """Return when to look again at a session that is not to be announced yet."""
    if session.active_turn is not None or has_waiting:
        return now + _SOON
    held_until = session.held_until
    if held_until is not None and now < held_until and session.resume_marked_at is None:
        return held_until
    announced_from = due.at - _warning(policy)
    return announced_from if now < announced_from else None


def _end(session: Session, policy: ResetPolicy, now: datetime, effects: Effects) -> datetime | None:
    """End a session, or return when to look at it again."""
    # The same rule that decides when a message comes has the last word.
    reason = reset_reason(session, policy, now)
    if reason is None:
        return now + _SOON
    end_session(session, now, EndReason(reason), effects)
    return None


def _warning(policy: ResetPolicy) -> timedelta:
    """Return how long before its end a session is announced to end.

    Of a short silence half at most, or every message would be followed by an announcement.
    """
    return min(policy.warning, policy.idle / 2) if policy.resets_idle else policy.warning


def _announce(session: Session, due: NextReset, ending_at: datetime, effects: Effects) -> None:
    # To everybody who may hear of all sessions, and to the workers of the agent, who may not.
    told = (event_subject("session", "ending"), ending_subject(session.agent))
    for number, subject in enumerate(told):
        ending = _ending(session, due, ending_at, number)
        effects.publications.append(Publication(None, "EVENTS", subject, ending.id, encode(ending)))


def _ending(session: Session, due: NextReset, ending_at: datetime, number: int) -> SessionEnding:
    return SessionEnding(
        id=str(derived_id(ending_at, session.id.bytes, "session.ending", number)),
        at=ending_at,
        session_id=session.id,
        session_key=session.session_key,
        agent=session.agent,
        deadline=ending_at,
        reason=due.reason,
    )
