"""Decide how long a turn waits before workers are notified of it. Pure, as `lifecycle`.

A burst of messages, or an album, becomes one turn, and a message that waits for its files is not
overtaken by later messages. So workers hear of the turn at its due time and not before. The due
time is stored in the database and survives a crash of any process.
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
# Limit for a burst or an album that never ends.
LONGEST_BURST: Final = timedelta(seconds=10)


def defer(turn: Turn, span: timedelta) -> None:
    """Delay a turn that a worker claimed too early."""
    turn.rest = "resting"
    turn.due_in = span


def extend(turn: Turn, at: datetime, span: timedelta, cap: timedelta) -> None:
    """Delay a turn that this batch opened for another message of the batch.

    Args:
        at: When the message was stored; the age of the turn is that of its first message.
        span: How long this message waits for others.
        cap: How long the turn may wait for its burst, counted from the first message.
    """
    since = max(NONE, at - time_of(turn.id))
    turn.due_in = max(turn.due_in, min(since + span, cap))


def rest_of_line(heads: Sequence[WaitingHead], turn: Turn) -> timedelta:
    """Return how long a turn with these waiting messages still has to wait when it is claimed.

    A message that waits for its files delays the turn only if it is the first. The turn waits for
    a burst once: after that it takes the messages that are there.
    """
    if not heads:
        return NONE
    if heads[0].awaits_files and heads[0].ready_in > NONE:
        return heads[0].ready_in
    if turn.rest == "rested":
        return NONE
    soft = max((head.ready_in for head in heads if not head.awaits_files), default=NONE)
    return min(soft, LONGEST_BURST)
