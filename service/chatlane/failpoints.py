"""Named steps of the service at which a test kills or freezes the process.

`CHATLANE_CRASH_AT=batch.written:3` kills the process by SIGKILL when it passes that point for the
third time. `CHATLANE_FREEZE_AT` stops it there until SIGCONT. A process refuses to start with
either variable unless its command line has `--enable-failpoints`. Without a variable a point
costs one comparison.
"""

from __future__ import annotations

import re
import signal
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane_client.failpoints import WorkerPoint, enable, hit

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CRASH_VARIABLE",
    "FREEZE_VARIABLE",
    "POINTS",
    "SIGNALS",
    "Failpoint",
    "RouterPoint",
    "WorkerPoint",
    "enable",
    "hit",
    "parse_failpoint",
]

CRASH_VARIABLE: Final = "CHATLANE_CRASH_AT"
FREEZE_VARIABLE: Final = "CHATLANE_FREEZE_AT"
SIGNALS: Final[Mapping[str, signal.Signals]] = {
    CRASH_VARIABLE: signal.SIGKILL,
    FREEZE_VARIABLE: signal.SIGSTOP,
}
"""The signal that each variable makes a process send to itself."""


class RouterPoint(StrEnum):
    """Steps of a router. A crash after each leaves a different state."""

    BATCH_TAKEN = "batch.taken"
    """A batch has left the intake, and nothing is written."""
    CURSORS_MOVED = "batch.cursors_moved"
    """The transaction has moved the cursors and has decided nothing."""
    BATCH_WRITTEN = "batch.written"
    """Everything is written, nothing is committed."""
    RESULTS_SETTLED = "results.settled"
    """The results of a batch are decided and not written."""
    OUTBOX_COMMITTED = "relay.committed"
    """Rows are committed, and the relay does not know them yet."""
    PUBLISHING = "relay.publishing"
    """A row is about to be published."""
    PUBLISHED = "relay.published"
    """A row is sent to the server, which has not acknowledged it."""
    ACKNOWLEDGED = "relay.acknowledged"
    """A stream has stored a row that is still in the table."""
    DELETED = "relay.deleted"
    """Published rows are deleted from the table."""
    ADOPTED = "relay.adopted"
    """The relay has taken over the rows of a dead router and has published none."""
    PARTITIONS_CLAIMED = "ownership.claimed"
    """The router has claimed partitions and does not read them yet."""
    PARTITIONS_RELEASED = "ownership.released"
    """The router has stopped reading partitions that it still holds."""
    PARTITIONS_HANDED_BACK = "ownership.handed_back"
    """The router has released its partitions and still counts as alive."""
    CLAIMS_WRITTEN = "claims.written"
    """Workers have turns in a transaction that is not committed."""
    CLAIMS_COMMITTED = "claims.committed"
    """Workers have turns and have not received the reply."""
    LEASES_ENDED = "deadlines.written"
    """Expired leases are ended in a transaction that is not committed."""


POINTS: Final[tuple[str, ...]] = tuple(map(str, chain(RouterPoint, WorkerPoint)))


class Failpoint(NamedTuple):
    """The pass of a point at which a process sends a signal to itself."""

    point: str
    nth: int
    signal_number: signal.Signals = signal.SIGKILL


def parse_failpoint(text: str, signal_number: signal.Signals = signal.SIGKILL) -> Failpoint:
    """Parse `point:nth`; nth counts from 1.

    Raises:
        ValueError: The point does not exist, or nth is no such number.
    """
    point, _, nth = text.partition(":")
    if point not in POINTS:
        raise ValueError(f"names no failpoint; these exist: {', '.join(POINTS)}")
    if re.fullmatch(r"[1-9][0-9]{0,8}", nth) is None:
        raise ValueError("needs the number of the pass, counted from 1: point:nth")
    return Failpoint(point, int(nth), signal_number)
