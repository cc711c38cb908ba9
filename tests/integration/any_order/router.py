"""A router of which the machine decides when it does what: the parts are the real ones.

Nothing of it happens by itself. It owns partitions by the real compare-and-set, decides batches
that the machine cuts, and its publishes are on their way until the machine lets them go.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from typing_extensions import override

from chatlane.decisions.unit_of_work import UnitOfWorkFactory
from chatlane.domain.log import LOGS, LogName, PartitionId
from chatlane.errors import TransientError
from chatlane.ingest.batch_committer import Batches
from chatlane.ingest.intake import Batch, Slice
from chatlane.nats.tasks import end_task
from chatlane.observability.metrics import Metrics
from chatlane.outbox.relay import Relay
from chatlane.requests.change_service import ChangeService
from chatlane.store.logs import partitions, routers
from chatlane.turns.claims import ClaimService
from chatlane.turns.leases import Deadlines
from chatlane.turns.timed_resets import TimedEnds
from tests.integration.any_order.world import SLOTS, HeldPublisher, World
from tests.support.worlds.protocol_machine import UnreliableStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection

    from chatlane.ingest.intake import Intake
    from chatlane.postgres.pool import Store

# Leases are ended by hand.
LEASE: Final = timedelta(hours=1)
DUPLICATE_WINDOW: Final = timedelta(minutes=10)
_A_FEW: Final = 12
_PATIENCE_SECONDS: Final = 30.0


class _Relay(Relay):
    """A relay that waits for nothing but its publishes."""

    @override
    async def run(self) -> None:
        await self._pipeline.run()

    async def tend(self) -> None:
        """Do what a relay does besides publishing, as far as the database lets it."""
        pipeline = self._pipeline
        with suppress(TransientError):
            while pipeline.some_stale.is_set():
                await self._reread()
            while pipeline.some_refused.is_set():
                await self._set_aside()

    async def clear(self) -> None:
        """Delete the rows that were published."""
        with suppress(TransientError):
            while self._pipeline.acknowledged_count:
                await self._delete_acknowledged()


class _Hand:
    """An intake of one batch at a time, which the machine puts into it."""

    def __init__(self) -> None:
        self.held: dict[PartitionId, tuple[int, int]] = {}
        self._next: asyncio.Queue[Batch] = asyncio.Queue(1)
        self._is_asked = asyncio.Event()

    async def next_batch(self, _most: int, _linger: timedelta) -> Batch:
        self._is_asked.set()
        batch = await self._next.get()
        self._is_asked.clear()
        return batch

    def full_batch(self, _most: int) -> None:
        return None

    async def have_settled(self, batch: Batch) -> None:
        """Return when a batch is committed, lost or put back."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await self._is_asked.wait()
            self._is_asked.clear()
            await self._next.put(batch)
            await self._is_asked.wait()

    def current(self, batch: Batch) -> Batch:
        mine = [one for one in batch.slices if self.held.get(one.partition) == _position(one)]
        return Batch(tuple(mine))

    def committed(self, batch: Batch) -> None:
        for one in batch.slices:
            self.held[one.partition] = (one.epoch, one.messages[-1].sequence)

    def failed(self, batch: Batch, _delay: timedelta) -> None:
        """Keep the cursors where they are."""

    def lost(self, lost: "Collection[PartitionId]") -> None:
        for partition in lost:
            self.held.pop(partition, None)


def _position(one: Slice) -> tuple[int, int]:
    return one.epoch, one.cursor


class Router:
    """One router; see the module.

    Attributes:
        store: Loses the next commits, or their answers, as it is told.
        controls: What it told workers at once.
    """

    def __init__(self, world: World, number: int) -> None:
        self.id = UUID(int=number)
        self.world = world
        self.store = UnreliableStore(world.store)
        self.publisher = HeldPublisher()
        self.metrics = Metrics()
        store, declared = cast("Store", self.store), world.catalog
        chance = Random(number)  # noqa: S311 - the same every time
        self.relay = _Relay(
            self.publisher,
            self.store.transaction,
            self.id,
            metrics=self.metrics,
            jitter=chance,
            duplicate_window=DUPLICATE_WINDOW,
        )
        self.writer = UnitOfWorkFactory(store, self.relay, self.metrics)
        self.desk = ClaimService(store, declared.agents)
        self.deadlines = Deadlines(store, self.writer, declared, _none_unread)
        self.changes = ChangeService(store, self.writer, declared, SLOTS)
        self.ends = TimedEnds(store, self.writer, declared, world.end_of)
        self.hand = _Hand()
        batches = Batches(
            cast("Intake", self.hand),
            self.writer,
            declared,
            self.metrics,
            router_id=self.id,
            lease=LEASE,
            slots=SLOTS,
            max_messages=100,
            linger=timedelta(0),
            jitter=chance,
            full_streams=lambda: self.relay.full_streams,
        )
        parts = (self.relay.run(), self.desk.run(), batches.run())
        self._tasks = [world.stage.loop.create_task(part) for part in parts]

    async def settle(self) -> None:
        """Return when everything that can be sent is on its way."""
        for _ in range(_A_FEW):
            await asyncio.sleep(0)
        await self.relay.tend()
        for _ in range(_A_FEW):
            await asyncio.sleep(0)

    async def own(self, most: int) -> None:
        """Count as alive, and take so many partitions of each log as are free."""
        async with self.store.transaction() as connection:
            await routers.heartbeat(connection, self.id, "test", LEASE)
        for log in LOGS:
            await self._own(log, most)

    async def _own(self, log: LogName, most: int) -> None:
        held = [one.number for one in self.hand.held if one.log == log]
        async with self.store.transaction() as connection:
            taken = await partitions.claim_free(
                connection, self.id, log, except_for=held, limit=most, lease=LEASE
            )
        self.hand.held |= {one.partition: (one.epoch, one.position.cursor) for one in taken}

    async def hand_back(self) -> None:
        """Give all partitions up in good order."""
        held, self.hand.held = self.hand.held, {}
        async with self.store.transaction() as connection:
            await partitions.hand_back(connection, self.id, held)

    async def decide(self, most: int, logs: "Collection[LogName]" = LOGS) -> None:
        """Decide what comes next in the partitions it believes to hold, so many of each."""
        slices = []
        for partition, (epoch, cursor) in sorted(self.hand.held.items()):
            messages = await self.world.read(partition, cursor, most)
            if partition.log in logs and messages:
                slices.append(
                    Slice(partition=partition, epoch=epoch, cursor=cursor, messages=tuple(messages))
                )
        if slices:
            await self.hand.have_settled(Batch(tuple(slices)))

    async def end(self) -> None:
        """Be killed: nothing is handed back, and what is on its way is lost."""
        await asyncio.gather(*map(end_task, self._tasks))
        for one in self.publisher.pending:
            one.future.cancel()


async def _none_unread(_agent: str) -> int:
    return 0


async def tried(work: "Awaitable[Any]") -> None:
    """Let a router do something that it would do again later if the database failed."""
    with suppress(TransientError):
        await work
