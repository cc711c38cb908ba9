"""Every partition is read by one router, whoever comes, goes, freezes or cannot read."""

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from chatlane.domain.log import PartitionId
from chatlane.postgres.pool import Store
from chatlane.store.logs import partitions, routers
from tests.support.eventually import eventually
from tests.support.servers.log_streams import LogStreams
from tests.support.worlds.small_router import LEASE, SmallRouter, noted, open_routers, shares

pytestmark = pytest.mark.integration

ALL = set(range(32))
LONG_LEASE = timedelta(seconds=30)


def hold_everything(*of: SmallRouter) -> bool:
    """Return whether these routers hold all partitions of both logs, each one of them once."""
    for log in ("inbound", "results"):
        held = [number for router in of for number in router.held(log)]
        if sorted(held) != sorted(ALL):
            return False
    return True


async def highest_dirty(store: Store) -> int:
    async with store.transaction() as connection:
        return cast("int", await connection.fetchval("SELECT max(dirty) FROM partitions"))


async def test_one_router_takes_both_logs_whole(store: Store, logs: LogStreams) -> None:
    async with open_routers(store, logs) as (router,):
        router.start()
        await eventually(lambda: hold_everything(router))


async def test_two_routers_share_both_logs(store: Store, logs: LogStreams) -> None:
    async with open_routers(store, logs, 2) as both:
        for router in both:
            router.start()
        await eventually(lambda: shares(both) == shares(both, "results") == [16, 16])
        await eventually(lambda: hold_everything(*both))


async def test_a_third_gets_its_share(store: Store, logs: LogStreams) -> None:
    async with open_routers(store, logs, 3) as three:
        for router in three[:2]:
            router.start()
        await eventually(lambda: shares(three) == [16, 16, 0])
        three[2].start()
        await eventually(lambda: sorted(shares(three)) == [10, 11, 11])
        await eventually(lambda: hold_everything(*three))


async def test_a_router_that_stops_hands_back_at_once(store: Store, logs: LogStreams) -> None:
    async with open_routers(store, logs, 2, lease=LONG_LEASE) as both:
        for router in both:
            router.start()
        await eventually(lambda: shares(both) == [16, 16])
        await both[0].stop()
        assert not both[0].held()
        # Long before any lease ends.
        await eventually(lambda: hold_everything(both[1]), timedelta(seconds=5))
        async with store.transaction() as connection:
            assert [peer.id for peer in await routers.live(connection)] == [both[1].router_id]
    assert await highest_dirty(store) == 0


async def test_who_takes_from_the_dead_is_told_so_and_nobody_else(
    store: Store, logs: LogStreams
) -> None:
    """What the dead have left in the outbox is then adopted at once."""
    # No lease of the living may end on a busy machine: they would be taken from as the dead are.
    async with open_routers(store, logs, 3, lease=3 * LEASE) as (dies, stops, stays):
        for router in (dies, stops, stays):
            router.start()
        await eventually(lambda: hold_everything(dies, stops, stays))
        await stops.stop()
        await eventually(lambda: hold_everything(dies, stays))
        assert stays.take_overs == 0
        await dies.kill()
        await eventually(lambda: hold_everything(stays))
        assert stays.take_overs >= 1


async def test_a_stop_waits_for_the_running_batch(store: Store, logs: LogStreams) -> None:
    async with open_routers(store, logs, 1, lease=LONG_LEASE) as (router,):
        router.start()
        await eventually(lambda: hold_everything(router))
        router.may_commit.clear()
        await logs.publish(3, ["in the batch"])
        await eventually(lambda: router.batch_sizes == [1])
        stopping = asyncio.create_task(router.stop())
        await eventually(lambda: router.held() == {3})
        assert not stopping.done()
        router.may_commit.set()
        await asyncio.wait_for(stopping, 5)
        assert await noted(store) == {3: ["in the batch"]}
        async with store.transaction() as connection:
            assert all(one.owner is None for one in await partitions.holdings(connection))


async def test_a_stop_does_not_wait_for_ever(store: Store, logs: LogStreams) -> None:
    async with open_routers(store, logs, 1, lease=LONG_LEASE) as (router,):
        router.start()
        await eventually(lambda: hold_everything(router))
        router.may_commit.clear()
        await logs.publish(3, ["in a batch that hangs"])
        await eventually(lambda: router.batch_sizes == [1])
        # Long enough to hand back what does not hang, on a busy machine, too.
        await asyncio.wait_for(router.ownership.stop(timedelta(seconds=2)), 10)
        assert router.held() == {3}


async def test_a_frozen_router_loses_everything_and_notices(store: Store, logs: LogStreams) -> None:
    async with open_routers(store, logs, 2) as (frozen, other):
        frozen.start()
        await eventually(lambda: hold_everything(frozen))
        await frozen.freeze()
        other.start()
        await eventually(lambda: hold_everything(other))
        # Whoever reads a partition to its end suspects nothing in it of having ended the other.

        async def is_trusted() -> bool:
            return await highest_dirty(store) == 0

        await eventually(is_trusted)
        frozen.start()
        await eventually(lambda: shares([frozen, other]) == [16, 16])
        await eventually(lambda: hold_everything(frozen, other))


