"""What a session that follows another one begins with, and who is told of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.domain.ids import derived_id
from chatlane.domain.outbound_builder import Speaking
from chatlane_schemas.events import ResetReason
from chatlane_schemas.outbound import OutboundKind
from chatlane_schemas.results import Part

if TYPE_CHECKING:
    from chatlane.domain.effects import Effects
    from chatlane.domain.policy import ResetPolicy
    from chatlane.domain.states import Session
    from chatlane_schemas.source import Source

_UNTOLD: Final = UUID(int=0)

_ALWAYS_TOLD: Final = {
    ResetReason.SUSPENDED: "This is a new conversation: the last one could not continue.",
    ResetReason.RESUME_PENDING_EXPIRED: (
        "This is a new conversation: the last one was interrupted too long ago."
    ),
}
_TOLD_WHERE_WANTED: Final = {
    ResetReason.IDLE: "This is a new conversation: the last one ended after a quiet time.",
    ResetReason.DAILY: "This is a new conversation: a new one starts every day.",
}
NOTICES: Final = (*_ALWAYS_TOLD.values(), *_TOLD_WHERE_WANTED.values())

# Ends that nobody asked for: the session after them is told why there is one.
_UNASKED: Final = {str(reason): reason for reason in (*_ALWAYS_TOLD, *_TOLD_WHERE_WANTED)}


def reason_after(previous: Session) -> ResetReason | None:
    """Return why a session follows one that ended before its first message came."""
    return None if previous.end_reason is None else _UNASKED.get(previous.end_reason)


def follow(session: Session, previous: Session, reason: ResetReason | None) -> None:
    """Let a new session begin with what the one before left to it."""
    session.start_reason = reason
    session.opening_note = previous.carry_over
    if reason is not None or session.opening_note is not None:
        session.reset_had_activity = previous.answers > 0
        session.told_in = _UNTOLD
        session.has_new_flags = True


def tell_agent(session: Session, place: UUID) -> None:
    """Let a first turn or routed message tell how its session began, if there is anything."""
    if session.told_in == _UNTOLD:
        session.told_in = place
        session.has_new_flags = True


def tell_first_turn(session: Session) -> None:
    """Let the next turn open a session although its transcript has rows that no worker saw."""
    session.told_in = _UNTOLD
    session.has_new_flags = True


def is_told_in(session: Session, place: UUID, *, is_first: bool) -> bool:
    """Return whether this turn or routed message tells it.

    Args:
        is_first: Whether its transcript starts there, which is what tells it in sessions that
            an older release opened.
    """
    return is_first if session.told_in is None else session.told_in == place


def tell_chat(
    session: Session, policy: ResetPolicy, target: Source, *, is_wanted: bool, effects: Effects
) -> None:
    """Say once in the chat that a conversation starts afresh.

    What could not go on is told always; what ended by time only where something had been
    answered and the policy and the platform want it.

    Args:
        target: Where the message that opened the session came from.
        is_wanted: Whether the platform wants such notices.
    """
    reason = session.start_reason
    if reason is None:
        return
    text = _ALWAYS_TOLD.get(reason)
    if text is None and is_wanted and policy.notify and session.reset_had_activity:
        text = _TOLD_WHERE_WANTED.get(reason)
    if text is None:
        return
    at = session.started_at
    speaking = Speaking(session, session.agent, target, at, kind=OutboundKind.NOTICE)
    notice_id = derived_id(at, session.id.bytes, "reset notice")
    speaking.say(Part(text=text), notice_id, effects)
