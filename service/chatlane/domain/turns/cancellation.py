"""Decides what becomes of a turn that is to end before it is answered. Pure, as `turns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chatlane.domain.counts import CountName
from chatlane.domain.effects import Control
from chatlane.domain.turns.lifecycle import void_turn
from chatlane_schemas.codec import encode
from chatlane_schemas.subjects import control as control_subject
from chatlane_schemas.turns import CancelReason, TurnControl

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

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
        void_turn(turn, session, has_waiting=has_waiting, effects=effects, reason=reason)
        effects.count((CountName.TURNS_CANCELLED, turn.agent, reason))
        return False
    if turn.cancel is None or _STRENGTH[reason] > _STRENGTH[turn.cancel]:
        turn.cancel = reason
        effects.changed_turns.append(turn)
        effects.count((CountName.TURNS_CANCELLED, turn.agent, reason))
    effects.controls.append(_cancelling(turn.id, turn.agent, turn.cancel, at))
    return True


def interrupting(turn_id: UUID, agent: str, at: datetime, effects: Effects) -> None:
    """Have the worker of a turn told that a newer message takes its place."""
    effects.count((CountName.TURNS_CANCELLED, agent, CancelReason.INTERRUPTED))
    effects.controls.append(_cancelling(turn_id, agent, CancelReason.INTERRUPTED, at))


def _cancelling(turn_id: UUID, agent: str, reason: CancelReason, at: datetime) -> Control:
    """Return what tells the worker of a turn to end it; said again, it means the same."""
    told = TurnControl(id=f"control:{turn_id}:{reason}", at=at, turn_id=turn_id, cancel=reason)
    return Control(control_subject(agent, turn_id), encode(told))


def steering(turn_id: UUID, agent: str, at: datetime) -> Control:
    """Return what tells the worker of a turn that there is something to take in."""
    told = TurnControl(id=f"control:{turn_id}:steer", at=at, turn_id=turn_id, steer=True)
    return Control(control_subject(agent, turn_id), encode(told))
