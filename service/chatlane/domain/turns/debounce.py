"""Decides how long a turn rests before anybody is told of it. Pure, as `turns`.

A burst of messages, or an album, is to be one turn; and what waits for its files is not to be
overtaken by what was written after it. So nobody is told of the turn before its time, which is in
the database: it comes whoever dies meanwhile.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.ids import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from chatlane.domain.states import Turn
    from chatlane.domain.turns.lifecycle import WaitingHead

NONE: Final = timedelta(0)
# A burst or an album that never ends is cut off here.
LONGEST_BURST: Final = timedelta(seconds=10)


def put_off(turn: Turn, span: timedelta) -> None:
    """Let a turn that a worker came for too early rest for so long."""
    turn.rest = "resting"
    turn.due_in = span


def prolong(turn: Turn, at: datetime, span: timedelta, cap: timedelta) -> None:
    """Let a turn that was opened in this very batch rest for another message of it.

    Args:
        at: When the message was stored; the turn is as old as the one that opened it.
        span: How long this message waits for others.
        cap: How long the turn may rest for its burst, from the first message on.
    """
    since = max(NONE, at - time_of(turn.id))
    turn.due_in = max(turn.due_in, min(since + span, cap))


def rest_of_line(heads: Sequence[WaitingHead], turn: Turn) -> timedelta:
    """Return how long a turn with this line is still to rest, when a worker claims it.

    What waits for its files is waited for where it is first. A burst is waited for once: a turn
    that has rested takes what there is.
    """
    if not heads:
        return NONE
    if heads[0].awaits_files and heads[0].ready_in > NONE:
        return heads[0].ready_in
    if turn.rest == "rested":
        return NONE
    soft = max((head.ready_in for head in heads if not head.awaits_files), default=NONE)
    return min(soft, LONGEST_BURST)
