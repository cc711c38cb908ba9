"""Where a router can be told to end or freeze itself, and the variables that tell a process so.

`CHATLANE_CRASH_AT=batch.written:3` ends it by SIGKILL when it passes that point for the third
time, `CHATLANE_FREEZE_AT` stops it there until SIGCONT. Without a variable a point is one
comparison.
"""

from __future__ import annotations

import re
import signal
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane_client.crash_points import WorkerPoint, arm, reach

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CRASH_VARIABLE",
    "FREEZE_VARIABLE",
    "POINTS",
    "SIGNALS",
    "Fuse",
    "RouterPoint",
    "WorkerPoint",
    "arm",
    "parse_fuse",
    "reach",
]

CRASH_VARIABLE: Final = "CHATLANE_CRASH_AT"
FREEZE_VARIABLE: Final = "CHATLANE_FREEZE_AT"
SIGNALS: Final[Mapping[str, signal.Signals]] = {
    CRASH_VARIABLE: signal.SIGKILL,
    FREEZE_VARIABLE: signal.SIGSTOP,
}
"""What each variable lets a process send itself."""


class RouterPoint(StrEnum):
    """The steps of a router after which a death leaves different things behind."""

    BATCH_TAKEN = "batch.taken"
    """A batch left the intake; nothing is written."""
    CURSORS_MOVED = "batch.cursors_moved"
    """The transaction has moved the cursors and decided nothing."""
    BATCH_WRITTEN = "batch.written"
    """Everything is written, nothing is committed."""
    RESULTS_SETTLED = "results.settled"
    """The results of a batch are decided about and not written."""
    OUTBOX_COMMITTED = "relay.committed"
    """Rows are committed that the relay does not know yet."""
    PUBLISHING = "relay.publishing"
    """A row is about to be published."""
    PUBLISHED = "relay.published"
    """A row is on its way to the server; nobody has said that it arrived."""
    ACKNOWLEDGED = "relay.acknowledged"
    """A stream has a row that is still in the table."""
    DELETED = "relay.deleted"
    """Published rows are gone from the table."""
    ADOPTED = "relay.adopted"
    """Rows of a router that is gone are ours, and nobody publishes them yet."""
    PARTITIONS_CLAIMED = "ownership.claimed"
    """Partitions are ours, and nobody reads them yet."""
    PARTITIONS_RELEASED = "ownership.released"
    """Partitions are read no more and still ours."""
    PARTITIONS_HANDED_BACK = "ownership.handed_back"
    """Partitions are free; the router still counts as alive."""
    CLAIMS_WRITTEN = "claims.written"
    """Turns are given to workers, and that is not committed."""
    CLAIMS_COMMITTED = "claims.committed"
    """Turns are given to workers who have not heard of it."""
    LEASES_ENDED = "deadlines.written"
    """Leases that nobody renewed are over, and that is not committed."""


POINTS: Final[tuple[str, ...]] = tuple(map(str, chain(RouterPoint, WorkerPoint)))


class Fuse(NamedTuple):
    """The pass of a point at which a process sends itself a signal."""

    point: str
    nth: int
    signal_number: signal.Signals = signal.SIGKILL


def parse_fuse(text: str, signal_number: signal.Signals = signal.SIGKILL) -> Fuse:
    """Return what `point:nth` says; nth counts from 1.

    Raises:
        ValueError: It names no point, or no pass of it.
    """
    point, _, nth = text.partition(":")
    if point not in POINTS:
        raise ValueError(f"names no crash point; there are: {', '.join(POINTS)}")
    if re.fullmatch(r"[1-9][0-9]{0,8}", nth) is None:
        raise ValueError("needs the number of the pass, counted from 1: point:nth")
    return Fuse(point, int(nth), signal_number)
