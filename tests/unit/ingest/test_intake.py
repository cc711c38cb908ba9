"""How batches are made of what the readers hold: order, fairness and bounds."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest

from chatlane.domain.log import LogMessage, LogPosition, PartitionId
from chatlane.ingest.intake import Batch, Intake
from chatlane.nats.log_inspection import LogIntact
from chatlane.store.logs.partitions import Claim
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from chatlane.nats.log_access import LogAccess

NOW = timedelta(0)
NOON = datetime(2026, 5, 11, 12, tzinfo=UTC)


class FakeReader:
    """Holds what a test puts in."""

    is_caught_up = False
    last_sequence = 0
    break_reason = ""

    def __init__(self, start_sequence: int, on_arrival: Callable[[], None]) -> None:
        self.start_sequence = start_sequence
        self.messages: deque[LogMessage] = deque()
        self.broken = asyncio.Event()
        self._on_arrival = on_arrival

    def deliver(self, partition: PartitionId, *sequences: int, size: int = 1) -> None:
        for sequence in sequences:
            body = bytes(size)
            self.messages.append(LogMessage(*partition, sequence, NOON, "subject", None, body))
        self._on_arrival()

    def drop(self, count: int) -> None:
        for _ in range(count):
            self.messages.popleft()

    def break_off(self, _reason: str) -> None:
        self.broken.set()

    async def close(self) -> None:
        self.broken.set()


class FakeAccess:
    """Opens fake readers on logs that are always as they were."""

    is_reachable = True

    def __init__(self) -> None:
        self.readers: dict[PartitionId, list[FakeReader]] = {}

    async def inspect(self, *_of: object) -> LogIntact:
        return LogIntact()

    async def open(self, partition: PartitionId, **how: Any) -> FakeReader:  # noqa: ANN401
        reader = FakeReader(how["start_sequence"], how["on_arrival"])
        self.readers.setdefault(partition, []).append(reader)
        return reader


class World:
    """An intake that holds some partitions."""

    def __init__(self) -> None:
        self.access = FakeAccess()
        self.intake = Intake(
            router=uuid4(),
            lease=timedelta(seconds=3),
            access=cast("LogAccess", self.access),
            transaction=_no_transaction,
            on_truncated=_never,
        )

    async def hold(self, *numbers: int) -> None:
        claims = [
            Claim(
                PartitionId("inbound", number),
                1,
                LogPosition(0, None, "g"),
                0,
                had_owner=False,
            )
            for number in numbers
        ]
        self.intake.hold(claims)
        await eventually(lambda: all(one.partition in self.access.readers for one in claims))

    def reader(self, number: int) -> FakeReader:
        return self.access.readers[PartitionId("inbound", number)][-1]

    def deliver(self, number: int, *sequences: int, size: int = 1) -> None:
        self.reader(number).deliver(PartitionId("inbound", number), *sequences, size=size)

    async def next(self, max_messages: int = 100, max_bytes: int = 10_000) -> dict[int, list[int]]:
        return contents(await self.intake.next_batch(max_messages, NOW, max_bytes))


def _no_transaction() -> AbstractAsyncContextManager[Any]:
    raise AssertionError("nothing here needs the database")


async def _never(*_of: object) -> bool:
    raise AssertionError("nothing was lost")


def contents(batch: Batch) -> dict[int, list[int]]:
    return {
        one.partition.number: [message.sequence for message in one.messages] for one in batch.slices
    }


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = World()
    yield opened
    await opened.intake.close()


async def test_a_batch_has_what_there_is_of_all_partitions(world: World) -> None:
    await world.hold(1, 0)
    world.deliver(1, 3, 5)
    world.deliver(0, 4)
    assert await world.next() == {0: [4], 1: [3, 5]}


async def test_slices_are_in_the_order_of_locks(world: World) -> None:
    await world.hold(2, 0, 1)
    for number in (2, 1, 0):
        world.deliver(number, number + 1)
    batch = await world.intake.next_batch(100, NOW)
    assert list(batch.positions) == sorted(batch.positions)


async def test_a_long_backlog_takes_only_what_others_leave(world: World) -> None:
    await world.hold(0, 1, 2)
    world.deliver(0, *range(1, 1000, 3))
    world.deliver(1, 2, 5)
    world.deliver(2, *range(3, 60, 3))
    sizes = {number: len(of) for number, of in (await world.next(30)).items()}
    assert sizes == {0: 10, 1: 2, 2: 10}


async def test_a_flood_takes_no_more_than_a_quarter_of_a_batch(world: World) -> None:
    await world.hold(*range(8))
    world.deliver(0, *range(1, 1000))
    assert {number: len(of) for number, of in (await world.next(40)).items()} == {0: 10}
    ahead = world.intake.full_batch(40)
    assert ahead is not None
    assert len(ahead.messages) == 10
    # Who comes now waits for these two, and then goes with the next ones.
    world.deliver(5, 1000)
    assert {number: len(of) for number, of in (await world.next(40)).items()} == {0: 10, 5: 1}


async def test_everybody_gets_a_turn_in_batches_smaller_than_the_partitions(world: World) -> None:
    await world.hold(0, 1, 2)
    for number in range(3):
        world.deliver(number, *range(number + 1, 100, 3))
    seen = [await world.next(1) for _ in range(6)]
    assert sorted(number for batch in seen for number in batch) == [0, 0, 1, 1, 2, 2]


async def test_the_bytes_of_a_batch_are_bounded_but_one_message_always_goes(world: World) -> None:
    await world.hold(0)
    world.deliver(0, 1, 2, size=600)
    world.deliver(0, 3, size=5000)
    world.deliver(0, 4)
    seen = [await world.next(max_bytes=1000) for _ in range(4)]
    assert seen == [{0: [1]}, {0: [2]}, {0: [3]}, {0: [4]}]


async def test_lingering_lets_more_come_in(world: World) -> None:
    await world.hold(0)
    world.deliver(0, 1)
    taking = asyncio.create_task(world.intake.next_batch(100, timedelta(milliseconds=200)))
    await asyncio.sleep(0)
    world.deliver(0, 2)
    assert contents(await taking) == {0: [1, 2]}


async def test_a_batch_waits_for_the_first_message(world: World) -> None:
    await world.hold(0)
    taking = asyncio.create_task(world.next())
    await asyncio.sleep(0)
    assert not taking.done()
    world.deliver(0, 7)
    assert await asyncio.wait_for(taking, 5) == {0: [7]}


async def test_memory_is_freed_by_the_commit_and_not_before(world: World) -> None:
    await world.hold(0)
    world.deliver(0, 1, 2, 3)
    first = await world.intake.next_batch(2, NOW)
    assert len(world.reader(0).messages) == 3
    world.intake.committed(first)
    assert [one.sequence for one in world.reader(0).messages] == [3]
    assert world.intake.feeds[0].position == LogPosition(2, NOON, "g")


async def test_a_batch_that_is_out_is_followed_from_where_it_will_end(world: World) -> None:
    await world.hold(0)
    world.deliver(0, 5, 6, 9)
    (first,) = (await world.intake.next_batch(2, NOW)).slices
    (second,) = (await world.intake.next_batch(2, NOW)).slices
    assert (first.cursor, second.cursor) == (0, 6)
    assert [one.sequence for one in second.messages] == [9]


async def test_what_failed_rests_while_others_go_on(world: World) -> None:
    await world.hold(0, 1)
    world.deliver(0, 1)
    world.intake.failed(await world.intake.next_batch(9, NOW), timedelta(milliseconds=100))
    world.deliver(1, 2)
    assert await world.next() == {1: [2]}
    world.deliver(0, 3)
    assert await world.next() == {0: [1, 3]}


async def test_a_broken_reader_is_replaced_after_the_batch_that_runs(world: World) -> None:
    await world.hold(0)
    world.deliver(0, 1, 2)
    batch = await world.intake.next_batch(1, NOW)
    broken = world.reader(0)
    broken.break_off("gap")
    await asyncio.sleep(0)
    assert world.reader(0) is broken
    world.intake.committed(batch)
    await eventually(lambda: world.reader(0) is not broken)
    assert world.reader(0).start_sequence == 2
    world.deliver(0, 2)
    assert await world.next() == {0: [2]}


async def test_a_lost_partition_is_dropped_from_what_is_out(world: World) -> None:
    await world.hold(0, 1)
    world.deliver(0, 1)
    world.deliver(1, 2)
    batch = await world.intake.next_batch(9, NOW)
    world.intake.lost([PartitionId("inbound", 0)])
    assert world.intake.lost_some.is_set()
    assert contents(world.intake.current(batch)) == {1: [2]}
    world.intake.committed(batch)
    assert [one.partition.number for one in world.intake.partition_leases] == [1]


async def test_a_release_waits_for_what_is_out_and_offers_no_more(world: World) -> None:
    await world.hold(0, 1)
    world.deliver(0, 1, 3)
    batch = await world.intake.next_batch(1, NOW)
    releasing = asyncio.create_task(world.intake.release([PartitionId("inbound", 0)]))
    await eventually(lambda: world.intake._survey() == ([], 0))
    world.deliver(1, 2)
    assert await world.next() == {1: [2]}
    assert not releasing.done()
    world.intake.committed(batch)
    await asyncio.wait_for(releasing, 5)
    assert [one.partition.number for one in world.intake.partition_leases] == [1]


async def test_a_full_batch_is_handed_out_at_once(world: World) -> None:
    await world.hold(0, 1)
    world.deliver(0, 1, 2)
    assert world.intake.full_batch(4) is None
    world.deliver(1, 3, 4, 5)
    batch = world.intake.full_batch(4)
    assert batch is not None
    assert contents(batch) == {0: [1, 2], 1: [3, 4]}
    assert world.intake.full_batch(4) is None
