"""Notices that the database went back to an earlier moment while routers run.

That happens when an asynchronous standby is promoted that had not received everything, or when a
backup is restored under running processes. A router knows what the database has confirmed to it:
its own sign of life, and how far partitions were committed. When the database says less, it has
forgotten that, and more that nobody can see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from chatlane.domain.log import PartitionId
    from chatlane.store.logs.partitions import Holding
    from chatlane.store.logs.routers import Heartbeat

# Rows of routers that were not heard for long are deleted; ours may be among them after a pause.
_PRUNED_AFTER_SECONDS: Final = 300.0


class KnownPosition(NamedTuple):
    """How far a partition was committed, as the database has confirmed.

    Attributes:
        epoch: The fencing number under which it was held then; it only grows.
    """

    epoch: int
    cursor: int


def has_moved_back(known: Mapping[PartitionId, KnownPosition], holdings: Iterable[Holding]) -> bool:
    """Tell whether a partition stands before what is known of it.

    A cursor goes back under a new epoch only, where its log was replaced; that is no step back of
    the database.

    Args:
        known: As it was before the holdings were read.
        holdings: What the database says now.
    """
    return any(
        (row.epoch, row.cursor if row.epoch == its.epoch else its.cursor) < its
        for row in holdings
        if (its := known.get(row.partition)) is not None
    )


class HeartbeatCheck:
    """Compares each sign of life with the one before, as the database has it."""

    def __init__(self) -> None:
        self._written: datetime | None = None
        self._noted_at = 0.0

    def forget(self) -> None:
        """Expect nothing of the next one; for when this router withdrew its sign of life."""
        self._written = None

    def is_behind(self, beat: Heartbeat, now: float) -> bool:
        """Note a sign of life that is committed.

        Args:
            beat: What it wrote, and what it found.
            now: Monotonic time in seconds.

        Returns:
            Whether the database had forgotten the one before.
        """
        written, noted_at = self._written, self._noted_at
        self._written, self._noted_at = beat.written, now
        if written is None:
            return False
        if beat.found is None:
            return now - noted_at < _PRUNED_AFTER_SECONDS
        return beat.found < written
