"""Compare a stream with an earlier mark to detect a loss. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from chatlane.domain.counts import StreamLoss

# The clocks of servers and routers agree better than this.
_CLOCKS: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class StreamMark:
    """State of a stream at one moment.

    Attributes:
        generation: Identity of the stream; it changes with a re-creation or a restore.
        host: The process of the server that holds it, or the leader in a cluster.
        holes: Number of messages that are missing between the first and the last.
        first_seq: Of the oldest message; one past the last if the stream is empty.
        last_seq: Of the newest message ever stored; 0 if there was none.
    """

    generation: str
    host: str
    holes: int
    first_seq: int
    first_at: datetime
    last_seq: int
    last_at: datetime

    @property
    def is_empty(self) -> bool:
        """Return True if the stream holds no messages."""
        return self.last_seq < self.first_seq


def find_loss(
    before: StreamMark,
    now: StreamMark,
    *,
    at_mark: datetime | None,
    max_age: timedelta | None,
    clock: datetime,
    erased_first: int = 0,
) -> StreamLoss | None:
    """Return the kind of loss of a stream since its mark, or None if it lost nothing.

    Args:
        before: The mark, with the holes that no erasure explains.
        now: The current state, with at least the holes that no erasure explains.
        at_mark: Stored time of the current message at the marked end; None if there is none.
        max_age: The stream expires older messages.
        clock: The current time.
        erased_first: Number of messages between the first of the mark and the current first that
            an erasure deleted.
    """
    if before.generation != now.generation:
        return None if before.last_seq == 0 else StreamLoss.REPLACED
    if now.last_seq < before.last_seq:
        return StreamLoss.TAIL_LOST
    if at_mark is not None and at_mark != before.last_at:
        return StreamLoss.TIME_AT_MARK
    if now.holes > before.holes:
        return StreamLoss.HOLES
    if before.is_empty or now.first_seq <= before.first_seq:
        return None
    is_erased = erased_first + before.holes >= now.first_seq - before.first_seq
    is_due = max_age is not None and before.first_at + max_age <= clock + _CLOCKS
    return None if is_due or is_erased else StreamLoss.CUT_OFF
