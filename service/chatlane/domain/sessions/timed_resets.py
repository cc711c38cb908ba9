"""Decide when an inactive session is announced to end, and when it ends. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.effects import Effects, Publication
from chatlane.domain.ids import derived_id
from chatlane.domain.policy import reset_reason, timed_end
from chatlane.domain.sessions.session_flags import end_session
from chatlane_schemas.codec import encode
from chatlane_schemas.events import EndReason, SessionEnding
from chatlane_schemas.topology.subjects import ending as ending_subject
from chatlane_schemas.topology.subjects import event as event_subject

if TYPE_CHECKING:
    from chatlane.domain.policy import NextReset, ResetPolicy
    from chatlane.domain.states import Session

# When to check a busy session again, and one whose last messages may not have been read yet.
_SOON: Final = timedelta(minutes=1)
_VERY_SOON: Final = timedelta(seconds=5)
_STEP: Final = timedelta(milliseconds=1)


class ResetCheck(NamedTuple):
    """When to check an open session again (None: no rule ends it), and its announced end."""

    check_at: datetime | None
    ending_at: datetime | None


def evaluate(
    session: Session,
    policy: ResetPolicy,
    *,
    now: datetime,
    committed_until: datetime | None,
    ending_at: datetime | None,
    has_waiting: bool,
    effects: Effects,
) -> ResetCheck:
    """Announce the end of a session, end it, or leave it open for now.

    A session ends once: the caller holds its lock, and an earlier end is visible. It does not end
    while a message that was stored before the announced end may still be undecided.

    Args:
        now: Time of the database.
        committed_until: Everything stored before is decided; None if that is not known.
        ending_at: The end that was announced last.
        has_waiting: Whether messages wait for a turn in it.
    """
    due = timed_end(session, policy)
    if due is None or session.ended_at is not None or session.suspended_at is not None:
        return ResetCheck(None, ending_at)
    kept_until = _kept_until(session, due, policy, now, has_waiting=has_waiting)
    if kept_until is not None:
        return ResetCheck(kept_until, ending_at)
    warning = _warning(policy)
    if ending_at is None or ending_at < due.at:
        ending_at = max(due.at, now + warning)
        if warning > timedelta(0):
            _announce(session, due, ending_at, effects)
            return ResetCheck(ending_at + _STEP, ending_at)
    if now <= ending_at:
        return ResetCheck(ending_at + _STEP, ending_at)
    if committed_until is None or committed_until <= ending_at:
        return ResetCheck(now + _VERY_SOON, ending_at)
    return ResetCheck(_end(session, policy, now, effects), ending_at)


def _kept_until(
    session: Session, due: NextReset, policy: ResetPolicy, now: datetime, *, has_waiting: bool
) -> datetime | None:
    """Return when to check a session again whose end is not to be announced yet."""
    if session.active_turn is not None or has_waiting:
        return now + _SOON
    held_until = session.held_until
    if held_until is not None and now < held_until and session.resume_marked_at is None:
        return held_until
    announced_from = due.at - _warning(policy)
    return announced_from if now < announced_from else None


def _end(session: Session, policy: ResetPolicy, now: datetime, effects: Effects) -> datetime | None:
    # The rule that applies when a message comes has the last word here as well.
    reason = reset_reason(session, policy, now)
    if reason is None:
        return now + _SOON
    end_session(session, now, EndReason(reason), effects)
    return None


def _warning(policy: ResetPolicy) -> timedelta:
    """Return how long before its end a session is announced to end.

    At most half of the idle time. Otherwise an announcement would follow every message.
    """
    return min(policy.warning, policy.idle / 2) if policy.resets_idle else policy.warning


def _announce(session: Session, due: NextReset, ending_at: datetime, effects: Effects) -> None:
    # One subject for readers of all sessions, one for the agent's workers, which may not read it.
    subjects = (event_subject("session", "ending"), ending_subject(session.agent))
    for number, subject in enumerate(subjects):
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
