"""Decides what becomes of a turn that is to end before it is answered. Pure, as `turns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chatlane.domain.effects import Control
from chatlane.domain.turns import void_turn
from chatlane_schemas.codec import encode
from chatlane_schemas.subjects import control as control_subject
from chatlane_schemas.turns import CancelReason, TurnControl

if TYPE_CHECKING:
    from datetime import datetime

    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Session, Turn

_STRENGTH: Final = {reason: place for place, reason in enumerate(CancelReason)}


def stop_turn(
    turn: Turn,
    session: Session,
    reason: CancelReason,
    at: datetime,
    *,
    has_waiting: bool,
    effects: Effects,
) -> bool:
    """Return whether a worker has the turn, and ends it now; else it is over at once.

    A worker that has it confirms with its result, and until then, or to the end of its lease,
    the session stays busy: never two at once. A turn whose lease ended, or that nobody has
    claimed, is in nobody's hands.

    Args:
        turn: Live; of the session.
        at: When it was decided.
        has_waiting: Whether something waits that the session goes on with.
    """
    if turn.state != "claimed":
        void_turn(turn, session, has_waiting=has_waiting, effects=effects)
        effects.count(("turns_cancelled", turn.agent, reason))
        return False
    if turn.cancel is None or _STRENGTH[reason] > _STRENGTH[turn.cancel]:
        turn.cancel = reason
        effects.changed_turns.append(turn)
        effects.count(("turns_cancelled", turn.agent, reason))
    effects.controls.append(cancelling(turn, turn.cancel, at))
    return True


def cancelling(turn: Turn, reason: CancelReason, at: datetime) -> Control:
    """Return what tells the worker of a turn to end it; said again, it means the same."""
    told = TurnControl(id=f"control:{turn.id}:{reason}", at=at, turn_id=turn.id, cancel=reason)
    return Control(control_subject(turn.agent, turn.id), encode(told))
