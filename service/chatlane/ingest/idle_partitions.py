"""Advance the cursors of idle partitions.

Otherwise the cursor of a partition without messages would stay at its last message: the log could
not be purged past it, and an idle partition would look like a reader that receives nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

from chatlane.errors import TransientError
from chatlane.observability.logs import get_logger
from chatlane.store.logs import partitions
from chatlane.store.logs.partitions import Advance

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from chatlane.domain.log import LogName, PartitionId
    from chatlane.ingest.intake import Intake
    from chatlane.ingest.partition_reader import PartitionFeed
    from chatlane.nats.jetstream import StreamState
    from chatlane.nats.log_access import LogAccess
    from chatlane.postgres.pool import Transaction

DEFAULT_INTERVAL: Final = timedelta(seconds=10)
# How long a message may take from the leader's log through a reader.
_DELIVERY_PATIENCE: Final = timedelta(seconds=1)

_log = get_logger("idle_check")


@dataclass(slots=True, kw_only=True)
class IdleCheck:
    """Move the cursors of idle partitions to the end of their log.

    Attributes:
        interval: Pause between two checks; a partition that moved in between is skipped.
    """

    router: UUID
    lease: timedelta
    intake: Intake
    access: LogAccess
    transaction: Transaction
    interval: timedelta = DEFAULT_INTERVAL
    _cursors: dict[PartitionId, int] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            await asyncio.sleep(self.interval.total_seconds())
            try:
                await self.check()
            except TransientError as error:
                _log.debug("idle_check_failed", reason=str(error))

    async def check(self) -> None:
        """Check every partition whose cursor has not moved since the last check.

        Raises:
            TransientError: NATS or Postgres did not answer.
        """
        before, self._cursors = (
            self._cursors,
            {feed.partition: feed.position.cursor for feed in self.intake.feeds},
        )
        still = [
            feed
            for feed in self.intake.feeds
            if feed.is_idle and before.get(feed.partition) == feed.position.cursor
        ]
        for log, feeds in groupby(still, lambda feed: feed.partition.log):
            await self._check_log(log, list(feeds))

    async def _check_log(self, log: LogName, feeds: Sequence[PartitionFeed]) -> None:
        cursors = {feed.partition: feed.position.cursor for feed in feeds}
        # Read the end of the log before the partitions: messages in between can only be newer.
        state = await self.access.get_state(log)
        for feed in feeds:
            # Without this a log that lost its tail is read only once it has passed the cursor.
            if cursors[feed.partition] > state.last_sequence:
                feed.break_off("tail_lost")
            # Messages that were purged before they were read are reported, not skipped.
            if feed.position.cursor < state.first_sequence - 1:
                feed.break_off("truncated")
        behind = [feed for feed in feeds if feed.position.cursor < state.last_sequence]
        finished = await asyncio.gather(*(self._has_finished(feed, state) for feed in behind))
        done = [feed for feed, is_done in zip(behind, finished, strict=True) if is_done]
        if done:
            await self._advance(done, state)

    async def _has_finished(self, feed: PartitionFeed, state: StreamState) -> bool:
        """Return whether the log holds no message of this partition after its cursor."""
        if state.generation != feed.position.generation:
            feed.break_off("log_replaced")
            return False
        newest = await self.access.find_last_sequence(feed.partition) or 0
        if newest <= feed.position.cursor:
            return True
        if newest > feed.received_sequence:
            await asyncio.sleep(_DELIVERY_PATIENCE.total_seconds())
            if newest > feed.received_sequence and feed.is_idle:
                feed.break_off("fell_behind")
        return False

    async def _advance(self, feeds: Sequence[PartitionFeed], state: StreamState) -> None:
        # Meanwhile a partition may have moved past this end of the log, or to another log.
        idle = [
            feed
            for feed in feeds
            if feed.is_idle
            and feed.position.cursor < state.last_sequence
            and feed.position.generation == state.generation
        ]
        steps = [
            Advance(
                feed.partition,
                feed.epoch,
                feed.position.cursor,
                state.last_sequence,
                state.last_stored_at,
            )
            for feed in idle
        ]
        with ExitStack() as stack:
            for feed in idle:
                stack.enter_context(feed.occupy())
            async with self.transaction() as connection:
                moved = await partitions.advance(connection, self.router, steps, self.lease)
            for feed in idle:
                if feed.partition in moved:
                    feed.commit(state.last_sequence, state.last_stored_at)
        self.intake.lost(feed.partition for feed in idle if feed.partition not in moved)