async def test_what_a_frozen_router_had_in_its_hands_is_not_committed(
    store: Store, logs: LogStreams
) -> None:
    async with open_routers(store, logs, 2) as (frozen, other):
        frozen.start()
        await eventually(lambda: hold_everything(frozen))
        frozen.may_commit.clear()
        await logs.publish(5, ["one", "two"])
        await eventually(lambda: bool(frozen.batch_sizes))
        # Only its renewals stop: the batch is still on its way.
        frozen._tasks[0].cancel()
        other.start()
        await eventually(lambda: 5 in other.held())

        async def other_has_it() -> bool:
            return await noted(store) == {5: ["one", "two"]}

        await eventually(other_has_it)
        frozen.may_commit.set()
        await eventually(lambda: 5 not in frozen.held())
        assert await noted(store) == {5: ["one", "two"]}


async def test_the_partitions_of_a_dead_router_are_taken_when_its_lease_ends(
    store: Store, logs: LogStreams
) -> None:
    async with open_routers(store, logs, 2) as (dead, other):
        dead.start()
        other.start()
        await eventually(lambda: shares([dead, other]) == [16, 16])
        await dead.kill()
        await eventually(lambda: hold_everything(other))


async def test_a_router_without_its_log_lets_others_have_it(store: Store, logs: LogStreams) -> None:
    async with open_routers(store, logs, 2) as (cut, other):
        cut.start()
        other.start()
        await eventually(lambda: shares([cut, other]) == [16, 16])
        cut.access.is_cut = True
        for feed in cut.intake.feeds:
            feed.break_off("cut")
        await eventually(lambda: hold_everything(other))
        assert not cut.held()
        assert await highest_dirty(store) == 0
        cut.access.is_cut = False
        await eventually(lambda: shares([cut, other]) == [16, 16])


async def test_a_claim_whose_answer_was_lost_is_taken_up_again(
    store: Store, logs: LogStreams
) -> None:
    async with open_routers(store, logs) as (router,):
        async with store.transaction() as connection:
            await partitions.claim_free(
                connection, router.router_id, "inbound", except_for=(), limit=9, lease=LONG_LEASE
            )
        router.start()
        await eventually(lambda: hold_everything(router))


async def test_idle_partitions_stay_where_they_are(store: Store, logs: LogStreams) -> None:
    async with open_routers(store, logs, 2) as both:
        for router in both:
            router.start()
        await eventually(lambda: hold_everything(*both) and shares(both) == [16, 16])

        async def epochs() -> dict[PartitionId, int]:
            async with store.transaction() as connection:
                return {one.partition: one.epoch for one in await partitions.holdings(connection)}

        async def is_bound() -> bool:
            async with store.transaction() as connection:
                query = "SELECT bool_and(generation IS NOT NULL) FROM partitions"
                return bool(await connection.fetchval(query))

        await eventually(is_bound)
        before = await epochs()
        started = asyncio.get_running_loop().time()
        await eventually(lambda: asyncio.get_running_loop().time() - started > 2)
        assert await epochs() == before
        assert hold_everything(*both)


async def test_a_database_that_went_back_is_noticed_and_what_it_forgot_is_decided_again(
    store: Store, logs: LogStreams
) -> None:
    async with open_routers(store, logs, 2) as both:
        for router in both:
            router.start()
        await eventually(lambda: hold_everything(*both))
        kept = [f"kept {number}" for number in range(3)]
        await logs.publish(3, kept)

        async def are_noted(*bodies: str) -> bool:
            return (await noted(store)).get(3, []) == list(bodies)

        await eventually(lambda: are_noted(*kept))
        async with store.transaction() as connection:
            await connection.execute("DROP TABLE IF EXISTS before, noted_before")
            await connection.execute("CREATE TABLE before AS SELECT * FROM partitions")
            await connection.execute("CREATE TABLE noted_before AS SELECT * FROM noted")
        await logs.publish(3, ["forgotten"])
        await eventually(lambda: are_noted(*kept, "forgotten"))

        # Nothing is published after it: a partition that is silent is read again as well.
        async with store.transaction() as connection:
            await connection.execute(
                "UPDATE partitions SET cursor = before.cursor, cursor_at = before.cursor_at,"
                " epoch = before.epoch, owner = before.owner, lease_until = before.lease_until"
                " FROM before WHERE partitions.log = before.log AND partitions.id = before.id"
            )
            await connection.execute("DELETE FROM noted WHERE body = 'forgotten'")
        await eventually(lambda: are_noted(*kept, "forgotten"))
        await eventually(lambda: hold_everything(*both))
        assert max(router.regressions for router in both) == 1, "once by each that knew"


async def test_a_sign_of_life_that_the_database_forgot_is_noticed(
    store: Store, logs: LogStreams
) -> None:
    """Where no message was decided since, and the cursors are the same."""
    async with open_routers(store, logs) as (router,):
        router.start()
        await eventually(lambda: hold_everything(router))
        async with store.transaction() as connection:
            await connection.execute(
                "UPDATE routers SET seen_until = seen_until - interval '10 seconds'"
            )
        await eventually(lambda: router.regressions == 1)
        await eventually(lambda: hold_everything(router))
        assert router.regressions == 1


async def test_a_database_with_another_number_of_partitions_is_not_used(
    store: Store, logs: LogStreams
) -> None:
    async with open_routers(store, logs) as (router,):
        router.start()
        await eventually(lambda: hold_everything(router))
        async with store.transaction() as connection:
            await connection.execute("DELETE FROM partitions WHERE log = 'results' AND id = 31")
        await eventually(lambda: not router.held("inbound") and not router.held("results"))
        async with store.transaction() as connection:
            await connection.execute("INSERT INTO partitions (log, id) VALUES ('results', 31)")
        await eventually(lambda: hold_everything(router))
