"""Merge the partitions of a router into batches, and keep messages until they are committed.

A batch is handed out once. Each of its slices then ends in one of three ways: it is `committed`,
it `failed` (its messages are handed out first again), or its partition is `lost`. Several batches
may be handed out at a time, so that one is decoded while another is in the database; `current`
removes slices that have become invalid meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from chatlane.domain.log import LOGS
from chatlane.ingest.database_regression import KnownPosition
from chatlane.ingest.partition_reader import FeedDependencies, PartitionFeed
from chatlane.observability.logs import get_logger
from chatlane.observability.metrics import Metrics, Takeover

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
    from datetime import timedelta
    from random import Random
    from uuid import UUID

    from chatlane.domain.log import LogMessage, PartitionId
    from chatlane.ingest.partition_reader import TruncatedHandler
    from chatlane.nats.log_access import LogAccess
    from chatlane.postgres.pool import Transaction
    from chatlane.store.logs.partitions import Claim, PartitionLease

# A partition gets at most a quarter of a batch, or an equal share if there are fewer partitions:
# while one partition is flooded, a message in another waits for at most two short batches.
_SHARES: Final = 4
# Size of the bodies of one transaction: they are in memory several times while it runs.
DEFAULT_BATCH_BYTES: Final = 8 * 1024 * 1024

_log = get_logger("intake")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The next messages of one partition.

    Attributes:
        cursor: The cursor that the partition must have for these messages to be the next.
        messages: Messages in log order; never empty.
        is_process_killer: Whether the only message must be dead-lettered without decoding it.
        token: The slice is valid while the feed of its partition has the same token.
    """

    partition: PartitionId
    epoch: int
    cursor: int
    messages: tuple[LogMessage, ...]
    is_process_killer: bool = False
    token: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Slices of different partitions, in the order in which their rows are locked."""

    slices: tuple[Slice, ...]

    def __bool__(self) -> bool:
        return bool(self.slices)

    @property
    def messages(self) -> list[LogMessage]:
        """All messages, in log order within a partition."""
        return [message for slice_ in self.slices for message in slice_.messages]

    @property
    def positions(self) -> dict[PartitionId, Slice]:
        """The slices by partition, with the epoch and cursor the compare-and-set expects."""
        return {slice_.partition: slice_ for slice_ in self.slices}

    def is_process_killer(self, message: LogMessage) -> bool:
        """Return whether a message must be dead-lettered without decoding it."""
        # Such a message is always alone in its batch.
        first = self.slices[0]
        return first.is_process_killer and message in first.messages


class Intake:
    """Hold the partitions of this router and hand out batches of their messages.

    Args:
        on_truncated: Writes the dead letter of a lost range, in the transaction that skips it.

    Attributes:
        lost_some: Set whenever a partition was lost, so that the ownership can check at once.
    """

    def __init__(
        self,
        *,
        router: UUID,
        lease: timedelta,
        access: LogAccess,
        transaction: Transaction,
        on_truncated: TruncatedHandler,
        metrics: Metrics | None = None,
        jitter: Random | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
        self.lost_some = asyncio.Event()
        self._changed = asyncio.Event()
        self._feeds: dict[PartitionId, PartitionFeed] = {}
        self._known: dict[PartitionId, KnownPosition] = {}
        self._turn = 0
        self._exclusive: PartitionFeed | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._dependencies = FeedDependencies(
            router=router,
            lease=lease,
            access=access,
            transaction=transaction,
            on_truncated=on_truncated,
            on_change=self._changed.set,
            on_lost=lambda partition: self.lost([partition]),
            metrics=self._metrics,
            jitter=jitter or SystemRandom(),
            tries={},
        )

    # Called by the ownership.

    def hold(self, claims: Iterable[Claim]) -> None:
        """Start reading partitions that were just claimed."""
        for claim in claims:
            self._feeds[claim.partition] = PartitionFeed(claim, self._dependencies)
            how = Takeover.EXPIRED if claim.had_owner else Takeover.FREE
            self._metrics.takeovers.labels(claim.partition.log, how).inc()
        self._show_owned()

    @property
    def partition_leases(self) -> list[PartitionLease]:
        """The claims to the partitions held."""
        return [feed.partition_lease for feed in self._feeds.values()]

    @property
    def feeds(self) -> Sequence[PartitionFeed]:
        """The partitions held, in the order in which their rows are locked."""
        return [self._feeds[partition] for partition in sorted(self._feeds)]

    def positions(self) -> Mapping[PartitionId, KnownPosition]:
        """Return the confirmed position of each partition that is or was held."""
        for feed in self._feeds.values():
            self._note_position(feed)
        return self._known

    def forget_positions(self) -> None:
        """Forget the confirmed positions, after the database has lost them."""
        self._known.clear()

    def _note_position(self, feed: PartitionFeed) -> None:
        self._known[feed.partition] = KnownPosition(feed.epoch, feed.position.cursor)

    async def release(self, partitions: Iterable[PartitionId]) -> None:
        """Stop reading partitions after their current batch, so that they can be handed back."""
        await asyncio.gather(*map(self._release, list(partitions)))

    async def _release(self, partition: PartitionId) -> None:
        feed = self._feeds.get(partition)
        if feed is None:
            return
        await feed.stop_offering()
        if self._feeds.get(partition) is feed:
            del self._feeds[partition]
            self._note_position(feed)
            self._show_owned()
            await feed.close()

    def lost(self, partitions: Iterable[PartitionId]) -> None:
        """Drop partitions that another router owns, or whose cursor is not the expected one."""
        dropped = [
            self._feeds.pop(partition) for partition in partitions if partition in self._feeds
        ]
        for feed in dropped:
            self._note_position(feed)
            self._metrics.partitions_lost.labels(feed.partition.log).inc()
            self._run(feed.close())
        if dropped:
            _log.warning("partitions_lost", partitions=_names(feed.partition for feed in dropped))
            self._show_owned()
            self.lost_some.set()
            self._changed.set()

    def _show_owned(self) -> None:
        logs = Counter(partition.log for partition in self._feeds)
        for log in LOGS:
            self._metrics.partitions_owned.labels(log).set(logs[log])

    async def close(self) -> None:
        """Stop reading all partitions; handed-out messages become invalid."""
        feeds = list(self._feeds.values())
        self._feeds.clear()
        await asyncio.gather(*(feed.close() for feed in feeds), *self._tasks)

    # Called by the batch committer.

    async def next_batch(
        self, max_messages: int, linger: timedelta, max_bytes: int = DEFAULT_BATCH_BYTES
    ) -> Batch:
        """Wait for messages and hand out a batch of them.

        Every partition gets the same share. A partition with a long backlog takes only what the
        others leave, and never more than a quarter of the batch, or an equal share if there are
        fewer partitions. A suspect partition is handed out alone, one message at a time.

        Args:
            linger: How long to wait for more messages once there are some.
            max_bytes: Maximum size of the bodies; a single message may be larger.
        """
        while True:
            self._changed.clear()
            if self._exclusive is not None and self._exclusive.is_quiet:
                self._exclusive = None
            suspects, ready = self._survey()
            if self._exclusive is not None or (suspects and self._is_out()):
                await self._changed.wait()
            elif suspects:
                if batch := await self._suspect_batch(suspects[0]):
                    return batch
            elif ready:
                if ready < max_messages and linger:
                    await asyncio.sleep(linger.total_seconds())
                if batch := self._assemble(max_messages, max_bytes):
                    return batch
            else:
                await self._changed.wait()

    def full_batch(self, max_messages: int, max_bytes: int = DEFAULT_BATCH_BYTES) -> Batch | None:
        """Return a batch now if there are enough messages to fill one and no suspects."""
        if self._exclusive is not None:
            return None
        suspects, ready = self._survey()
        return None if suspects or ready < max_messages else self._assemble(max_messages, max_bytes)

    def current(self, batch: Batch) -> Batch:
        """Return the slices of a batch that are still valid."""
        return Batch(tuple(slice_ for slice_ in batch.slices if self._find(slice_) is not None))

    def committed(self, batch: Batch, except_for: Collection[PartitionId] = ()) -> None:
        """Record that the cursors of a batch have moved, except those of some partitions."""
        for slice_ in batch.slices:
            if slice_.partition not in except_for and (feed := self._find(slice_)):
                feed.commit(slice_.messages[-1].sequence, slice_.messages[-1].stored_at)

    def failed(self, batch: Batch, delay: timedelta) -> None:
        """Take the messages of a batch back, to hand them out first again after `delay`.

        Later batches that are handed out lose their slices of these partitions.
        """
        for slice_ in batch.slices:
            if feed := self._find(slice_):
                feed.fail(delay)

    def _find(self, slice_: Slice) -> PartitionFeed | None:
        feed = self._feeds.get(slice_.partition)
        if feed is None or feed.epoch != slice_.epoch or feed.token != slice_.token:
            return None
        return feed

    def _survey(self) -> tuple[list[PartitionFeed], int]:
        now = self._loop.time()
        suspects: list[PartitionFeed] = []
        ready = 0
        for feed in self._feeds.values():
            available = feed.available(now)
            if available and feed.is_suspect:
                suspects.append(feed)
            ready += available
        return suspects, ready

    def _is_out(self) -> bool:
        return any(not feed.is_quiet for feed in self._feeds.values())

    async def _suspect_batch(self, feed: PartitionFeed) -> Batch | None:
        """Hand out one message alone, so that a crash affects no other message."""
        is_killer = await feed.suspect_next()
        if is_killer is None or not feed.available(self._loop.time()):
            return None
        self._exclusive = feed
        slices = (_slice(feed, 1, 0),)
        return Batch(tuple(replace(slice_, is_process_killer=is_killer) for slice_ in slices))

    def _assemble(self, max_messages: int, max_bytes: int) -> Batch:
        slices: list[Slice] = []
        for feed, count in self._allotments(max_messages):
            if slices and max_bytes <= 0:
                break
            slice_ = _slice(feed, count, max_bytes)
            max_bytes -= sum(len(message.body) for message in slice_.messages)
            slices.append(slice_)
        return Batch(tuple(sorted(slices, key=lambda slice_: slice_.partition)))

    def _allotments(self, max_messages: int) -> list[tuple[PartitionFeed, int]]:
        """Distribute a batch among the feeds; the others share what a small feed leaves."""
        now = self._loop.time()
        feeds = list(self._feeds.values())
        self._turn = (self._turn + 1) % max(1, len(feeds))
        in_turn = feeds[self._turn :] + feeds[: self._turn]
        most = -(-max_messages // min(_SHARES, len(feeds) or 1))
        waiting = [(feed, min(n, most)) for feed in in_turn if (n := feed.available(now))][
            :max_messages
        ]
        left = max_messages
        counts: dict[PartitionId, int] = {}
        for done, (feed, n) in enumerate(sorted(waiting, key=lambda pair: pair[1])):
            counts[feed.partition] = min(n, left // (len(waiting) - done))
            left -= counts[feed.partition]
        return [(feed, counts[feed.partition]) for feed, _ in waiting]

    def _run(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _slice(feed: PartitionFeed, count: int, max_bytes: int) -> Slice:
    """Hand out the next messages of a feed: at least one, so the feed must have one."""
    cursor = feed.handed_cursor
    messages = tuple(feed.peek(count, max_bytes))
    feed.hand_out(len(messages))
    return Slice(
        partition=feed.partition,
        epoch=feed.epoch,
        cursor=cursor,
        messages=messages,
        token=feed.token,
    )


def _names(partitions: Iterable[PartitionId]) -> list[str]:
    return [f"{partition.log}/{partition.number}" for partition in sorted(partitions)]
