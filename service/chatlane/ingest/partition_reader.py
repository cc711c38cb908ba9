"""One held partition: a reader kept open at the committed cursor, and what of it is handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from chatlane.domain.log import LogPosition, describe_partition_count
from chatlane.errors import PartitionCountError, TransientError
from chatlane.nats.log_inspection import (
    LogIntact,
    LogReplaced,
    LogTruncated,
    LogUnbound,
    PartitionCountDiffers,
)
from chatlane.nats.tasks import end_task
from chatlane.observability.logs import get_logger
from chatlane.store.logs import partitions
from chatlane.store.logs.partitions import Tenure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from random import Random
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.log import LogMessage, PartitionId
    from chatlane.nats.log_access import LogAccess
    from chatlane.nats.log_reader import LogReader
    from chatlane.observability.metrics import Metrics
    from chatlane.store.logs.partitions import Claim

Transaction = Callable[[], AbstractAsyncContextManager["PoolConnectionProxy"]]
TruncatedHandler = Callable[["PoolConnectionProxy", "PartitionId", LogTruncated], Awaitable[bool]]

# At this many take-overs without hand-back a message of the partition may be what ends routers.
SUSPECT_FROM: Final = 2
# A message at which so many routers died is not tried again.
_MOST_DEATHS: Final = 3
# Of a lease: how long a partition rests before its first suspect is tried. Routers that die of
# something else die at what they do most, and soon after their start; that must not be the
# suspect. In between, what is not suspect goes on, and the try itself takes milliseconds.
_REST: Final = (0.25, 1.0)
_FIRST_PAUSE: Final = timedelta(milliseconds=50)
_LONGEST_PAUSE: Final = timedelta(seconds=1)

_log = get_logger("feed")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedDependencies:
    """What all feeds of a router share.

    Attributes:
        router: Who holds the partitions.
        lease: How long they stay ours without a renewal.
        access: The logs.
        transaction: Opens a transaction of the store.
        on_truncated: Writes the dead letter of a loss, in the transaction that goes past it, and
            returns whether it is one.
        on_change: Called when something may be ready or a batch may be possible.
        on_lost: Called when a partition turned out to be another router's.
        metrics: Counts readers made anew and logs that are not what they were.
        jitter: Chance.
        tries: The last suspect that this process tried of each partition, and which try it
            was: whoever lives to try it again did not die of it, whatever else went wrong.
    """

    router: UUID
    lease: timedelta
    access: LogAccess
    transaction: Transaction
    on_truncated: TruncatedHandler
    on_change: Callable[[], None]
    on_lost: Callable[[PartitionId], None]
    metrics: Metrics
    jitter: Random
    tries: dict[PartitionId, tuple[int, int]]


class PartitionFeed:
    """A partition from the moment it is taken until it is given up.

    Messages stay in the reader's memory until they are committed: those handed out are the
    first `_handed` of it. Whatever makes them invalid raises `token`.

    Attributes:
        partition: Which one.
        epoch: The fencing number it is held under.
        position: How far it is committed.
        token: Of what is handed out; a slice with another token must not be used.
        renewed_at: When its lease was last renewed, by the loop's clock.
    """

    def __init__(self, claim: Claim, dependencies: FeedDependencies) -> None:
        self.partition = claim.partition
        self.epoch = claim.epoch
        self.position = claim.position
        self.token = 0
        self._its = dependencies
        self._loop = asyncio.get_running_loop()
        self.renewed_at = self._loop.time()
        self._is_suspect = claim.dirty >= SUSPECT_FROM
        self._reader: LogReader | None = None
        self._attempts = 0
        self._handed = 0
        self._is_busy = False
        self._is_offered = True
        self._rests_until = 0.0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._unreadable_since: float | None = self._loop.time()
        if self._is_suspect:
            self._rest(dependencies.lease * dependencies.jitter.uniform(*_REST))
        self._task = asyncio.create_task(self._keep_reading())

    @property
    def tenure(self) -> Tenure:
        """The claim to the partition, as the store checks it."""
        return Tenure(self.partition, self.epoch)

    @property
    def is_quiet(self) -> bool:
        """Whether no transaction works on this partition and none is about to."""
        return self._handed == 0 and not self._is_busy

    @property
    def is_suspect(self) -> bool:
        """Whether its messages are tried one at a time."""
        return self._is_suspect

    @property
    def is_idle(self) -> bool:
        """Whether it waits at the end of its log."""
        reader = self._reader
        return reader is not None and reader.is_caught_up and self.is_quiet

    @property
    def received_sequence(self) -> int:
        """The newest sequence that came in."""
        return self._reader.last_sequence if self._reader else self.position.cursor

    def unreadable_for(self, now: float) -> float:
        """Return for how many seconds the log could not be read."""
        return now - self._unreadable_since if self._unreadable_since is not None else 0.0

    def lag(self, now: datetime, loop_now: float) -> timedelta:
        """Return how old the oldest message is that was read and is not committed.

        While the log cannot be read: for how long at least; what is in it is not known.
        """
        reader = self._reader
        lag = timedelta(seconds=self.unreadable_for(loop_now))
        if reader is not None and reader.messages:
            lag = max(lag, now - reader.messages[0].stored_at)
        return lag

    def available(self, now: float) -> int:
        """Return how many messages can be handed out now."""
        reader = self._reader
        if reader is None or self._is_busy or not self._is_offered or now < self._rests_until:
            return 0
        if reader.broken.is_set():
            return 0
        return len(reader.messages) - self._handed

    def peek(self, limit: int, max_bytes: int) -> Sequence[LogMessage]:
        """Return the next messages without handing them out: at least one, if there is any."""
        if self._reader is None:
            return ()
        chosen: list[LogMessage] = []
        size = 0
        for message in islice(self._reader.messages, self._handed, self._handed + limit):
            size += len(message.body)
            if chosen and size > max_bytes:
                break
            chosen.append(message)
        return chosen

    @property
    def handed_cursor(self) -> int:
        """Where the cursor will stand once everything handed out is committed."""
        if self._reader is None or self._handed == 0:
            return self.position.cursor
        return self._reader.messages[self._handed - 1].sequence

    def hand_out(self, count: int) -> None:
        """Note that the next `count` messages are in a batch."""
        self._handed += count
        self._note_quiet()

    def commit(self, cursor: int, stored_at: datetime | None) -> None:
        """Note that everything up to `cursor` is committed."""
        if self._reader is not None:
            handed = islice(self._reader.messages, self._handed)
            done = sum(1 for message in handed if message.sequence <= cursor)
            self._reader.drop(done)
            self._handed -= done
        self.position = self.position._replace(cursor=cursor, cursor_at=stored_at)
        self.renewed_at = self._loop.time()
        self._is_suspect = False
        self._note_quiet()

    def fail(self, delay: timedelta) -> None:
        """Take back what was handed out; it is first in line again after `delay`."""
        self._rest(delay)
        self._take_back()

    def _rest(self, delay: timedelta) -> None:
        self._rests_until = self._loop.time() + delay.total_seconds()
        self._loop.call_at(self._rests_until, self._its.on_change)

    def break_off(self, reason: str) -> None:
        """Have the log inspected and read anew from the committed cursor."""
        if self._reader is not None:
            self._reader.break_off(reason)

    async def suspect_next(self) -> bool | None:
        """Commit that the next message is about to be tried.

        One try of a message is counted per process: a batch that failed and is repeated ended
        none.

        Returns:
            Whether the message must not be tried any more; None when it cannot be said now.
        """
        message = next(iter(self.peek(1, 0)), None)
        if message is None:
            return None
        sequence, count = self._its.tries.get(self.partition, (0, 0))
        if sequence != message.sequence:
            counted = await self._count_try(message.sequence)
            if counted is None:
                return None
            count = counted
            self._its.tries[self.partition] = (message.sequence, count)
        return count > _MOST_DEATHS

    async def _count_try(self, sequence: int) -> int | None:
        with _Busy(self):
            try:
                async with self._its.transaction() as connection:
                    count = await partitions.suspect(
                        connection, self._its.router, self.tenure, sequence, self._its.lease
                    )
            except TransientError:
                self.fail(_LONGEST_PAUSE)
                return None
        if count is None:
            self._its.on_lost(self.partition)
        return count

    def occupy(self) -> _Busy:
        """Return a context in which nothing of this partition is handed out."""
        return _Busy(self)

    async def stop_offering(self) -> None:
        """Hand out nothing more and return when no transaction works on this partition."""
        self._is_offered = False
        while not self.is_quiet:
            await self._quiet.wait()

    async def close(self) -> None:
        """Stop reading; whatever is handed out is void."""
        self._is_offered = False
        await end_task(self._task)
        await self._drop_reader()

    def _note_quiet(self) -> None:
        if self.is_quiet:
            self._quiet.set()
        else:
            self._quiet.clear()
        self._its.on_change()

    def _take_back(self) -> None:
        self._handed = 0
        self.token += 1
        self._note_quiet()

    async def _keep_reading(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                reader = await self._open_reader()
            except TransientError as error:
                self._report_unreadable(str(error), is_first=pause == _FIRST_PAUSE)
            except Exception:  # noqa: BLE001 # one partition must not end the others
                _log.exception("partition_unreadable", **self._place)
            else:
                pause = _FIRST_PAUSE
                await self._read_until_broken(reader)
                continue
            await asyncio.sleep(pause.total_seconds())
            # While there is no connection nobody is bothered by asking again soon.
            if self._its.access.is_reachable:
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _open_reader(self) -> LogReader:
        """Open a reader at the committed cursor of the log there is now.

        Raises:
            TransientError: The log or the store cannot be reached.
        """
        await self._inspect()
        self._attempts += 1
        return await self._its.access.open(
            self.partition,
            epoch=self.epoch,
            attempt=self._attempts,
            start_sequence=self.position.cursor + 1,
            on_arrival=self._its.on_change,
        )

    async def _read_until_broken(self, reader: LogReader) -> None:
        self._reader = reader
        self._unreadable_since = None
        await reader.broken.wait()
        self._unreadable_since = self._loop.time()
        # The first word is what happened, the rest are details for people.
        self._its.metrics.record_reader_recreation(
            self.partition.log, reader.break_reason.split(" ")[0]
        )
        if self._its.access.is_reachable:
            _log.info("partition_reader_broken", **self._place, reason=reader.break_reason)
        # A batch that is on its way may move the cursor; only then is it known where to go on.
        while not self.is_quiet:
            await self._quiet.wait()
        await self._drop_reader()

    async def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        self._take_back()
        if reader is not None:
            await reader.close()

    async def _inspect(self) -> None:
        """Check that the log is the one the cursor counts in; if not, start it anew.

        Raises:
            PartitionCountError: The stream has another number of partitions.
            TransientError: The log or the store cannot be reached.
        """
        found = await self._its.access.inspect(self.partition.log, self.position)
        match found:
            case LogIntact():
                return
            case PartitionCountDiffers():
                raise PartitionCountError(
                    describe_partition_count(
                        f"the stream of the {self.partition.log} log",
                        found.count,
                        self._its.access.partition_count,
                    )
                )
            case LogUnbound():
                _log.debug("partition_bound", **self._place, cursor=found.cursor)
            case LogReplaced():
                self._its.metrics.record_log_alarm(self.partition.log, found.reason)
                _log.critical(
                    "log_replaced",
                    **self._place,
                    reason=found.reason,
                    old_cursor=self.position.cursor,
                    new_cursor=found.cursor,
                )
            case LogTruncated():
                # Said once it is known whether it is a loss.
                pass
        if await self._rewind(found) and isinstance(found, LogTruncated):
            self._its.metrics.record_log_alarm(self.partition.log, "truncated")
            _log.critical(
                "log_truncated",
                **self._place,
                first_seq=found.first_missing,
                last_seq=found.cursor,
            )

    async def _rewind(self, found: LogUnbound | LogReplaced | LogTruncated) -> bool:
        """Go on where a log begins; returns whether something of it was lost."""
        is_loss = False
        async with self._its.transaction() as connection:
            epoch = await partitions.rewind(
                connection,
                self._its.router,
                self.tenure,
                cursor=found.cursor,
                generation=found.generation,
            )
            if epoch is not None and isinstance(found, LogTruncated):
                is_loss = await self._its.on_truncated(connection, self.partition, found)
        if epoch is None:
            self._its.on_lost(self.partition)
            return False
        self.epoch = epoch
        self.position = LogPosition(found.cursor, None, found.generation)
        return is_loss

    def _report_unreadable(self, reason: str, *, is_first: bool) -> None:
        # A lost connection is reported once, not by every partition.
        is_news = is_first and self._its.access.is_reachable
        report = _log.warning if is_news else _log.debug
        report("partition_unreadable", **self._place, reason=reason)

    @property
    def _place(self) -> dict[str, object]:
        return {"log": self.partition.log, "partition": self.partition.number}


class _Busy:
    """While entered, the feed counts as worked on."""

    def __init__(self, feed: PartitionFeed) -> None:
        self._feed = feed

    def __enter__(self) -> None:
        self._feed._is_busy = True  # noqa: SLF001 # one object in two parts
        self._feed._note_quiet()  # noqa: SLF001

    def __exit__(self, *_exception: object) -> None:
        self._feed._is_busy = False  # noqa: SLF001
        self._feed._note_quiet()  # noqa: SLF001
