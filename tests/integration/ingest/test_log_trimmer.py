"""A log that is filling is trimmed at the cost of whoever fills it, on real servers."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import nats
import pytest

from chatlane.domain.limits.shares import SharedStream
from chatlane.domain.log import LogName
from chatlane.ingest.log_trimmer import LogTrimmer
from chatlane.nats.log_access import LogAccess
from chatlane.nats.log_shares import UNPARTITIONED, LogShares
from chatlane.nats.topology import apply
from chatlane.observability.metrics import Metrics
from chatlane.postgres.pool import Store, open_store
from chatlane.privacy.erasure_list import deleted_of_log
from chatlane.reconciliation.topology_drift import DriftWatch
from chatlane.store.logs import log_trims, partitions
from chatlane_schemas.topology import subjects
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import open_nats
from tests.support.servers.log_streams import PARTITIONS, LogStreams, log_specs, open_logs
from tests.support.servers.nats_users import arguments_of, with_keys

pytestmark = pytest.mark.integration

MIB: Final = 1024 * 1024
KIB: Final = 1024
OWNERS: Final[dict[SharedStream, Sequence[str]]] = {
    "inbound": ("telegram/big", "telegram/small", UNPARTITIONED),
    "results": ("main", "desk"),
}


@pytest.fixture
async def logs(nats_url: str) -> AsyncIterator[LogStreams]:
    async with open_logs(nats_url) as opened:
        await apply(opened.jetstream, log_specs(max_bytes=MIB), [])
        yield opened


@pytest.fixture
async def store(database_url: str, logs: LogStreams) -> AsyncIterator[Store]:
    async with open_store(database_url) as opened:
        async with opened.transaction() as connection:
            for log in ("inbound", "results"):
                await partitions.ensure(connection, log, PARTITIONS)
                state = await LogAccess(logs.bus, PARTITIONS).get_state(log)
                await connection.execute(
                    "UPDATE partitions SET generation = $2 WHERE log = $1", log, state.generation
                )
        yield opened


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def trimmer(logs: LogStreams, store: Store, metrics: Metrics) -> LogTrimmer:
    return LogTrimmer(
        LogShares(logs.bus.client), store.transaction, metrics, owners=OWNERS, trim_above=0.5
    )


async def publish(logs: LogStreams, account: str, count: int, size: int = 4 * KIB) -> None:
    """Store messages of an account in many chats."""
    for number in range(count):
        chat = subjects.chat_token(str(number % 17))
        subject = subjects.inbound("telegram", account, chat)
        future = await logs.publisher.publish(subject, bytes(size), f"{account}-{number}")
        await future


async def decide(store: Store, log: LogName, *cursors: int) -> None:
    """Move the cursors of a log."""
    async with store.transaction() as connection:
        for number in range(PARTITIONS):
            await connection.execute(
                "UPDATE partitions SET cursor = $3 WHERE log = $1 AND id = $2",
                log,
                number,
                cursors[number % len(cursors)],
            )


async def held(logs: LogStreams, log: LogName = "inbound") -> dict[str, int]:
    """Return how many messages each owner has."""
    shares = LogShares(logs.bus.client)
    size = await shares.find_size(log)
    assert size is not None
    measured = await shares.measure(log, size.state, OWNERS[log])
    return {owner: holding.messages for owner, holding in measured.items()}


async def test_the_account_that_fills_a_log_loses_its_oldest_decided_messages(
    logs: LogStreams, store: Store, trimmer: LogTrimmer, metrics: Metrics
) -> None:
    await publish(logs, "small", 20)
    await publish(logs, "big", 150)
    await decide(store, "inbound", 170, 171)
    purged = await trimmer.run()
    left = await held(logs)
    assert left == {"telegram/small": 20, "telegram/big": 150 - purged}
    size = await LogShares(logs.bus.client).find_size("inbound")
    assert size is not None
    assert size.held_bytes <= 0.5 * size.max_bytes
    assert size.held_bytes > 0.35 * size.max_bytes, "not much more than needed"
    assert await logs.jetstream.find_message("INBOUND", 170) is not None, "the newest stay"
    labels = {"log": "inbound", "owner": "telegram/big"}
    sample = metrics.registry.get_sample_value
    assert sample("chatlane_log_trimmed_total", labels) == purged
    assert (sample("chatlane_log_share_bytes", labels) or 0) > 500 * KIB
    assert await trimmer.run() == 0
    assert sample("chatlane_log_share_bytes", labels) is None, "shown only while it is filling"


async def test_what_is_not_decided_stays_however_full_the_log_is(
    logs: LogStreams, store: Store, trimmer: LogTrimmer
) -> None:
    await publish(logs, "big", 200)
    await decide(store, "inbound", 200, 12, 200)
    assert await trimmer.run() == 11
    assert await logs.jetstream.find_message("INBOUND", 12) is not None
    assert await held(logs) == {"telegram/big": 189}
    assert await trimmer.run() == 0


async def test_a_log_with_room_is_left_alone(
    logs: LogStreams, store: Store, trimmer: LogTrimmer
) -> None:
    await publish(logs, "big", 100)
    await decide(store, "inbound", 100)
    assert await trimmer.run() == 0


async def test_cursors_of_another_log_trim_nothing(
    logs: LogStreams, store: Store, trimmer: LogTrimmer
) -> None:
    await publish(logs, "big", 200)
    await decide(store, "inbound", 200)
    async with store.transaction() as connection:
        await connection.execute("UPDATE partitions SET generation = 'before' WHERE id = 1")
    assert await trimmer.run() == 0


async def test_accounts_nobody_declared_and_messages_in_no_partition_are_trimmed(
    logs: LogStreams, store: Store, trimmer: LogTrimmer
) -> None:
    await publish(logs, "removed", 80)
    jetstream = logs.bus.client.jetstream()
    for number in range(80):
        await jetstream.publish(
            "chat.v1.inbound.telegram.big.*", bytes(4 * KIB), headers={"Nats-Msg-Id": f"x{number}"}
        )
    await publish(logs, "small", 10)
    await decide(store, "inbound", 171)
    assert await trimmer.run() > 0
    left = await held(logs)
    assert left["telegram/small"] == 10
    assert left["telegram/removed"] < 80
    assert left[UNPARTITIONED] < 80


async def test_an_agent_whose_results_fill_their_log_pays_for_it(
    logs: LogStreams, store: Store, trimmer: LogTrimmer
) -> None:
    session = "0196f0a0-0000-7000-8000-000000000000"
    for agent, count in (("desk", 10), ("main", 190)):
        for number in range(count):
            subject = f"chat.v1.result.{agent}.{session}"
            await (await logs.publisher.publish(subject, bytes(4 * KIB), f"{agent}-{number}"))
    await decide(store, "results", 200)
    assert await trimmer.run() > 50
    assert (await held(logs, "results"))["desk"] == 10


async def test_a_trimmed_log_raises_no_alarm_and_a_deletion_beside_it_does(
    logs: LogStreams, store: Store, trimmer: LogTrimmer, metrics: Metrics
) -> None:
    async def none_differ() -> list[str]:
        return []

    erased = partial(deleted_of_log, store.transaction)
    watch = DriftWatch(none_differ, LogAccess(logs.bus, PARTITIONS), metrics, erased=erased)
    labels = {"log": "inbound", "kind": "deleted"}
    await publish(logs, "small", 5)
    await publish(logs, "big", 180)
    await decide(store, "inbound", 185)
    await watch.look_for_deletions()
    assert await trimmer.run() > 0
    await watch.look_for_deletions()
    assert metrics.registry.get_sample_value("chatlane_log_alarms_total", labels) == 0
    async with store.transaction() as connection:
        (trim,) = await log_trims.list_recent(connection, timedelta(hours=1))
    assert (trim.log, trim.owner) == ("inbound", "telegram/big")
    await logs.jetstream.request("STREAM.MSG.DELETE.INBOUND", {"seq": 150})
    await watch.look_for_deletions()
    assert metrics.registry.get_sample_value("chatlane_log_alarms_total", labels) == 1


async def test_the_rights_of_a_router_suffice() -> None:
    users = {
        "router": {"role": "router"},
        "telegram-big": {"role": "adapter", "account": "telegram/big"},
    }
    with server_directory() as directory:
        keys, config = with_keys(directory / "keys", users)
        async with (
            open_nats(directory / "nats", extra_config=config) as server,
            open_logs(server.url),
        ):
            adapter = await nats.connect(server.url, **arguments_of(keys.seed_file("telegram-big")))
            for number in range(20):
                chat = subjects.chat_token(str(number))
                await adapter.request(subjects.inbound("telegram", "big", chat), b"{}")
            await adapter.close()
            router = await nats.connect(server.url, **arguments_of(keys.seed_file("router")))
            shares = LogShares(router)
            size = await shares.find_size("inbound")
            assert size is not None
            measured = await shares.measure("inbound", size.state, ["telegram/big"])
            assert measured["telegram/big"].messages == 20
            assert await shares.find_first("inbound", "telegram/big") == 1
            assert await shares.purge("inbound", "telegram/big", 10) == 9
            await router.close()
