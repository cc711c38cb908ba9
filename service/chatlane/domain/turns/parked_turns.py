"""Park turns that wait for the answer to a question, and wake them for their next attempt.

A parked turn is ready and has an open question. It has no lease and no worker, and its workers are
notified when it wakes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from chatlane.domain.counts import CountName
from chatlane.domain.turns.turn_events import note_question_over
from chatlane_schemas.content.questions import QuestionEnd

if TYPE_CHECKING:
    from datetime import datetime

    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Session, Turn


def park(turn: Turn, span: timedelta, effects: Effects) -> None:
    """End the current attempt without counting it, and let its turn wait at most for `span`.

    No later request and no result of the attempt counts.
    """
    turn.state, turn.rest = "ready", "parked"
    turn.token = turn.claim_id = None
    turn.error = turn.waits_since = None
    turn.unbegun += 1
    turn.due_in = span
    effects.changed_turns.append(turn)
    effects.count((CountName.TURNS_PARKED, turn.agent))


def expire_question(turn: Turn, session: Session, at: datetime, effects: Effects) -> None:
    """Wake a turn whose question was not answered in time; the caller notifies its workers."""
    if turn.open_question is not None:
        note_question_over(
            turn, turn.open_question, session, at, effects, outcome=QuestionEnd.EXPIRED
        )
    turn.open_question = turn.rest = None
    note_woken(turn.agent, QuestionEnd.EXPIRED, effects)


def note_woken(agent: str, reason: QuestionEnd, effects: Effects) -> None:
    """Let the sweep notify the workers of a woken turn at once."""
    effects.due_within(timedelta(0))
    effects.count((CountName.TURNS_WOKEN, agent, reason))
