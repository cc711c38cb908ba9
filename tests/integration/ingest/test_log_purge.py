"""Purging the logs on real servers."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from chatlane.domain.log import LogName
from chatlane.ingest.log_purge import LogRetention
from chatlane.nats.connection import BusOptions, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.nats.log_access import LogAccess
from chatlane.postgres.pool import Store, open_store
from chatlane.store.logs import partitions

pytestmark = pytest.mark.integration

PARTITIONS = 2
WINDOW = timedelta(hours=72)
NO_WINDOW = timedelta(0)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as opened:
        async with opened.transaction() as connection:
            for log in ("inbound", "results"):
                await partitions.ensure(connection, log, PARTITIONS)
        yield opened


@pytest.fixture
async def logs(nats_url: str) -> AsyncIterator[LogAccess]:
    async with open_bus(BusOptions(url=nats_url)) as bus:
        jetstream = JetStream(bus.client)
        for name in ("INBOUND", "RESULTS"):
            config = {"name": name, "subjects": [f"{name.lower()}.>"], "retention": "limits"}
            await jetstream.request(f"STREAM.CREATE.{name}", config)
            for number in range(10):
                await bus.client.jetstream().publish(f"{name.lower()}.x", str(number).encode())
        yield LogAccess(bus, PARTITIONS)


async def set_cursors(store: Store, log: LogName, *cursors: int) -> None:
    async with store.transaction() as connection:
        for number, cursor in enumerate(cursors):
            await connection.execute(
                "UPDATE partitions SET cursor = $3 WHERE log = $1 AND id = $2", log, number, cursor
            )


async def firsts(logs: LogAccess) -> tuple[int, int]:
    inbound, results = await logs.get_state("inbound"), await logs.get_state("results")
    return inbound.first_sequence, results.first_sequence


async def test_a_purge_keeps_what_the_slowest_partition_has_not_read(
    store: Store, logs: LogAccess
) -> None:
    await set_cursors(store, "inbound", 8, 5)
    await set_cursors(store, "results", 10, 10)
    retention = LogRetention(logs, store.transaction, NO_WINDOW)
    assert await retention.keep() == 4 + 9
    assert await firsts(logs) == (5, 10)
    assert await logs.find_stored_at("inbound", 4) is None
    assert await logs.find_stored_at("inbound", 5) is not None
    assert await retention.keep() == 0


async def test_young_messages_stay(store: Store, logs: LogAccess) -> None:
    for log in ("inbound", "results"):
        await set_cursors(store, log, 10, 10)
    retention = LogRetention(logs, store.transaction, WINDOW)
    assert await retention.keep() == 0
    assert await firsts(logs) == (1, 1)


async def test_a_mark_whose_sequences_are_used_again_purges_nothing(
    store: Store, logs: LogAccess
) -> None:
    for log in ("inbound", "results"):
        await set_cursors(store, log, 10, 10)
    retention = LogRetention(logs, store.transaction, WINDOW)
    await retention.keep()
    async with store.transaction() as connection:
        await connection.execute("UPDATE log_marks SET at = at - $1::interval", 2 * WINDOW)
    assert await retention.keep() == 0, "the log says that they are young"
    assert await firsts(logs) == (1, 1)
