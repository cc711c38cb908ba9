"""Whether a stream still has what it had: pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from chatlane.domain.inconsistencies import StreamLoss

# The clocks of servers and routers agree better than this.
_CLOCKS: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class StreamMark:
    """A stream at one moment.

    Attributes:
        generation: Which one it is; another one after a re-creation or a restore.
        host: What keeps it: a server from one start to its end, or the leader in a cluster.
        holes: How many messages between the first and the last are not there.
        first_seq: Of the oldest message; one past the last when there is none.
        last_seq: Of the newest message ever stored; 0 when there never was one.
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
        """Whether it holds nothing."""
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
    """Return what a stream has lost since it was marked, if anything.

    Args:
        before: The mark; its holes are those that no erasure explains.
        now: As it is; its holes are those at least that no erasure explains.
        at_mark: When the message was stored that it has where its end was; None without one.
        max_age: What is older goes by itself.
        clock: The time now.
        erased_first: How many messages between the first of the mark and the first of now were
            deleted because their person was forgotten.
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
