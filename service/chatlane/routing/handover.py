"""Brings cursors to the stop before which the division of their log ends.

A partition whose next message is behind the stop, or that has none, has nothing left to decide;
its cursor is moved as if it had. Once all cursors of a log stand there, `Ownership` replaces the
partitions.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

from chatlane.crash_points import ChangePoint, reach
from chatlane.errors import TransientError
from chatlane.logs import get_logger
from chatlane.store import partitions
from chatlane.store.partitions import Advance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from chatlane.bus.log_access import LogAccess
    from chatlane.domain.log import LogName
    from chatlane.routing.feed import PartitionFeed, Transaction
    from chatlane.routing.intake import Intake

_PAUSE: Final = timedelta(milliseconds=20)

_log = get_logger("handover")


class HandOver:
    """Works only while a division changes.

    Args:
        router: Who holds the partitions.
        lease: How long they stay ours without a renewal.
        intake: Holds the partitions.
        access: The logs.
        transaction: Opens a transaction of the store.
    """

    def __init__(
        self,
        *,
        router: UUID,
        lease: timedelta,
        intake: Intake,
        access: LogAccess,
        transaction: Transaction,
    ) -> None:
        self._router = router
        self._lease = lease
        self._intake = intake
        self._access = access
        self._transaction = transaction

    async def run(self) -> None:
        """Bring to its stop whatever has one, until cancelled."""
        while True:
            await self._intake.has_stops.wait()
            try:
                await self.bring_to_stops()
            except TransientError as error:
                _log.debug("hand_over_waits", reason=str(error))
            await asyncio.sleep(_PAUSE.total_seconds())

    async def bring_to_stops(self) -> None:
        """Move the cursors of partitions that have nothing left before their stop.

        Raises:
            TransientError: NATS or Postgres did not answer.
        """
        under_way = [
            feed
            for feed in self._intake.feeds
            if feed.stop_before is not None and not feed.has_stopped
        ]
        for log, of_log in groupby(under_way, lambda feed: feed.partition.log):
            await self._bring_to_stop(log, list(of_log))

    async def _bring_to_stop(self, log: LogName, feeds: Sequence[PartitionFeed]) -> None:
        stops = {feed.stop_before for feed in feeds if feed.stop_before is not None}
        times = {stop: await self._access.find_stored_at(log, stop - 1) for stop in stops}
        empty = await self._empty(log, [feed for feed in feeds if feed.is_idle])
        # From here on nothing waits before the cursors are compared, and moved if they are the same.
        done = [feed for feed in feeds if feed.has_read_to_stop or feed in empty]
        steps = {
            feed: Advance(feed.partition, feed.epoch, feed.position.cursor, stop - 1, times[stop])
            for feed in done
            if (stop := feed.stop_before) is not None and stop in times
        }
        if steps:
            await self._advance(steps)

    async def _empty(self, log: LogName, idle: Sequence[PartitionFeed]) -> list[PartitionFeed]:
        """Return those of which the log holds nothing above their cursor."""
        if not idle:
            return []
        cursors = [feed.position.cursor for feed in idle]
        # First the end of the log, then the partitions: what lies between can only be newer.
        state = await self._access.get_state(log)
        newest = await asyncio.gather(
            *(self._access.find_last_sequence(feed.partition) for feed in idle)
        )
        return [
            feed
            for feed, cursor, last in zip(idle, cursors, newest, strict=True)
            if feed.stop_before is not None
            and feed.stop_before <= state.last_sequence + 1
            and feed.position.generation == state.generation
            and (last or 0) <= cursor == feed.position.cursor
            and feed.is_idle
        ]

    async def _advance(self, steps: Mapping[PartitionFeed, Advance]) -> None:
        with ExitStack() as stack:
            for feed in steps:
                stack.enter_context(feed.occupy())
            async with self._transaction() as connection:
                moved = await partitions.advance(
                    connection, self._router, list(steps.values()), self._lease
                )
            reach(ChangePoint.REACHED)
            for feed, step in steps.items():
                if feed.partition in moved:
                    feed.commit(step.cursor_to, step.stored_at)
        self._intake.lost(feed.partition for feed in steps if feed.partition not in moved)
        # Whoever brings the last one there looks at once whether all are.
        self._intake.lost_some.set()
