"""Set up a session that follows another one, and announce it to agent and chat. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.domain.ids import derived_id
from chatlane.domain.notices import NoticeId
from chatlane.domain.outbound_builder import Speaking
from chatlane_schemas.events import ResetReason
from chatlane_schemas.outbound import OutboundKind
from chatlane_schemas.results import Part

if TYPE_CHECKING:
    from chatlane.domain.effects import Effects
    from chatlane.domain.notices import Notices
    from chatlane.domain.policy import ResetPolicy
    from chatlane.domain.states import Session
    from chatlane_schemas.source import Source

_NOT_ANNOUNCED: Final = UUID(int=0)

_ALWAYS_TOLD: Final = {
    ResetReason.SUSPENDED: NoticeId.SESSION_SUSPENDED,
    ResetReason.RESUME_PENDING_EXPIRED: NoticeId.SESSION_INTERRUPTED,
}
_TOLD_WHERE_WANTED: Final = {
    ResetReason.IDLE: NoticeId.SESSION_IDLE,
    ResetReason.DAILY: NoticeId.SESSION_DAILY,
}

# Reasons for an end that no user requested: the session after it is given the reason.
_UNASKED: Final = {str(reason): reason for reason in (*_ALWAYS_TOLD, *_TOLD_WHERE_WANTED)}


def reason_after(previous: Session) -> ResetReason | None:
    """Return why a session follows one that ended before its first message came."""
    return None if previous.end_reason is None else _UNASKED.get(previous.end_reason)


def inherit_from(session: Session, previous: Session, reason: ResetReason | None) -> None:
    """Give a new session the start reason and the note that the session before left for it."""
    session.start_reason = reason
    session.opening_note = previous.carry_over
    if reason is not None or session.opening_note is not None:
        session.reset_had_activity = previous.answers > 0
        session.told_in = _NOT_ANNOUNCED
        session.has_new_flags = True


def announce_to_agent(session: Session, place: UUID) -> None:
    """Announce the start of a session in this first turn or routed message, if it is pending."""
    if session.told_in == _NOT_ANNOUNCED:
        session.told_in = place
        session.has_new_flags = True


def tell_first_turn(session: Session) -> None:
    """Let the next turn open a session although its transcript has rows that no worker has seen."""
    session.told_in = _NOT_ANNOUNCED
    session.has_new_flags = True


def is_told_in(session: Session, place: UUID, *, is_first: bool) -> bool:
    """Return whether this turn or routed message announces how the session started.

    Args:
        is_first: Whether the transcript starts here. This decides for sessions that an older
            release opened.
    """
    return is_first if session.told_in is None else session.told_in == place


def tell_chat(
    session: Session,
    policy: ResetPolicy,
    target: Source,
    *,
    is_wanted: bool,
    notices: Notices,
    effects: Effects,
) -> None:
    """Notify the chat once that a new conversation starts.

    The notice after a suspended or expired session is always sent. The notice after a timed end is
    sent only if the session had an answer and both the policy and the platform want it.

    Args:
        target: Where the message that opened the session came from.
        is_wanted: Whether the platform wants such notices.
        notices: The texts in the language of the platform.
    """
    reason = session.start_reason
    if reason is None:
        return
    notice = _ALWAYS_TOLD.get(reason)
    if notice is None and is_wanted and policy.notify and session.reset_had_activity:
        notice = _TOLD_WHERE_WANTED.get(reason)
    if notice is None:
        return
    at = session.started_at
    speaking = Speaking(session, session.agent, target, at, kind=OutboundKind.NOTICE)
    notice_id = derived_id(at, session.id.bytes, "reset notice")
    speaking.say(Part(text=notices.text(notice)), notice_id, effects)
