"""Partitions in SQL: one owner at a time, fencing numbers, and the compare-and-set of cursors."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from chatlane.domain.log import LogPosition, PartitionId
from chatlane.errors import SchemaMismatchError
from chatlane.postgres.pool import Store, open_store
from chatlane.store.logs import partitions, routers
from chatlane.store.logs.partitions import Advance, Claim, PartitionLease
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

pytestmark = pytest.mark.integration

ME, OTHER = uuid4(), uuid4()
LEASE = timedelta(minutes=1)
SHORT = timedelta(milliseconds=1)
NOON = datetime(2026, 5, 11, 12, tzinfo=UTC)
FIRST = PartitionId("inbound", 0)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as opened:
        async with opened.transaction() as connection:
            await partitions.ensure(connection, "inbound", 4)
            await partitions.ensure(connection, "results", 4)
        yield opened


async def claim(
    store: Store,
    router: UUID = ME,
    limit: int = 4,
    lease: timedelta = LEASE,
    except_for: Iterable[int] = (),
) -> list[Claim]:
    async with store.transaction() as connection:
        return await partitions.claim_free(
            connection, router, "inbound", except_for=except_for, limit=limit, lease=lease
        )


async def advance(store: Store, *steps: Advance, router: UUID = ME) -> set[PartitionId]:
    async with store.transaction() as connection:
        return await partitions.advance(connection, router, steps, LEASE)


async def hand_back(store: Store, *claims: Claim, router: UUID = ME) -> set[PartitionId]:
    async with store.transaction() as connection:
        return await partitions.hand_back(connection, router, [one.partition for one in claims])


async def owners(store: Store) -> list[UUID | None]:
    async with store.transaction() as connection:
        rows = await partitions.holdings(connection)
    return [row.owner for row in rows if row.partition.log == "inbound"]


def partition_lease(one: Claim) -> PartitionLease:
    return PartitionLease(one.partition, one.epoch)


async def expire(store: Store) -> None:
    """Wait until the short leases are over."""

    async def is_over() -> bool:
        async with store.transaction() as connection:
            rows = await partitions.holdings(connection)
        return all((row.lease_seconds or 0) < 0 for row in rows if row.owner)

    await eventually(is_over)


async def test_rows_are_made_once(store: Store) -> None:
    async with store.transaction() as connection:
        await partitions.ensure(connection, "inbound", 4)
        assert len(await partitions.holdings(connection)) == 8


async def test_another_count_is_refused_in_words(store: Store) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        async with store.transaction() as connection:
            await partitions.ensure(connection, "inbound", 8)
    [difference] = caught.value.differences
    assert difference == (
        "the inbound log in the database has 4 partitions, router.partitions is 8: "
        "set router.partitions to 4, or move to new streams "
        "(docs/operations.md, Change the number of partitions)"
    )


async def test_a_first_claim_starts_at_nothing(store: Store) -> None:
    claims = await claim(store, limit=2)
    assert claims == [
        Claim(
            PartitionId("inbound", number),
            1,
            LogPosition(0, None, None),
            0,
            had_owner=False,
        )
        for number in (0, 1)
    ]


async def test_what_is_held_is_not_claimed_again(store: Store) -> None:
    await claim(store, limit=3)
    assert [one.partition.number for one in await claim(store, OTHER)] == [3]
    assert await owners(store) == [ME, ME, ME, OTHER]


async def test_an_expired_lease_is_taken_over_and_counted(store: Store) -> None:
    await claim(store, lease=SHORT)
    await expire(store)
    taken = await claim(store, OTHER, lease=SHORT)
    assert [(one.epoch, one.dirty, one.had_owner) for one in taken] == [(2, 1, True)] * 4
    await expire(store)
    assert [(one.epoch, one.dirty) for one in await claim(store)] == [(3, 2)] * 4


async def test_a_hand_back_counts_as_no_death(store: Store) -> None:
    claims = await claim(store)
    assert len(await hand_back(store, *claims)) == 4
    assert await owners(store) == [None] * 4
    assert [(one.epoch, one.dirty, one.had_owner) for one in await claim(store, OTHER)] == [
        (2, 0, False)
    ] * 4


async def test_only_the_owner_hands_back(store: Store) -> None:
    (one,) = await claim(store, limit=1)
    assert await hand_back(store, one, router=OTHER) == set()
    assert await owners(store) == [ME, None, None, None]


async def test_a_claim_whose_answer_was_lost_is_repeated_without_a_death(store: Store) -> None:
    await claim(store, limit=2)
    again = await claim(store, except_for=[1])
    assert [(one.partition.number, one.epoch, one.dirty) for one in again] == [
        (0, 2, 0),
        (2, 1, 0),
        (3, 1, 0),
    ]


async def test_a_claim_passes_over_rows_in_a_transaction(store: Store) -> None:
    async with AsyncExitStack() as stack:
        busy: PoolConnectionProxy = await stack.enter_async_context(store.transaction())
        await partitions.claim_free(busy, ME, "inbound", except_for=(), limit=2, lease=LEASE)
        assert [one.partition.number for one in await claim(store, OTHER)] == [2, 3]


async def test_a_step_from_the_committed_cursor_moves_it(store: Store) -> None:
    (one,) = await claim(store, limit=1)
    assert await advance(store, Advance(FIRST, one.epoch, 0, 7, NOON)) == {FIRST}
    await hand_back(store, one)
    (again,) = await claim(store, limit=1)
    assert (again.position.cursor, again.position.cursor_at) == (7, NOON)


@pytest.mark.parametrize(
    ("router", "epoch", "cursor"),
    [(OTHER, 1, 0), (ME, 2, 0), (ME, 1, 5)],
    ids=["other router", "other epoch", "other cursor"],
)
async def test_a_step_that_does_not_fit_moves_nothing(
    store: Store, router: UUID, epoch: int, cursor: int
) -> None:
    await claim(store, limit=1)
    assert await advance(store, Advance(FIRST, epoch, cursor, 7, NOON), router=router) == set()


async def test_the_steps_that_fit_are_told_from_the_others(store: Store) -> None:
    claims = await claim(store)
    steps = [
        Advance(one.partition, one.epoch + (one.partition.number % 2), 0, 9, NOON) for one in claims
    ]
    moved = await advance(store, *steps)
    assert moved == {PartitionId("inbound", 0), PartitionId("inbound", 2)}


async def test_a_repeated_step_after_an_unknown_commit_moves_nothing(store: Store) -> None:
    (one,) = await claim(store, limit=1)
    step = Advance(FIRST, one.epoch, 0, 7, NOON)
    assert await advance(store, step) == {FIRST}
    assert await advance(store, step) == set()


async def test_a_committed_batch_clears_suspicion_and_renews(store: Store) -> None:
    await claim(store, OTHER, lease=SHORT)
    await expire(store)
    (one, *_) = await claim(store, lease=SHORT)
    async with store.transaction() as connection:
        assert await partitions.suspect(connection, ME, partition_lease(one), 7, SHORT) == 1
    assert await advance(store, Advance(FIRST, one.epoch, 0, 7, NOON)) == {FIRST}
    async with store.transaction() as connection:
        row = await connection.fetchrow(
            "SELECT dirty, suspect_seq, suspect_count, lease_until > now() AS renewed"
            " FROM partitions WHERE log = 'inbound' AND id = 0"
        )
    assert tuple(row or ()) == (0, None, 0, True)


async def test_suspicion_counts_tries_of_one_message(store: Store) -> None:
    (one,) = await claim(store, limit=1)
    counts = []
    async with store.transaction() as connection:
        for sequence in (7, 7, 7, 8):
            counts.append(  # noqa: PERF401 # an asynchronous comprehension would need a generator
                await partitions.suspect(connection, ME, partition_lease(one), sequence, LEASE)
            )
        assert await partitions.suspect(connection, OTHER, partition_lease(one), 8, LEASE) is None
    assert counts == [1, 2, 3, 1]


async def test_a_rewind_changes_the_fencing_number(store: Store) -> None:
    (one,) = await claim(store, limit=1)
    async with store.transaction() as connection:
        epoch = await partitions.rewind(
            connection, ME, partition_lease(one), cursor=4, generation="another"
        )
        assert epoch == 2
        again = await partitions.rewind(
            connection, ME, partition_lease(one), cursor=0, generation="x"
        )
        assert again is None
    await hand_back(store, one)
    (later,) = await claim(store, limit=1)
    assert later.position == LogPosition(4, None, "another")


async def test_renewals_reach_what_is_still_ours_and_not_in_a_transaction(store: Store) -> None:
    claims = await claim(store, lease=SHORT)
    wanted = [partition_lease(one) for one in claims]
    wanted[1] = wanted[1]._replace(epoch=99)
    async with AsyncExitStack() as stack:
        busy: PoolConnectionProxy = await stack.enter_async_context(store.transaction())
        await partitions.advance(busy, ME, [Advance(FIRST, 1, 0, 1, NOON)], LEASE)
        async with store.transaction() as connection:
            renewed = await partitions.renew_idle(connection, ME, wanted, LEASE)
    assert renewed == {PartitionId("inbound", 2), PartitionId("inbound", 3)}
    assert [one.partition.number for one in await claim(store, OTHER)] == [1]


async def test_a_partition_read_to_its_end_is_no_longer_suspect(store: Store) -> None:
    await claim(store, OTHER, lease=timedelta(0))
    claims = await claim(store)
    assert {one.dirty for one in claims} == {1}
    async with store.transaction() as connection:
        await partitions.renew_idle(
            connection,
            ME,
            [partition_lease(one) for one in claims],
            timedelta(0),
            caught_up={FIRST},
        )
    again = await claim(store, OTHER)
    assert {one.partition.number: one.dirty for one in again} == {0: 1, 1: 2, 2: 2, 3: 2}


async def test_routers_live_as_long_as_they_are_heard_of(store: Store) -> None:
    first, second = sorted((ME, OTHER))
    async with store.transaction() as connection:
        await routers.heartbeat(connection, second, "1", LEASE)
        await routers.heartbeat(connection, first, "1", LEASE)
        assert [peer.id for peer in await routers.live(connection)] == [first, second]
        await routers.withdraw(connection, first)
        (left,) = await routers.live(connection)
        assert left.id == second
        assert 0 < left.seconds_left <= LEASE.total_seconds()
        await routers.prune(connection, timedelta(0))
        assert await connection.fetchval("SELECT count(*) FROM routers") == 1
