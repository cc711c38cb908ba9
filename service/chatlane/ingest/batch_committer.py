"""Commit batches of the two logs, each in one transaction that is retried until it commits.

A failed batch is retried in place, so the order within its partitions cannot change. A message
that always fails is found by splitting the batch: first by partition, so that the others
proceed, then in halves down to the one message, which becomes a dead letter.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final

from chatlane.decisions.batch_decision import BatchDecision, DecodedMessage, commands_in, decoded
from chatlane.decisions.inbound_decoder import ValidatedEvent
from chatlane.domain.dead_letters import RejectedMessage
from chatlane.domain.limits.shares import declared_owners, label_of, owner_of
from chatlane.domain.resolved_message import starts_turn
from chatlane.domain.turns.turn_results import ArrivedResult
from chatlane.errors import ResultAheadError, StoreUnavailableError, SupersededError, TransientError
from chatlane.failpoints import RouterPoint, hit
from chatlane.ingest.intake import Batch
from chatlane.nats.tasks import end_task
from chatlane.observability.logs import get_logger
from chatlane.observability.metrics import BatchOutcome
from chatlane.observability.tracing import batch_committed
from chatlane.postgres import blockers
from chatlane.store.logs import partitions
from chatlane.store.logs.partitions import Advance
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
    from random import Random
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.unit_of_work import UnitOfWorkFactory
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.erasure_key import ErasureKey
    from chatlane.domain.log import LogMessage, LogName, PartitionId
    from chatlane.ingest.intake import Intake, Slice
    from chatlane.observability.metrics import Metrics
    from chatlane.postgres.blockers import Blocker

_log = get_logger("batch")

_FIRST_DELAY: Final = 0.02
# Longest pause while the database is unavailable, and longest wait once it is back.
_LONGEST_DELAY: Final = 0.5
# Pause of a partition whose rows another transaction has locked.
_HELD_UP_FOR: Final = timedelta(seconds=1)
# Batches of such a partition are tried alone for this many seconds, and wait at most _SHORT_WAIT
# for a lock: while they wait, no other transaction of this router can write.
_TRIED_APART_FOR: Final = 10.0
_SHORT_WAIT: Final = timedelta(milliseconds=50)
_LOOK_FOR_BLOCKER_EVERY: Final = 0.01
# More conflicts than this in a row mean corrupt state, not contention.
_MAX_CONFLICT_RETRIES: Final = 30
# A message that fails this often alone in its transaction becomes a dead letter.
_TRIES_ALONE: Final = 3
# Decoding yields to the running transaction after this many messages, about 0.1 ms.
_YIELD_EVERY: Final = 8

# Pause before a message whose stream is full is tried again.
_FULL_STREAM_RETRY: Final = timedelta(milliseconds=500)
_HELD_BACK_SAID_EVERY: Final = 10.0
# Seconds; longer than a worker continues a turn that it cannot renew.
_RECALLED_FOR: Final = 300.0

# Each command takes extra statements; this many in one transaction still fit well into a lease.
_COMMANDS: Final = 16

_Ready = tuple["Batch", "Mapping[LogMessage, DecodedMessage]"]


class LostPartitionsError(TransientError):
    """The compare-and-set did not move these partitions: another router owns them now."""

    def __init__(self, lost: set[PartitionId]) -> None:
        self.lost = lost
        super().__init__(f"{len(lost)} partitions lost")


@dataclass(slots=True)
class _HeldUp:
    """A partition with a message whose rows another transaction has locked.

    Attributes:
        until: Monotonic time until which the partition is tried apart from others.
        sequence: Sequence of the message, once known; everything before it is committed.
        is_reported: Whether the holder of the lock has been logged.
    """

    until: float
    sequence: int | None = None
    is_reported: bool = False


@dataclass
class Batches:
    """Take batches from the intake and commit them, one after the other.

    Attributes:
        lease: The lease to which each committed batch renews its partitions.
        full_streams: Returns the streams that are full; messages that lead to them are not read.
        inbound_is_read: Returns whether every inbound message stored until a time is decided;
            without it the answer is always yes.
        erasure_key: The key of the erasure list; None if no person was ever erased.
        began_at: When this router started, by the clock of the logs; None means now, by the
            clock of this process.
        find_blocker: Returns the process that blocks a backend of the database.
    """

    intake: Intake
    writer: UnitOfWorkFactory
    catalog: Catalog
    metrics: Metrics
    router_id: UUID
    lease: timedelta
    slots: int
    max_messages: int
    linger: timedelta
    jitter: Random
    full_streams: Callable[[], Collection[str]] = tuple
    inbound_is_read: Callable[[datetime], Awaitable[bool]] | None = None
    erasure_key: ErasureKey | None = field(default=None, repr=False)
    began_at: datetime = field(default_factory=partial(datetime.now, UTC))
    find_blocker: Callable[[int], Awaitable[Blocker | None]] | None = None
    _held_up: dict[PartitionId, _HeldUp] = field(default_factory=dict, init=False)
    _held_back_said_at: float = field(default=-_HELD_BACK_SAID_EVERY, init=False)
    _recalls_until: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._owners = declared_owners(self.catalog)

    @property
    def has_held_up(self) -> bool:
        """Return whether a partition waits for a row that another transaction has locked."""
        return any(self._is_held_up(partition) for partition in self._held_up)

    def _is_held_up(self, partition: PartitionId) -> bool:
        held_up = self._held_up.get(partition)
        return held_up is not None and held_up.until > monotonic()

    def expect_forgotten_claims(self) -> None:
        """Treat results as older than this router for some time, after a database regression."""
        self._recalls_until = monotonic() + _RECALLED_FOR

    async def run(self) -> None:
        """Commit batches until cancelled; decode the next batch while one is in the database.

        Hand the partitions back before cancelling: then no batch is running that the
        cancellation could interrupt.
        """
        ahead: _Ready | None = None
        while True:
            if ahead is None:
                batch = await self.intake.next_batch(self.max_messages, self.linger)
                ahead = batch, await self._decode(batch)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._settle_what_has_room(*ahead))
                ahead = await self._decode_ahead()

    async def _decode_ahead(self) -> _Ready | None:
        """Decode the next batch if it is already full; a smaller one is left to grow."""
        await asyncio.sleep(0)
        batch = self.intake.full_batch(self.max_messages)
        return None if batch is None else (batch, await self._decode(batch))

    async def _decode(self, batch: Batch) -> Mapping[LogMessage, DecodedMessage]:
        began = monotonic()
        oldest = min(slice_.messages[0].stored_at for slice_ in batch.slices)
        queued = max(0.0, (datetime.now(UTC) - oldest).total_seconds())
        known: dict[LogMessage, DecodedMessage] = {}
        for slice_ in batch.slices:
            for message in slice_.messages:
                known[message] = decoded(
                    message,
                    self.catalog,
                    is_killer=slice_.is_process_killer,
                    is_old=message.stored_at < self.began_at or began < self._recalls_until,
                )
                if len(known) % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        self.metrics.stage_seconds.labels("queue").observe(queued)
        self.metrics.stage_seconds.labels("decode").observe(monotonic() - began)
        return known

    async def _settle_what_has_room(
        self, batch: Batch, known: Mapping[LogMessage, DecodedMessage]
    ) -> None:
        held = Batch(())
        if full := self.full_streams():
            batch, held = split_by_capacity(batch, known, full)
        for part in self._apart(batch):
            await self._settle(part, known)
        if held:
            # Not earlier: taking messages back invalidates the other slices of their partition.
            self.intake.failed(held, _FULL_STREAM_RETRY)
            self._report_held_back(full, len(held.messages))

    def _apart(self, batch: Batch) -> list[Batch]:
        free = Batch(
            tuple(slice_ for slice_ in batch.slices if not self._is_held_up(slice_.partition))
        )
        alone = [Batch((slice_,)) for slice_ in batch.slices if self._is_held_up(slice_.partition)]
        return [free, *alone] if free else alone

    def _report_held_back(self, full: Collection[str], messages: int) -> None:
        for stream in full:
            self.metrics.held_back.labels(stream).inc()
        now = monotonic()
        if now - self._held_back_said_at >= _HELD_BACK_SAID_EVERY:
            self._held_back_said_at = now
            _log.warning("messages_held_back", stream=sorted(full), messages=messages)

    async def _settle(self, batch: Batch, known: Mapping[LogMessage, DecodedMessage]) -> None:
        """Commit a batch: retry transient errors, split the batch on any other error."""
        if len(batch.messages) > 1 and self._has_many_commands(batch, known):
            for part in _parts(batch):
                await self._settle(part, known)
            return
        hit(RouterPoint.BATCH_TAKEN)
        try:
            await self._persist(batch, known)
        except Exception:  # noqa: BLE001 - a bug, or data that no transaction takes
            _log.exception("batch_failed", messages=len(batch.messages))
            self.metrics.batches.labels(BatchOutcome.FAILED).inc()
            await self._isolate(batch, known)

    @staticmethod
    def _has_many_commands(batch: Batch, known: Mapping[LogMessage, DecodedMessage]) -> bool:
        # Counting all decoded messages is faster than looking up those of the batch.
        return (
            commands_in(known.values()) > _COMMANDS
            and commands_in(map(known.get, batch.messages)) > _COMMANDS
        )

    async def _persist(self, batch: Batch, known: Mapping[LogMessage, DecodedMessage]) -> None:
        delay = _FIRST_DELAY
        races = 0
        while batch := self.intake.current(batch):
            began, began_ns = monotonic(), time_ns()
            try:
                await self._attempt(batch, known)
            except LostPartitionsError as error:
                self.metrics.batches.labels(BatchOutcome.SUPERSEDED).inc()
                self.intake.lost(error.lost)
            except SupersededError:
                self.metrics.batches.labels(BatchOutcome.SUPERSEDED).inc()
                races += 1
                if races > _MAX_CONFLICT_RETRIES:
                    raise
                await asyncio.sleep(_FIRST_DELAY * self.jitter.random())
            except ResultAheadError:
                await self._settle_in_time(batch, known)
                return
            except TransientError as error:
                self.metrics.batches.labels(BatchOutcome.FAILED).inc()
                _log.warning("batch_waits", error=str(error), messages=len(batch.messages))
                if isinstance(error, StoreUnavailableError) and error.is_held_up:
                    await self._part(batch, known)
                    return
                await asyncio.sleep(delay * self.jitter.uniform(0.5, 1))
                delay = min(2 * delay, _LONGEST_DELAY)
            else:
                for slice_ in batch.slices:
                    self._held_up.pop(slice_.partition, None)
                self.intake.committed(batch)
                batch_committed(batch.messages, began_ns)
                self._report(batch, timedelta(seconds=monotonic() - began))
                return

    async def _settle_in_time(
        self, batch: Batch, known: Mapping[LogMessage, DecodedMessage]
    ) -> None:
        """Find the result whose question is unknown, and let it wait while that may arrive."""
        if len(batch.messages) > 1:
            for part in _parts(batch):
                await self._persist(part, known)
            return
        (message,) = batch.messages
        content = known[message].content
        if isinstance(content, ArrivedResult) and await self._nothing_earlier_comes(message):
            final = known[message]._replace(content=replace(content, may_wait=False))
            await self._persist(batch, {message: final})
        else:
            self.intake.failed(batch, _HELD_UP_FOR)

    async def _nothing_earlier_comes(self, message: LogMessage) -> bool:
        if self.inbound_is_read is None:
            return True
        try:
            return await self.inbound_is_read(message.stored_at)
        except TransientError as error:
            _log.warning("batch_waits", error=str(error), messages=1)
            return False

    async def _part(self, batch: Batch, known: Mapping[LogMessage, DecodedMessage]) -> None:
        """Commit each partition alone, so that only the partition with locked rows waits.

        In that partition, everything before the message whose rows are locked is committed.
        """
        until = monotonic() + _TRIED_APART_FOR
        for slice_ in batch.slices:
            self._held_up.setdefault(slice_.partition, _HeldUp(until)).until = until
        if len(batch.slices) == 1:
            first = batch.messages[0].sequence
            held_up = self._held_up[batch.slices[0].partition]
            if len(batch.messages) == 1:
                held_up.sequence = first
            if held_up.sequence == first:
                self.intake.failed(batch, _HELD_UP_FOR)
                return
        for part in _parts(batch):
            await self._persist(part, known)

    async def _attempt(self, batch: Batch, known: Mapping[LogMessage, DecodedMessage]) -> None:
        """Commit the messages and the cursors after them, or nothing.

        The compare-and-set comes first: it also detects that an earlier attempt was committed
        although its commit was never confirmed.

        Raises:
            LostPartitionsError: This router does not own some partitions at these positions.
            TransientError: A retry may help.
        """
        async with (
            self.writer.begin() as unit_of_work,
            self._shortened(batch, unit_of_work.connection),
        ):
            unit_of_work.lap("wait")
            advanced = await partitions.advance(
                unit_of_work.connection,
                self.router_id,
                [_advance(slice_) for slice_ in batch.slices],
                self.lease,
            )
            if len(advanced) < len(batch.slices):
                raise LostPartitionsError({slice_.partition for slice_ in batch.slices} - advanced)
            unit_of_work.lap("fence")
            hit(RouterPoint.CURSORS_MOVED)
            messages = [known[message] for message in batch.messages]
            decision = BatchDecision(self.catalog, self.slots, self.erasure_key)
            await decision.run(unit_of_work, messages)
            hit(RouterPoint.BATCH_WRITTEN)

    @asynccontextmanager
    async def _shortened(
        self, batch: Batch, connection: PoolConnectionProxy
    ) -> AsyncIterator[None]:
        """Shorten the lock wait of a partition with locked rows, and log the holder."""
        if len(batch.slices) > 1 or not self._is_held_up(batch.slices[0].partition):
            yield
            return
        pid = await blockers.shorten_wait(connection, _SHORT_WAIT)
        held_up = self._held_up[batch.slices[0].partition]
        if self.find_blocker is None or held_up.is_reported:
            yield
            return
        looking = asyncio.create_task(self._report_blocker(held_up, batch, pid))
        try:
            yield
        finally:
            await end_task(looking)

    async def _report_blocker(self, held_up: _HeldUp, batch: Batch, pid: int) -> None:
        while self.find_blocker is not None:
            await asyncio.sleep(_LOOK_FOR_BLOCKER_EVERY)
            with suppress(TransientError):
                if blocker := await self.find_blocker(pid):
                    held_up.is_reported = True
                    _log.error(
                        "row_locked",
                        pid=blocker.pid,
                        holder=blocker.application,
                        session_id=blocker.session_id,
                        partition=batch.slices[0].partition.number,
                    )
                    return

    async def _isolate(self, batch: Batch, known: Mapping[LogMessage, DecodedMessage]) -> None:
        if len(batch.messages) == 1:
            await self._settle_alone(batch, known)
            return
        for part in _parts(batch):
            await self._settle(part, known)

    async def _settle_alone(self, batch: Batch, known: Mapping[LogMessage, DecodedMessage]) -> None:
        reason = ""
        for _ in range(1, _TRIES_ALONE):
            try:
                await self._persist(batch, known)
            except Exception as error:  # noqa: BLE001 - counted, then dead-lettered with its name
                reason = type(error).__name__
            else:
                return
        (message,) = batch.messages
        refused = RejectedMessage(message, DeadReason.INTERNAL_ERROR, reason)
        await self._persist(batch, {message: DecodedMessage(message, refused)})

    def _report(self, batch: Batch, took: timedelta) -> None:
        self.metrics.batches.labels(BatchOutcome.COMMITTED).inc()
        self.metrics.batch_seconds.observe(took.total_seconds())
        self.metrics.batch_messages.observe(len(batch.messages))
        now = datetime.now(UTC)
        oldest: dict[str, datetime] = {}
        for slice_ in batch.slices:
            first = slice_.messages[0].stored_at
            oldest[slice_.partition.log] = min(first, oldest.get(slice_.partition.log, first))
        for log, stored_at in oldest.items():
            self.metrics.log_lag.labels(log).set(max(0.0, (now - stored_at).total_seconds()))
        self._count_received(batch)

    def _count_received(self, batch: Batch) -> None:
        counts: dict[tuple[LogName, str], tuple[int, int]] = {}
        for message in batch.messages:
            key = message.log, owner_of(message.log, message.subject)
            messages, size = counts.get(key, (0, 0))
            counts[key] = messages + 1, size + len(message.body)
        for (log, owner), (messages, size) in counts.items():
            labels = log, label_of(owner, self._owners[log])
            self.metrics.received.labels(*labels).inc(messages)
            self.metrics.received_bytes.labels(*labels).inc(size)


def _parts(batch: Batch) -> list[Batch]:
    """Split a batch into smaller ones: one per partition, or two halves of a single partition.

    The newer half is valid only after the older half is committed.
    """
    if len(batch.slices) > 1:
        return [Batch((slice_,)) for slice_ in batch.slices]
    (whole,) = batch.slices
    middle = len(whole.messages) // 2
    older = replace(whole, messages=whole.messages[:middle])
    newer = replace(
        whole, messages=whole.messages[middle:], cursor=whole.messages[middle - 1].sequence
    )
    return [Batch((older,)), Batch((newer,))]


def _advance(slice_: Slice) -> Advance:
    last = slice_.messages[-1]
    return Advance(slice_.partition, slice_.epoch, slice_.cursor, last.sequence, last.stored_at)


def split_by_capacity(
    batch: Batch, known: Mapping[LogMessage, DecodedMessage], full: Collection[str]
) -> tuple[Batch, Batch]:
    """Split a batch into the messages that can proceed and those that have to wait.

    The order within a partition is kept: every message after a waiting message waits as well.
    """
    on: list[Slice] = []
    held: list[Slice] = []
    for slice_ in batch.slices:
        free = next(
            (n for n, message in enumerate(slice_.messages) if _leads_to(known[message]) in full),
            len(slice_.messages),
        )
        if free:
            on.append(replace(slice_, messages=slice_.messages[:free]))
        if free < len(slice_.messages):
            held.append(replace(slice_, messages=slice_.messages[free:]))
    return Batch(tuple(on)), Batch(tuple(held))


def _leads_to(message: DecodedMessage) -> StreamName | None:
    content = message.content
    if isinstance(content, ArrivedResult):
        return StreamName.OUTBOUND
    if not isinstance(content, ValidatedEvent):
        # Dead letters are database rows; their announcements are few and small.
        return None
    declared = content.declared
    if not starts_turn(declared.event, declared.agent) or declared.is_ignored:
        return None
    if declared.command is not None and declared.command.is_for_router_only:
        return StreamName.OUTBOUND
    return StreamName.ROUTED if declared.agent.delivery == "stream" else StreamName.TURNS
