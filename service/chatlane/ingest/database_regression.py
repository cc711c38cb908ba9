"""Detect that the database went back to an earlier state while routers run.

That happens when an asynchronous standby is promoted that had not received everything, or when a
backup is restored under running processes. A router knows what the database has confirmed to it:
its own heartbeat, and how far partitions were committed. A database that is behind that has lost
these commits, and others that no router can see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from chatlane.domain.log import PartitionId
    from chatlane.store.logs.partitions import PartitionOwner
    from chatlane.store.logs.routers import Heartbeat

# Rows of routers without a recent heartbeat are deleted, after a pause also that of this router.
_PRUNED_AFTER_SECONDS: Final = 300.0


class KnownPosition(NamedTuple):
    """A committed position of a partition that the database has confirmed.

    Attributes:
        epoch: The fencing number under which the partition was held then; it only grows.
    """

    epoch: int
    cursor: int


def has_moved_back(
    known: Mapping[PartitionId, KnownPosition], holdings: Iterable[PartitionOwner]
) -> bool:
    """Return whether a partition is behind its known position.

    A cursor goes back only under a new epoch, when its log was replaced; that is no regression of
    the database.
    """
    return any(
        (row.epoch, row.cursor if row.epoch == position.epoch else position.cursor) < position
        for row in holdings
        if (position := known.get(row.partition)) is not None
    )


class HeartbeatCheck:
    """Compare each heartbeat with the previous one that the database has stored."""

    def __init__(self) -> None:
        self._written: datetime | None = None
        self._noted_at = 0.0

    def forget(self) -> None:
        """Skip the comparison for the next heartbeat, after this router withdrew its row."""
        self._written = None

    def is_behind(self, beat: Heartbeat, now: float) -> bool:
        """Record a committed heartbeat and return whether the database lost the previous one.

        Args:
            beat: The time it wrote, and the time it found.
            now: Monotonic time in seconds.
        """
        written, noted_at = self._written, self._noted_at
        self._written, self._noted_at = beat.written, now
        if written is None:
            return False
        if beat.found is None:
            return now - noted_at < _PRUNED_AFTER_SECONDS
        return beat.found < written
