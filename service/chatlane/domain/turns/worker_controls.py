"""Stop turns, and build the control messages to the workers of running turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chatlane.domain.counts import CountName
from chatlane.domain.effects import Control, Effects
from chatlane.domain.turns.lifecycle import void_turn
from chatlane.domain.turns.turn_events import note_question_over, withdraw_question
from chatlane_schemas.codec import encode
from chatlane_schemas.content.questions import QuestionEnd
from chatlane_schemas.topology.subjects import control as control_subject
from chatlane_schemas.turns import CancelReason, TurnControl

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.states import AskedQuestion, Session, Turn
    from chatlane.domain.turns.turn_events import TurnPointer

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
    """Cancel a turn, and return whether its worker still has to confirm that.

    A worker that holds the turn confirms with its result. Until then, or until its lease ends,
    the session stays busy, so that two turns of it never run at once. A turn that is unclaimed,
    or whose lease ended, is void at once.

    Args:
        has_waiting: Whether messages wait with which the session continues.
    """
    if turn.state != "claimed":
        void_turn(turn, session, has_waiting=has_waiting, effects=effects, reason=reason)
        effects.count((CountName.TURNS_CANCELLED, turn.agent, reason))
        return False
    if turn.cancel is None or _STRENGTH[reason] > _STRENGTH[turn.cancel]:
        turn.cancel = reason
        effects.changed_turns.append(turn)
        effects.count((CountName.TURNS_CANCELLED, turn.agent, reason))
    withdraw_question(turn, session, at, effects)
    effects.controls.append(_cancelling(turn.id, turn.agent, turn.cancel, at))
    return True


def interrupting(
    turn: TurnPointer,
    asked: AskedQuestion | None,
    session: Session,
    at: datetime,
    effects: Effects,
) -> None:
    """Send the worker of a turn the control message that a newer message replaces the turn."""
    effects.count((CountName.TURNS_CANCELLED, turn.agent, CancelReason.INTERRUPTED))
    if asked is not None:
        note_question_over(turn, asked, session, at, effects, outcome=QuestionEnd.WITHDRAWN)
    effects.controls.append(_cancelling(turn.id, turn.agent, CancelReason.INTERRUPTED, at))


def _cancelling(turn_id: UUID, agent: str, reason: CancelReason, at: datetime) -> Control:
    notice = TurnControl(id=f"control:{turn_id}:{reason}", at=at, turn_id=turn_id, cancel=reason)
    return Control(control_subject(agent, turn_id), encode(notice))


def answered(turn_id: UUID, agent: str, at: datetime) -> Control:
    """Build the control message that a question of the running turn has its answer."""
    notice = TurnControl(id=f"control:{turn_id}:answered", at=at, turn_id=turn_id, answered=True)
    return Control(control_subject(agent, turn_id), encode(notice))


def steering(turn_id: UUID, agent: str, at: datetime) -> Control:
    """Build the control message that input for the running turn is available."""
    notice = TurnControl(id=f"control:{turn_id}:steer", at=at, turn_id=turn_id, steer=True)
    return Control(control_subject(agent, turn_id), encode(notice))
