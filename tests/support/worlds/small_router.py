"""A router that decides nothing: it notes every message in the transaction that moves the cursor.

Several run in one process, each with its own id. What they noted is a table, so a message that
was read twice or out of order shows, whatever was lost on the way to the test.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from typing_extensions import override

from chatlane.domain.log import LogName, LogPosition, PartitionId
from chatlane.errors import BusUnavailableError, TransientError
from chatlane.ingest.idle_partitions import IdleCheck
from chatlane.ingest.intake import Batch, Intake
from chatlane.ingest.ownership import Ownership
from chatlane.nats.log_access import LogAccess
from chatlane.nats.log_inspection import Inspection, LogTruncated
from chatlane.nats.log_reader import LogReader, ReaderLimits
from chatlane.nats.tasks import end_task
from chatlane.postgres.pool import Store
from chatlane.store.logs import partitions
from chatlane.store.logs.partitions import Advance
from tests.support.servers.log_streams import LogStreams

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

LEASE = timedelta(seconds=1)
NOTED_SQL = "SELECT partition, body FROM noted ORDER BY place"


class CuttableAccess(LogAccess):
    """Access to the logs that a test can take away from one router."""

    is_cut = False

    @property
    @override
    def is_reachable(self) -> bool:
        return not self.is_cut and super().is_reachable

    @override
    async def inspect(self, log: LogName, position: LogPosition) -> Inspection:
        self._check()
        return await super().inspect(log, position)

    @override
    async def open(self, partition: PartitionId, **how: object) -> LogReader:
        self._check()
        return await super().open(partition, **how)  # type: ignore[arg-type]

    def _check(self) -> None:
        if self.is_cut:
            raise BusUnavailableError("cut")


@dataclass
class SmallRouter:
    """One router; see the module."""

    store: Store
    access: CuttableAccess
    lease: timedelta = LEASE
    router_id: UUID = field(default_factory=uuid4)
    truncated: list[tuple[PartitionId, LogTruncated]] = field(default_factory=list)
    batch_sizes: list[int] = field(default_factory=list)
    killers: list[str] = field(default_factory=list)
    take_overs: int = 0
    regressions: int = 0
    max_messages: int = 64
    deadly: str | None = None
    jitter: Random | None = None

    def __post_init__(self) -> None:
        self.has_died = asyncio.Event()
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.intake = Intake(
            router=self.router_id,
            lease=self.lease,
            access=self.access,
            transaction=self.store.transaction,
            on_truncated=self._truncated,
            jitter=self.jitter,
        )
        self.ownership = Ownership(
            router=self.router_id,
            version="test",
            partition_count=self.access.partition_count,
            holder=self.intake,
            transaction=self.store.transaction,
            is_log_reachable=lambda: self.access.is_reachable,
            on_taken_over=self._taken_over,
            on_database_regressed=self._regressed,
            lease=self.lease,
            renew_interval=self.lease / 3,
            poll_interval=timedelta(milliseconds=50),
        )
        self.idle_check = IdleCheck(
            router=self.router_id,
            lease=self.lease,
            intake=self.intake,
            access=self.access,
            transaction=self.store.transaction,
        )
        self._tasks: list[asyncio.Task[None]] = []

    def _taken_over(self) -> None:
        self.take_overs += 1

    def _regressed(self) -> None:
        self.regressions += 1

    def start(self) -> None:
        """Own partitions and commit batches; again after `freeze`."""
        self._tasks = [
            asyncio.create_task(self.ownership.run()),
            asyncio.create_task(self._commit_batches()),
        ]

    async def freeze(self) -> None:
        """Do nothing more, as after SIGSTOP: nothing is renewed and nothing is handed back."""
        await asyncio.gather(*map(end_task, self._tasks))

    async def stop(self) -> None:
        """Hand everything back and end."""
        await self.ownership.stop()
        await self.freeze()
        await self.intake.close()

    async def kill(self) -> None:
        """End without handing anything back."""
        await self.freeze()
        await self.intake.close()

    def held(self, log: str = "inbound") -> set[int]:
        """Return the numbers of the partitions held."""
        return {
            one.partition.number for one in self.intake.partition_leases if one.partition.log == log
        }

    async def _commit_batches(self) -> None:
        while True:
            batch = await self.intake.next_batch(self.max_messages, timedelta(milliseconds=2))
            self.batch_sizes.append(len(batch.messages))
            await self._die_of(batch)
            await self.may_commit.wait()
            try:
                await self.commit(batch)
            except TransientError:
                self.intake.failed(batch, timedelta(milliseconds=50))

    async def _die_of(self, batch: Batch) -> None:
        """Do nothing more, once a message that ends processes is looked into."""
        looked_into = [one.body for one in batch.messages if not batch.is_process_killer(one)]
        if self.deadly is not None and self.deadly.encode() in looked_into:
            self.has_died.set()
            await asyncio.Event().wait()

    async def commit(self, batch: Batch) -> None:
        """Note the messages and move the cursors, or drop what was lost."""
        steps = [
            Advance(
                one.partition,
                one.epoch,
                one.cursor,
                one.messages[-1].sequence,
                one.messages[-1].stored_at,
            )
            for one in batch.slices
        ]
        async with self.store.transaction() as connection:
            moved = await partitions.advance(connection, self.router_id, steps, self.lease)
            await self._note(connection, batch, moved)
        lost = {one.partition for one in steps} - moved
        self.intake.committed(batch, except_for=lost)
        self.intake.lost(lost)

    async def _note(
        self, connection: "PoolConnectionProxy", batch: Batch, moved: set[PartitionId]
    ) -> None:
        self.killers += [
            message.body.decode() for message in batch.messages if batch.is_process_killer(message)
        ]
        await connection.executemany(
            "INSERT INTO noted (partition, sequence, body, router) VALUES ($1, $2, $3, $4)",
            [
                (message.partition, message.sequence, message.body.decode(), self.router_id)
                for one in batch.slices
                for message in one.messages
                if one.partition in moved
            ],
        )

    async def _truncated(
        self, _connection: "PoolConnectionProxy", partition: PartitionId, found: LogTruncated
    ) -> bool:
        self.truncated.append((partition, found))
        return True


async def noted(store: Store) -> dict[int, list[str]]:
    """Return what was committed of each partition of the inbound log, in order of commits."""
    async with store.transaction() as connection:
        rows = await connection.fetch(NOTED_SQL)
    by_partition = defaultdict(list)
    for row in rows:
        by_partition[row["partition"]].append(row["body"])
    return dict(by_partition)


async def prepare(store: Store, count: int) -> None:
    """Make the partitions and the table of notes."""
    async with store.transaction() as connection:
        await partitions.ensure(connection, "inbound", count)
        await partitions.ensure(connection, "results", count)
        await connection.execute(
            "DROP TABLE IF EXISTS noted;"
            " CREATE TABLE noted (place bigint GENERATED ALWAYS AS IDENTITY, partition int,"
            " sequence bigint, body text, router uuid)"
        )


@asynccontextmanager
async def open_routers(
    store: Store,
    logs: LogStreams,
    count: int = 1,
    *,
    lease: timedelta = LEASE,
    limits: ReaderLimits | None = None,
) -> AsyncIterator[list[SmallRouter]]:
    """Yield routers that are not started yet; they are killed at the end."""
    routers = [
        SmallRouter(store, CuttableAccess(logs.bus, logs.partitions, limits), lease=lease)
        for _ in range(count)
    ]
    try:
        yield routers
    finally:
        for router in routers:
            with suppress(TransientError):
                await router.kill()


def shares(routers: Iterable[SmallRouter], log: str = "inbound") -> list[int]:
    """Return how many partitions each router holds."""
    return [len(router.held(log)) for router in routers]
