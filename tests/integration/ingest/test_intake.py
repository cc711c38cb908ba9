"""What is in the log is committed once and in order, whatever happens to servers and logs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from chatlane.domain.log import LogName, PartitionId
from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import StreamState
from chatlane.nats.log_inspection import LogTruncated
from chatlane.nats.log_reader import ReaderLimits
from chatlane.postgres.pool import Store, open_store
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningPostgres, RunningServer
from tests.support.servers.databases import migrated, open_database
from tests.support.servers.log_streams import LogStreams, chat_in, message_id_of, open_logs
from tests.support.worlds.small_router import SmallRouter, noted, open_routers, prepare

pytestmark = pytest.mark.integration

PARTITIONS = 4


@pytest.fixture
async def logs(nats_url: str) -> AsyncIterator[LogStreams]:
    async with open_logs(nats_url, PARTITIONS) as opened:
        yield opened


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as opened:
        await prepare(opened, PARTITIONS)
        yield opened


@asynccontextmanager
async def running(
    store: Store, logs: LogStreams, limits: ReaderLimits | None = None
) -> AsyncIterator[SmallRouter]:
    """Yield one router that reads all partitions."""
    async with open_routers(store, logs, limits=limits) as (router,):
        router.start()
        await eventually(lambda: len(router.held()) == PARTITIONS)
        await eventually(lambda: all(feed.is_idle for feed in router.intake.feeds))
        yield router


def has_noted(store: Store, expected: dict[int, list[str]]) -> Callable[[], object]:
    async def check() -> bool:
        assert await noted(store) == expected
        return True

    return check


async def cursors(store: Store, log: str = "inbound") -> list[int]:
    async with store.transaction() as connection:
        rows = await connection.fetch(
            "SELECT cursor FROM partitions WHERE log = $1 ORDER BY id", log
        )
    return [row["cursor"] for row in rows]


async def send_steadily(logs: LogStreams, total: int) -> dict[int, list[str]]:
    """Publish numbered messages round the partitions, each until it is acknowledged."""
    sent: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
    for number in range(total):
        partition, body = number % PARTITIONS, f"m{number}"
        subject = f"chat.v1.inbound.telegram.bot.{chat_in(partition)}"
        while True:
            try:
                await (await logs.publisher.publish(subject, body.encode(), message_id_of(body)))
            except BusUnavailableError:
                await asyncio.sleep(0.01)
            else:
                break
        sent[partition].append(body)
    return sent


async def test_five_kills_of_nats_lose_repeat_and_reorder_nothing(
    store: Store, nats_server: RunningServer
) -> None:
    async with open_logs(nats_server.url, PARTITIONS) as logs, running(store, logs):
        sending = asyncio.create_task(send_steadily(logs, 2500))
        for kill in range(5):

            async def has_come(least: int = 400 * (kill + 1)) -> bool:
                return sum(map(len, (await noted(store)).values())) >= least

            await eventually(has_come)
            await nats_server.kill()
            await nats_server.start()
        sent = await asyncio.wait_for(sending, 30)
        await eventually(has_noted(store, sent))


async def test_kills_of_postgres_lose_repeat_and_reorder_nothing(
    logs: LogStreams, own_postgres: RunningPostgres
) -> None:
    async with open_database(own_postgres.url) as name:
        dsn = own_postgres.dsn(name)
        await migrated(dsn)
        async with open_store(dsn) as store:
            await prepare(store, PARTITIONS)
            async with running(store, logs):
                sending = asyncio.create_task(send_steadily(logs, 1500))
                for kill in range(2):

                    async def has_come(least: int = 400 * (kill + 1)) -> bool:
                        return sum(map(len, (await noted(store)).values())) >= least

                    await eventually(has_come)
                    await own_postgres.kill()
                    await own_postgres.start()
                sent = await asyncio.wait_for(sending, 30)
                await eventually(has_noted(store, sent))


async def test_a_backlog_larger_than_all_buffers_is_worked_off_in_order(
    store: Store, logs: LogStreams
) -> None:
    sent = {number: [f"p{number} m{i}" for i in range(300)] for number in range(PARTITIONS)}
    for number, bodies in sent.items():
        await logs.publish(number, bodies)
    async with open_routers(store, logs, limits=ReaderLimits(max_messages=40)) as (router,):
        router.start()
        await eventually(has_noted(store, sent))
        # No partition waited for another: nearly all batches had messages of all of them.
        assert max(router.batch_sizes) <= router.max_messages
    assert await cursors(store) == [300, 600, 900, 1200]


async def test_a_failed_batch_comes_again_before_what_follows(
    store: Store, logs: LogStreams
) -> None:
    async with running(store, logs) as router:
        router.may_commit.clear()
        await logs.publish(0, ["one", "two"])
        await eventually(lambda: router.batch_sizes == [2])
        await logs.publish(0, ["three"])
        for feed in router.intake.feeds:
            feed.fail(timedelta(milliseconds=10))
        router.may_commit.set()
        await eventually(has_noted(store, {0: ["one", "two", "three"]}))


async def test_a_batch_that_became_void_is_told_from_a_valid_one(
    store: Store, logs: LogStreams
) -> None:
    async with running(store, logs) as router:
        router._tasks[1].cancel()
        await logs.publish(0, ["one"])
        first = await router.intake.next_batch(10, timedelta(0))
        await logs.publish(0, ["two"])
        await logs.publish(1, ["other"])
        await eventually(lambda: router.intake._survey()[1] == 2)
        second = await router.intake.next_batch(10, timedelta(0))
        assert [message.body for message in second.messages] == [b"two", b"other"]
        assert second.positions[PartitionId("inbound", 0)].cursor == 1
        router.intake.failed(first, timedelta(0))
        left = router.intake.current(second)
        assert [message.body for message in left.messages] == [b"other"]
        await router.commit(left)
        again = await router.intake.next_batch(10, timedelta(0))
        assert [message.body for message in again.messages] == [b"one", b"two"]
        await router.commit(again)
    assert await noted(store) == {0: ["one", "two"], 1: ["other"]}


async def test_a_log_made_anew_is_read_from_its_start(store: Store, logs: LogStreams) -> None:
    async with running(store, logs) as router:
        await logs.publish(0, ["old 1", "old 2"])
        await eventually(has_noted(store, {0: ["old 1", "old 2"]}))
        before = {feed.partition: feed.epoch for feed in router.intake.feeds}
        await logs.recreate()
        await logs.publish(0, ["new 1", "new 2", "new 3"])
        await eventually(has_noted(store, {0: ["old 1", "old 2", "new 1", "new 2", "new 3"]}))
        await eventually(
            lambda: all(
                feed.epoch == before[feed.partition] + 1
                for feed in router.intake.feeds
                if feed.partition.log == "inbound"
            )
        )
    assert (await cursors(store))[0] == 3


async def test_a_loss_is_reported_once_and_read_past(store: Store, logs: LogStreams) -> None:
    await logs.publish(0, [f"m{number}" for number in range(10)])
    async with running(store, logs) as router:
        await eventually(has_noted(store, {0: [f"m{number}" for number in range(10)]}))
        await router.stop()
    await logs.publish(0, [f"m{number}" for number in range(10, 20)])
    await logs.purge_to(15)
    async with running(store, logs) as router:
        await eventually(
            has_noted(store, {0: [f"m{number}" for number in (*range(10), *range(15, 20))]})
        )
        generation = (await logs.jetstream.get_stream("INBOUND")).generation
        inbound = [(one.number, found) for one, found in router.truncated]
        assert (0, LogTruncated(11, 15, generation)) in inbound
        assert len(inbound) == PARTITIONS


async def test_idle_partitions_follow_the_end_of_the_log(store: Store, logs: LogStreams) -> None:
    async with running(store, logs) as router:
        await logs.publish(2, ["one", "two"])
        await eventually(has_noted(store, {2: ["one", "two"]}))
        await router.idle_check.check()
        assert await cursors(store) == [0, 0, 2, 0]
        await router.idle_check.check()
        assert await cursors(store) == [2, 2, 2, 2]
        assert await cursors(store, "results") == [0, 0, 0, 0]
        await logs.publish(0, ["three"])
        await eventually(has_noted(store, {2: ["one", "two"], 0: ["three"]}))
        # The time at the end of the log was noted with it, so the next reader trusts it.
        for feed in router.intake.feeds:
            feed.break_off("test")
        await logs.publish(1, ["four"])
        await eventually(has_noted(store, {2: ["one", "two"], 0: ["three"], 1: ["four"]}))


async def test_an_idle_check_that_was_overtaken_moves_no_cursor_back(
    store: Store, logs: LogStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(store, logs) as router:
        await logs.publish(2, ["one"])
        await eventually(has_noted(store, {2: ["one"]}))
        await router.idle_check.check()
        find_last_sequence = router.access.find_last_sequence

        async def overtaken(partition: PartitionId) -> int | None:
            found = await find_last_sequence(partition)
            if partition == ("inbound", 0):
                await logs.publish(0, ["two"])
                await eventually(has_noted(store, {2: ["one"], 0: ["two"]}))
                await eventually(lambda: all(feed.is_idle for feed in router.intake.feeds))
            return found

        monkeypatch.setattr(router.access, "find_last_sequence", overtaken)
        await router.idle_check.check()
        assert await cursors(store) == [2, 1, 1, 1]


async def test_a_reader_that_fell_silent_is_found_out(store: Store, logs: LogStreams) -> None:
    async with running(store, logs) as router:
        await router.idle_check.check()
        feed = next(one for one in router.intake.feeds if one.partition == ("inbound", 1))
        assert feed._reader is not None
        assert feed._reader._subscription is not None
        await feed._reader._subscription.unsubscribe()
        await logs.publish(1, ["not delivered"])
        await router.idle_check.check()
        await eventually(has_noted(store, {1: ["not delivered"]}))


async def test_a_log_that_lost_its_tail_unnoticed_is_inspected(
    store: Store, logs: LogStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(store, logs) as router:
        await logs.publish(1, ["one", "two"])
        await eventually(has_noted(store, {1: ["one", "two"]}))
        await router.idle_check.check()
        get_state = router.access.get_state

        async def shorter(log: LogName) -> StreamState:
            """What a server has that lost its newest message, and no connection."""
            return replace(await get_state(log), last_sequence=1 if log == "inbound" else 0)

        monkeypatch.setattr(router.access, "get_state", shorter)
        readers = {feed.partition: feed._reader for feed in router.intake.feeds}
        await router.idle_check.check()
        reasons = {one: reader.break_reason for one, reader in readers.items() if reader}
        assert {one: reason for one, reason in reasons.items() if reason} == {
            ("inbound", 1): "tail_lost"
        }


async def test_what_was_purged_behind_an_idle_cursor_is_inspected(
    store: Store, logs: LogStreams
) -> None:
    async with running(store, logs) as router:
        await logs.publish(1, ["one", "two"])
        await eventually(has_noted(store, {1: ["one", "two"]}))
        await router.idle_check.check()
        await logs.purge_to(2)
        readers = {feed.partition: feed._reader for feed in router.intake.feeds}
        await router.idle_check.check()
        reasons = {one: reader.break_reason for one, reader in readers.items() if reader}
        truncated = [one for one, reason in reasons.items() if reason == "truncated"]
        assert sorted(truncated) == [("inbound", 0), ("inbound", 2), ("inbound", 3)]


async def suspicion(store: Store) -> list[tuple[int, int, int | None, int]]:
    """Return (partition, dirty, suspected sequence, count) where there is any."""
    async with store.transaction() as connection:
        rows = await connection.fetch(
            "SELECT id, dirty, suspect_seq, suspect_count FROM partitions"
            " WHERE log = 'inbound' AND dirty > 0 ORDER BY id"
        )
    return [tuple(row) for row in rows]


async def make_dirty(store: Store) -> None:
    """Leave partition 0 as two dead routers would."""
    async with store.transaction() as connection:
        await connection.execute("UPDATE partitions SET dirty = 2 WHERE log = 'inbound' AND id = 0")


async def test_a_suspect_is_noted_before_it_is_handed_out_and_comes_alone(
    store: Store, logs: LogStreams
) -> None:
    await make_dirty(store)
    await logs.publish(0, ["one", "two", "three"])
    async with open_routers(store, logs) as (router,):
        router.may_commit.clear()
        router.start()
        await eventually(lambda: router.batch_sizes == [1])
        assert await suspicion(store) == [(0, 2, 1, 1)]
        await logs.publish(1, ["other"])
        await eventually(lambda: router.intake._survey()[1] == 3)
        # Nothing else goes with it or beside it.
        assert router.batch_sizes == [1]
        router.may_commit.set()
        await eventually(has_noted(store, {0: ["one", "two", "three"], 1: ["other"]}))
        assert await suspicion(store) == []
        assert router.batch_sizes == [1, 3]


async def test_a_suspect_whose_batch_fails_is_not_counted_again(
    store: Store, logs: LogStreams
) -> None:
    await make_dirty(store)
    await logs.publish(0, ["one"])
    async with open_routers(store, logs) as (router,):
        router.may_commit.clear()
        router.start()
        for tries in range(1, 6):

            def was_tried(times: int = tries) -> bool:
                return len(router.batch_sizes) == times

            await eventually(was_tried)
            router.may_commit.set()
            router.may_commit.clear()
            for feed in router.intake.feeds:
                feed.fail(timedelta(0))
            router._tasks[1].cancel()
            router._tasks[1] = asyncio.create_task(router._commit_batches())
        assert await suspicion(store) == [(0, 2, 1, 1)]
        router.may_commit.set()
        await eventually(has_noted(store, {0: ["one"]}))
        assert router.killers == []


async def test_a_suspect_that_its_process_survived_is_not_counted_again(
    store: Store, logs: LogStreams
) -> None:
    """As when the database was away for longer than a lease in the middle of the try."""
    await make_dirty(store)
    await logs.publish(0, ["one"])
    async with open_routers(store, logs) as (router,):
        router.may_commit.clear()
        router.start()
        await eventually(lambda: router.batch_sizes == [1])
        for tries in range(2, 6):
            await store_forgets_leases(store)
            router.intake.lost(feed.partition for feed in router.intake.feeds)
            router._tasks[1].cancel()
            router._tasks[1] = asyncio.create_task(router._commit_batches())

            def was_tried(times: int = tries) -> bool:
                return len(router.batch_sizes) == times

            await eventually(was_tried)
        assert await suspicion(store) == [(0, 2, 1, 1)]
        router.may_commit.set()
        await eventually(has_noted(store, {0: ["one"]}))
        assert router.killers == []


async def store_forgets_leases(store: Store) -> None:
    async with store.transaction() as connection:
        await connection.execute("UPDATE partitions SET lease_until = clock_timestamp()")


async def test_what_is_not_suspect_goes_first(store: Store, logs: LogStreams) -> None:
    """A router that dies of something else, soon after its start, then dies at that."""
    await make_dirty(store)
    await logs.publish(0, ["suspect"])
    await logs.publish(1, ["other"])
    async with open_routers(store, logs) as (router,):
        router.start()
        await eventually(has_noted(store, {0: ["suspect"], 1: ["other"]}))
    async with store.transaction() as connection:
        rows = await connection.fetch("SELECT body FROM noted ORDER BY place")
    assert [row[0] for row in rows] == ["other", "suspect"]


async def test_a_message_that_ends_every_process_is_set_aside_and_nothing_else(
    store: Store, logs: LogStreams
) -> None:
    await logs.publish(0, ["deadly", "harmless"])
    await logs.publish(1, ["neighbour"])
    deaths = 0
    expected = {0: ["deadly", "harmless"], 1: ["neighbour"]}
    while await noted(store) != expected:
        async with open_routers(store, logs, lease=timedelta(milliseconds=500)) as (router,):
            router.deadly = "deadly"
            router.start()

            async def has_ended(router: SmallRouter = router) -> bool:
                return router.has_died.is_set() or await noted(store) == expected

            await eventually(has_ended)
            deaths += router.has_died.is_set()
            assert router.killers in ([], ["deadly"])
    # Two to become suspect, three tries alone; the fourth time it is not looked into.
    assert deaths == 5
    assert 0 not in {partition for partition, *_ in await suspicion(store)}


async def test_a_log_with_another_number_of_partitions_is_not_read(
    store: Store, logs: LogStreams
) -> None:
    other = replace(logs, partitions=PARTITIONS + 1)
    async with running(store, logs) as router:
        await other.recreate()
        await other.publish(0, ["a"])
        await eventually(lambda: not router.ownership.can_read)
        assert await noted(store) == {}
        await logs.recreate()
        await logs.publish(0, ["b"])
        await eventually(has_noted(store, {0: ["b"]}))
