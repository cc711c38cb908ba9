"""The times of a session that a reset depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.policy import SessionClock

if TYPE_CHECKING:
    from chatlane.domain.states import Session


def clock_of(session: Session) -> SessionClock:
    """Return the times of a session that a reset depends on."""
    return SessionClock(
        last_activity_at=session.last_activity_at,
        served_boundary=session.served_boundary,
        started_at=session.started_at,
        is_held=session.active_turn is not None,
        held_until=session.held_until,
        suspended_at=session.suspended_at,
        resume_marked_at=session.resume_marked_at,
    )
