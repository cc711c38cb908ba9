"""What the routing needs of logs and partitions: the fakes of the tests and the real ones alike."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Final, cast
from uuid import UUID, uuid4

import pytest
from typing_extensions import override

from chatlane.domain.log import LogPosition, PartitionId
from chatlane.nats.log_access import LogAccess
from chatlane.nats.log_inspection import LogIntact, LogReplaced, LogTruncated, LogUnbound
from chatlane.nats.log_reader import LogReader, ReaderLimits
from chatlane.postgres.pool import Store, open_store
from chatlane.store.logs import partitions, routers
from chatlane.store.logs.partitions import Advance, Claim, PartitionLease
from tests.support.eventually import eventually
from tests.support.servers.log_streams import PARTITIONS, LogStreams, open_logs
from tests.support.worlds.memory_logs import MemoryAccess, MemoryLogs
from tests.support.worlds.memory_store import MemoryDatabase, MemoryStore

ME, OTHER = UUID(int=1), UUID(int=2)
NOON = datetime(2026, 5, 11, 12, tzinfo=UTC)
LEASE: Final = timedelta(minutes=1)
ENDED: Final = timedelta(0)
FIRST: Final = PartitionId("inbound", 0)
KINDS: Final = [
    pytest.param("memory", id="memory"),
    pytest.param("real", id="real", marks=pytest.mark.integration),
]


@pytest.fixture(params=KINDS)
def opening(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Store]:
    """A store, to be opened; not asynchronous, so that it may ask for what only one kind needs."""
    if request.param == "memory":
        return nullcontext(cast("Store", MemoryStore(MemoryDatabase())))
    return open_store(request.getfixturevalue("database_url"))


@pytest.fixture
async def store(opening: AbstractAsyncContextManager[Store]) -> AsyncIterator[Store]:
    async with opening as opened:
        async with opened.transaction() as connection:
            for log in ("inbound", "results"):
                await partitions.ensure(connection, log, PARTITIONS)
        yield opened


async def claim(
    store: Store,
    router: UUID = ME,
    *,
    held: Sequence[int] = (),
    limit: int = PARTITIONS,
    lease: timedelta = LEASE,
) -> list[Claim]:
    async with store.transaction() as connection:
        return await partitions.claim_free(
            connection, router, "inbound", except_for=held, limit=limit, lease=lease
        )


async def advance(store: Store, router: UUID, *steps: Advance) -> set[PartitionId]:
    async with store.transaction() as connection:
        return await partitions.advance(connection, router, steps, LEASE)


def numbers(claims: Sequence[Claim]) -> list[int]:
    return [one.partition.number for one in claims]


async def test_partitions_are_made_once(store: Store) -> None:
    async with store.transaction() as connection:
        await partitions.ensure(connection, "inbound", PARTITIONS)
        held = await partitions.holdings(connection)
    assert [(one.partition, one.owner, one.epoch, one.lease_seconds) for one in held] == [
        (PartitionId(log, number), None, 0, None)
        for log in ("inbound", "results")
        for number in range(PARTITIONS)
    ]


async def test_what_is_free_is_taken_in_order_and_what_is_held_is_not(store: Store) -> None:
    mine = await claim(store, limit=3)
    assert numbers(mine) == [0, 1, 2]
    assert [(one.epoch, one.dirty, one.had_owner) for one in mine] == [(1, 0, False)] * 3
    assert mine[0].position == LogPosition(0, None, None)
    assert numbers(await claim(store, OTHER)) == [3]
    assert await claim(store, OTHER, held=[3]) == []


async def test_what_expired_is_taken_over_and_is_dirty(store: Store) -> None:
    await claim(store, limit=1, lease=ENDED)
    (one,) = await claim(store, OTHER, limit=1)
    assert (one.epoch, one.dirty, one.had_owner) == (2, 1, True)


async def test_an_owner_that_forgot_takes_again_and_is_not_dirty(store: Store) -> None:
    await claim(store, limit=1)
    (one,) = await claim(store, limit=1)
    assert (one.epoch, one.dirty, one.had_owner) == (2, 0, False)


async def test_a_cursor_moves_from_where_it_stands_and_under_its_fencing_number(
    store: Store,
) -> None:
    (one,) = await claim(store, limit=1)
    assert await advance(store, ME, Advance(FIRST, one.epoch + 1, 0, 5, NOON)) == set()
    assert await advance(store, ME, Advance(FIRST, one.epoch, 1, 5, NOON)) == set()
    assert await advance(store, OTHER, Advance(FIRST, one.epoch, 0, 5, NOON)) == set()
    assert await advance(store, ME, Advance(FIRST, one.epoch, 0, 5, NOON)) == {FIRST}
    assert await advance(store, ME, Advance(FIRST, one.epoch, 0, 5, NOON)) == set()
    await hand_back(store, ME, FIRST)
    (again,) = await claim(store, OTHER, limit=1)
    assert again.position == LogPosition(5, NOON, None)


async def hand_back(store: Store, router: UUID, *given: PartitionId) -> set[PartitionId]:
    async with store.transaction() as connection:
        return await partitions.hand_back(connection, router, given)


async def test_only_the_owner_hands_back(store: Store) -> None:
    await claim(store, limit=1)
    assert await hand_back(store, OTHER, FIRST) == set()
    assert await hand_back(store, ME, FIRST) == {FIRST}
    (one,) = await claim(store, OTHER, limit=1)
    assert one.dirty == 0


async def test_renewals_keep_what_is_held_and_clean_what_is_caught_up(store: Store) -> None:
    await claim(store, OTHER, lease=ENDED)
    mine = await claim(store)
    async with store.transaction() as connection:
        partition_leases = [PartitionLease(one.partition, one.epoch) for one in mine]
        wrong = [PartitionLease(FIRST, 99), *partition_leases[1:]]
        renewed = await partitions.renew_idle(
            connection, ME, wrong, ENDED, caught_up={partition_leases[1].partition}
        )
    assert renewed == {one.partition for one in mine[1:]}
    taken = await claim(store, OTHER)
    assert {one.partition.number: one.dirty for one in taken} == {1: 1, 2: 2, 3: 2}


async def test_a_locked_row_is_skipped_by_who_only_looks_for_work(store: Store) -> None:
    (one,) = await claim(store, limit=1)
    async with store.transaction() as connection:
        await partitions.advance(connection, ME, [Advance(FIRST, one.epoch, 0, 5, NOON)], ENDED)
        assert numbers(await claim(store, OTHER)) == [1, 2, 3]
        async with store.transaction() as other:
            assert (
                await partitions.renew_idle(other, ME, [PartitionLease(FIRST, 1)], LEASE) == set()
            )
    # Nobody sees a transaction before it is committed, nor anything of one that is not.
    (late,) = await claim(store, OTHER, held=[1, 2, 3])
    assert late.position.cursor == 5


async def test_what_is_rolled_back_was_never_there(store: Store) -> None:
    (one,) = await claim(store, limit=1)
    with pytest.raises(ZeroDivisionError):
        await _advance_and_fail(store, one)
    assert await advance(store, ME, Advance(FIRST, one.epoch, 0, 7, NOON)) == {FIRST}


async def _advance_and_fail(store: Store, one: Claim) -> None:
    async with store.transaction() as connection:
        step = Advance(FIRST, one.epoch, 0, 5, NOON)
        assert await partitions.advance(connection, ME, [step], LEASE) == {FIRST}
        raise ZeroDivisionError


async def test_who_wants_a_locked_cursor_waits_and_finds_it_moved(store: Store) -> None:
    (one,) = await claim(store, limit=1)
    step = Advance(FIRST, one.epoch, 0, 5, NOON)
    async with store.transaction() as connection:
        await partitions.advance(connection, ME, [step], LEASE)
        second = asyncio.create_task(advance(store, ME, step))
        await asyncio.sleep(0)
        assert not second.done()
    assert await second == set()


async def test_a_rewind_raises_the_fencing_number_and_suspicion_counts(store: Store) -> None:
    (one,) = await claim(store, limit=1)
    partition_lease = PartitionLease(FIRST, one.epoch)
    async with store.transaction() as connection:
        counts = [
            await partitions.suspect(connection, ME, partition_lease, seq, LEASE)
            for seq in (7, 7, 8)
        ]
        assert counts == [1, 2, 1]
        epoch = await partitions.rewind(connection, ME, partition_lease, cursor=4, generation="new")
        assert epoch == one.epoch + 1
        assert await partitions.suspect(connection, ME, partition_lease, 8, LEASE) is None
    await hand_back(store, ME, FIRST)
    (again,) = await claim(store, OTHER, limit=1)
    assert again.position == LogPosition(4, None, "new")


async def test_routers_live_while_they_are_heard_of(store: Store) -> None:
    async with store.transaction() as connection:
        await routers.heartbeat(connection, OTHER, "1", LEASE)
        await routers.heartbeat(connection, ME, "1", LEASE)
        assert [peer.id for peer in await routers.live(connection)] == [ME, OTHER]
        await routers.withdraw(connection, ME)
        await routers.withdraw(connection, uuid4())
        (left,) = await routers.live(connection)
    assert left.id == OTHER
    assert 0 < left.seconds_left <= LEASE.total_seconds()


# The logs.


class Logs(ABC):
    """Logs, and access to them."""

    access: LogAccess

    @abstractmethod
    async def publish(self, partition: int, *bodies: str) -> None:
        """Store messages."""

    @abstractmethod
    async def recreate(self) -> None:
        """Delete the inbound log and make another one."""

    @abstractmethod
    async def purge_to(self, sequence: int) -> None:
        """Delete the oldest messages."""

    async def open(self, partition: int, start: int = 1) -> LogReader:
        """Open a reader."""
        return await self.access.open(
            PartitionId("inbound", partition),
            epoch=1,
            attempt=1,
            start_sequence=start,
            on_arrival=lambda: None,
        )


class FakeLogs(Logs):
    def __init__(self) -> None:
        self._server = MemoryLogs()
        self.access = cast("LogAccess", MemoryAccess(self._server, max_messages=4))

    @override
    async def publish(self, partition: int, *bodies: str) -> None:
        for body in bodies:
            self._server.publish(partition, body)

    @override
    async def recreate(self) -> None:
        self._server.recreate()

    @override
    async def purge_to(self, sequence: int) -> None:
        self._server.purge_to(sequence)


class RealLogs(Logs):
    def __init__(self, streams: LogStreams) -> None:
        self._streams = streams
        self.access = LogAccess(streams.bus, PARTITIONS, ReaderLimits(max_messages=4))

    @override
    async def publish(self, partition: int, *bodies: str) -> None:
        await self._streams.publish(partition, bodies)

    @override
    async def recreate(self) -> None:
        await self._streams.recreate()

    @override
    async def purge_to(self, sequence: int) -> None:
        await self._streams.purge_to(sequence)


@asynccontextmanager
async def open_real_logs(url: str) -> AsyncIterator[Logs]:
    async with open_logs(url) as streams:
        yield RealLogs(streams)


@pytest.fixture(params=KINDS)
def opening_logs(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Logs]:
    if request.param == "memory":
        return nullcontext(FakeLogs())
    return open_real_logs(request.getfixturevalue("nats_url"))


@pytest.fixture
async def logs(opening_logs: AbstractAsyncContextManager[Logs]) -> AsyncIterator[Logs]:
    async with opening_logs as opened:
        yield opened


def bodies(reader: LogReader) -> list[tuple[int, bytes]]:
    return [(message.sequence, message.body) for message in reader.messages]


async def test_a_reader_has_the_messages_of_its_partition_from_a_position_on(logs: Logs) -> None:
    await logs.publish(0, "a", "b")
    await logs.publish(1, "other")
    await logs.publish(0, "c")
    reader = await logs.open(0, start=2)
    await eventually(lambda: bodies(reader) == [(2, b"b"), (4, b"c")])
    assert reader.last_sequence == 4
    assert [message.partition for message in reader.messages] == [0, 0]
    assert not reader.is_caught_up
    reader.drop(2)
    await eventually(lambda: reader.is_caught_up)
    await logs.publish(0, "d")
    await eventually(lambda: bodies(reader) == [(5, b"d")])
    await reader.close()
    assert reader.broken.is_set()


async def test_a_reader_holds_no_more_than_it_may(logs: Logs) -> None:
    await logs.publish(2, *map(str, range(10)))
    reader = await logs.open(2)
    await eventually(lambda: len(reader.messages) == 4)
    read: list[bytes] = []
    while len(read) < 10:
        await eventually(lambda: reader.messages)
        assert len(reader.messages) <= 4
        read.append(reader.messages[0].body)
        reader.drop(1)
    assert read == [str(number).encode() for number in range(10)]
    await eventually(lambda: reader.is_caught_up)
    await reader.close()


async def test_a_reader_of_a_log_that_is_gone_breaks(logs: Logs) -> None:
    reader = await logs.open(0)
    await logs.recreate()
    await logs.publish(0, "a")
    await eventually(reader.broken.is_set)
    assert reader.messages == type(reader.messages)()
    await reader.close()


async def test_a_log_is_known_by_its_generation(logs: Logs) -> None:
    await logs.publish(0, "a", "b", "c")
    state = await logs.access.get_state("inbound")
    assert (state.first_sequence, state.last_sequence) == (1, 3)
    unbound = await logs.access.inspect("inbound", LogPosition(0, None, None))
    assert unbound == LogUnbound(0, state.generation)
    intact = LogPosition(3, state.last_stored_at, state.generation)
    assert await logs.access.inspect("inbound", intact) == LogIntact()
    moved = intact._replace(cursor_at=NOON)
    found = await logs.access.inspect("inbound", moved)
    assert found == LogReplaced("time_at_cursor", 0, state.generation)
    ahead = await logs.access.inspect("inbound", intact._replace(cursor=9))
    assert ahead == LogReplaced("tail_lost", 0, state.generation)
    await logs.purge_to(2)
    behind = await logs.access.inspect("inbound", LogPosition(1, None, state.generation))
    assert behind == LogTruncated(2, 2, state.generation)
    await logs.recreate()
    other = await logs.access.inspect("inbound", intact)
    assert isinstance(other, LogReplaced)
    assert (other.reason, other.cursor) == ("generation", 0)


async def test_the_end_of_a_partition_is_known(logs: Logs) -> None:
    await logs.publish(0, "a")
    await logs.publish(1, "b")
    ends = [
        await logs.access.find_last_sequence(PartitionId("inbound", number)) for number in range(3)
    ]
    assert ends == [1, 2, None]
