"""Read one held partition from its committed cursor, and track the messages handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from pydantic_core import to_json

from chatlane.domain.dead_letters import add_dead_letter
from chatlane.domain.effects import Effects
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
from chatlane.nats.topology import LOG_STREAMS
from chatlane.observability.logs import get_logger
from chatlane.observability.metrics import LogAlarm, Metrics
from chatlane.privacy import erasure_list_sql
from chatlane.store import dead_letters, outbox
from chatlane.store.logs import partitions
from chatlane.store.logs.partitions import PartitionLease
from chatlane_schemas.dead import DeadReason, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.log import LogMessage, PartitionId
    from chatlane.nats.log_access import LogAccess
    from chatlane.nats.log_reader import LogReader
    from chatlane.postgres.pool import Transaction
    from chatlane.store.logs.partitions import Claim
TruncatedHandler = Callable[["PoolConnectionProxy", "PartitionId", LogTruncated], Awaitable[bool]]

# After this many takeovers without a hand-back, a message of the partition may crash routers.
SUSPECT_FROM: Final = 2
# A message at which this many routers crashed is not tried again.
_MOST_DEATHS: Final = 3
# Part of a lease that a partition pauses before its first suspect is tried. Routers that crash
# for another reason crash at what they do most, and soon after their start; that must not be the
# suspect. In between, other partitions proceed, and the try itself takes milliseconds.
_REST: Final = (0.25, 1.0)
_FIRST_PAUSE: Final = timedelta(milliseconds=50)
_LONGEST_PAUSE: Final = timedelta(seconds=1)

_log = get_logger("feed")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedDependencies:
    """Dependencies that all feeds of a router share.

    Attributes:
        on_truncated: Writes the dead letter of a missing range, in the transaction that skips it,
            and returns whether something was lost.
        on_change: Called when messages may be available or a batch may be possible.
        on_lost: Called when another router turns out to own a partition.
        tries: The last suspect of each partition that this process tried, and the number of that
            try: a process that tries it again did not crash at it, whatever else failed.
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
    """Read one partition from its claim until it is given up.

    Messages stay in the reader's memory until they are committed; the first `_handed` of them
    are handed out. An event that makes them invalid increments `token`.

    Attributes:
        partition: The id of the partition.
        epoch: The fencing number under which the partition is held.
        position: The committed position.
        token: The token of valid slices; a slice with another token must not be used.
        renewed_at: When the lease was last renewed, by the loop's clock.
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
    def partition_lease(self) -> PartitionLease:
        """The claim to the partition that the store checks."""
        return PartitionLease(self.partition, self.epoch)

    @property
    def is_quiet(self) -> bool:
        """Return whether no transaction works on this partition or is about to."""
        return self._handed == 0 and not self._is_busy

    @property
    def is_suspect(self) -> bool:
        """Return whether the messages of this partition are tried one at a time."""
        return self._is_suspect

    @property
    def is_idle(self) -> bool:
        """Return whether the reader waits at the end of its log and no message is handed out."""
        reader = self._reader
        return reader is not None and reader.is_caught_up and self.is_quiet

    @property
    def received_sequence(self) -> int:
        """The newest sequence that was received."""
        return self._reader.last_sequence if self._reader else self.position.cursor

    def unreadable_for(self, now: float) -> float:
        """Return for how many seconds the log has been unreadable."""
        return now - self._unreadable_since if self._unreadable_since is not None else 0.0

    def lag(self, now: datetime, loop_now: float) -> timedelta:
        """Return the age of the oldest message that was read and is not committed.

        While the log is unreadable, its content is unknown, so the lag is at least the time for
        which it has been unreadable.
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
        """Return the next messages without handing them out; at least one, if there are any."""
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
        """The cursor after all messages that are handed out are committed."""
        if self._reader is None or self._handed == 0:
            return self.position.cursor
        return self._reader.messages[self._handed - 1].sequence

    def hand_out(self, count: int) -> None:
        """Record that the next `count` messages are in a batch."""
        self._handed += count
        self._note_quiet()

    def commit(self, cursor: int, stored_at: datetime | None) -> None:
        """Record that everything up to `cursor` is committed."""
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
        """Take back the messages handed out, to hand them out first again after `delay`."""
        self._rest(delay)
        self._take_back()

    def _rest(self, delay: timedelta) -> None:
        self._rests_until = self._loop.time() + delay.total_seconds()
        self._loop.call_at(self._rests_until, self._its.on_change)

    def break_off(self, reason: str) -> None:
        """Close the reader, inspect the log, and read it again from the committed cursor."""
        if self._reader is not None:
            self._reader.break_off(reason)

    async def suspect_next(self) -> bool | None:
        """Commit that the next message is about to be tried.

        Each process counts one try of a message: a batch that failed and is retried in the same
        process did not crash it.

        Returns:
            Whether the message must not be tried again; None while that is unknown.
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
                        connection,
                        self._its.router,
                        self.partition_lease,
                        sequence,
                        self._its.lease,
                    )
            except TransientError:
                self.fail(_LONGEST_PAUSE)
                return None
        if count is None:
            self._its.on_lost(self.partition)
        return count

    def occupy(self) -> _Busy:
        """Return a context manager in which no message of this partition is handed out."""
        return _Busy(self)

    async def stop_offering(self) -> None:
        """Stop handing out messages, and wait until no transaction works on this partition."""
        self._is_offered = False
        while not self.is_quiet:
            await self._quiet.wait()

    async def close(self) -> None:
        """Stop reading; handed-out messages become invalid."""
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
            # Without a connection an early retry costs nothing.
            if self._its.access.is_reachable:
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _open_reader(self) -> LogReader:
        """Open a reader of the current log at the committed cursor.

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
        # The first word names the cause, the rest are details for people.
        reason = reader.break_reason.split(" ")[0]
        self._its.metrics.reader_recreations.labels(self.partition.log, reason).inc()
        if self._its.access.is_reachable:
            _log.info("partition_reader_broken", **self._place, reason=reader.break_reason)
        # A running batch may move the cursor; the position to continue at is known only then.
        while not self.is_quiet:
            await self._quiet.wait()
        await self._drop_reader()

    async def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        self._take_back()
        if reader is not None:
            await reader.close()

    def _count_alarm(self, alarm: LogAlarm) -> None:
        self._its.metrics.log_alarms.labels(self.partition.log, alarm).inc()

    async def _inspect(self) -> None:
        """Check that the cursor belongs to the current log; if not, move the cursor to its start.

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
                self._count_alarm(LogAlarm(found.reason))
                _log.critical(
                    "log_replaced",
                    **self._place,
                    reason=found.reason,
                    old_cursor=self.position.cursor,
                    new_cursor=found.cursor,
                )
            case LogTruncated():
                # Logged below, once it is known whether messages were lost.
                pass
        if await self._rewind(found) and isinstance(found, LogTruncated):
            self._count_alarm(LogAlarm.TRUNCATED)
            _log.critical(
                "log_truncated",
                **self._place,
                first_seq=found.first_missing,
                last_seq=found.cursor,
            )

    async def _rewind(self, found: LogUnbound | LogReplaced | LogTruncated) -> bool:
        """Move the cursor to the start of a log; return whether messages were lost."""
        is_loss = False
        async with self._its.transaction() as connection:
            epoch = await partitions.rewind(
                connection,
                self._its.router,
                self.partition_lease,
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
    """Mark a feed as busy while entered."""

    def __init__(self, feed: PartitionFeed) -> None:
        self._feed = feed

    def __enter__(self) -> None:
        self._feed._is_busy = True  # noqa: SLF001 # one object in two parts
        self._feed._note_quiet()  # noqa: SLF001

    def __exit__(self, *_exception: object) -> None:
        self._feed._is_busy = False  # noqa: SLF001
        self._feed._note_quiet()  # noqa: SLF001


async def record_lost_range(
    connection: PoolConnectionProxy, partition: PartitionId, loss: LogTruncated
) -> bool:
    """Write the dead letter of a missing range, in the transaction that skips it.

    The content is unknown; the body of the dead letter holds the sequences. A range that was
    deleted entirely by erasures gets no dead letter.

    Returns:
        Whether something was lost.
    """
    stream = LOG_STREAMS[partition.log]
    erased = await erasure_list_sql.count_holes(
        connection, stream, loss.generation, loss.first_missing, loss.cursor
    )
    if erased.noted > loss.cursor - loss.first_missing:
        return False
    missing = {"first": loss.first_missing, "last": loss.cursor}
    effects = Effects()
    add_dead_letter(
        effects,
        stage=Stage.INBOUND if partition.log == "inbound" else Stage.RESULTS,
        reason=DeadReason.LOG_TRUNCATED,
        at=datetime.now(UTC),
        trigger=f"{loss.generation}:{partition.log}:{partition.number}:{loss.first_missing}".encode(),
        body=to_json(missing),
        detail=f"sequences {loss.first_missing} to {loss.cursor}",
        log=partition.log,
        partition=partition.number,
        sequence=loss.first_missing,
    )
    await dead_letters.insert(connection, effects.dead)
    # The reader has no place in the order of the outbox, so the sweep publishes this row.
    await outbox.insert(connection, None, effects.publications)
    _log.critical(
        "log_truncated", log=partition.log, partition=partition.number, sequence=loss.first_missing
    )
    return True
