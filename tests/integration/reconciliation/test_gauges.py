"""The gauges tell what the servers hold."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from structlog.testing import capture_logs

from chatlane.domain.catalog import Agent
from chatlane.domain.log import LOGS
from chatlane.nats.connection import Bus, BusOptions, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.nats.topology import apply
from chatlane.observability.metrics import Metrics
from chatlane.postgres.pool import Store
from chatlane.reconciliation.gauges import GaugeCollector
from chatlane.reconciliation.stream_contents import Backlog, StreamContents
from chatlane.store.logs import partitions
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import declared_durables, declared_streams
from tests.support.eventually import eventually
from tests.support.servers.log_streams import LogStreams
from tests.support.worlds.small_router import open_routers

pytestmark = pytest.mark.integration

SESSION = uuid4()
STREAMS = declared_streams(
    2, max_bytes=dict.fromkeys((its.name for its in declared_streams()), 2**24)
)
DURABLES = declared_durables(
    [Agent("main"), Agent("desk", delivery="stream")], [("test", "bot")], slots=2
)


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    async with open_bus(BusOptions(url=nats_url)) as opened:
        await apply(JetStream(opened.client), STREAMS, DURABLES)
        yield opened


def surveying(bus: Bus, store: Store, metrics: Metrics) -> GaugeCollector:
    return GaugeCollector(
        StreamContents(bus.client),
        store.transaction,
        tuple,
        metrics,
        declared_streams=STREAMS,
        declared_durables=DURABLES,
        lease=timedelta(seconds=3),
    )


def shown(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


async def test_what_a_reader_has_not_acknowledged_is_shown_with_its_age(
    bus: Bus, store: Store
) -> None:
    metrics = Metrics()
    jetstream = bus.client.jetstream()
    for slot in (0, 1, 1):
        await jetstream.publish(subjects.routed("desk", slot, SESSION), b"{}")
    await jetstream.publish(subjects.outbound("test", "bot", "none"), b"{}")

    await surveying(bus, store, metrics).look_at_streams()

    desk = {"stream": "ROUTED", "reader": "desk"}
    bot = {"stream": "OUTBOUND", "reader": "test=bot"}
    idle = {"stream": "TURNS", "reader": "main"}
    assert shown(metrics, "chatlane_unread_messages", **desk) == 3
    assert shown(metrics, "chatlane_unread_messages", **bot) == 1
    assert shown(metrics, "chatlane_unread_messages", **idle) == 0
    assert 0 < (shown(metrics, "chatlane_oldest_unread_seconds", **desk) or 0) < 60
    assert shown(metrics, "chatlane_oldest_unread_seconds", **idle) == 0
    assert shown(metrics, "chatlane_stream_keeps_seconds", stream="OUTBOUND") == 72 * 3600
    assert shown(metrics, "chatlane_stream_keeps_seconds", stream="INBOUND") is None
    assert (shown(metrics, "chatlane_stream_bytes", stream="ROUTED") or 0) > 0
    assert shown(metrics, "chatlane_stream_limit_bytes", stream="ROUTED") == 2**24


async def test_a_stream_that_refuses_what_is_new_is_full(bus: Bus, store: Store) -> None:
    small = [replace(one, max_bytes=1_000) for one in STREAMS]
    survey = GaugeCollector(
        StreamContents(bus.client),
        store.transaction,
        tuple,
        Metrics(),
        declared_streams=small,
        declared_durables=(),
        lease=timedelta(seconds=3),
    )
    jetstream = bus.client.jetstream()
    found = []
    for size in (100, 1_000):
        await jetstream.publish(subjects.routed("desk", 0, SESSION), b"x" * size)
        # It drops what is old.
        await jetstream.publish("chat.v1.event.turn.main", b"x" * size)
        await survey.look_at_streams()
        found.append(survey.full_streams)

    assert found == [frozenset(), {"ROUTED"}]


@pytest.mark.parametrize("gone", [("EVENTS",), ("INBOUND", "DEAD")])
async def test_streams_that_do_not_exist_are_named(
    bus: Bus, store: Store, gone: tuple[str, ...]
) -> None:
    survey = surveying(bus, store, Metrics())
    await survey.look_for_streams()
    assert survey.missing_streams == frozenset()

    with capture_logs() as logs:
        for name in gone:
            await bus.client.jetstream().delete_stream(name)
        for _ in range(2):
            await survey.look_for_streams()
        assert survey.missing_streams == set(gone)

        await apply(JetStream(bus.client), STREAMS, DURABLES)
        await survey.look_for_streams()
    assert survey.missing_streams == frozenset()
    told = [(entry["event"], entry["stream"]) for entry in logs]
    assert told == [
        (event, name) for event in ("stream_missing", "stream_back") for name in sorted(gone)
    ]


async def test_an_account_that_two_adapters_read_is_shared(bus: Bus, store: Store) -> None:
    survey = surveying(bus, store, Metrics())
    jetstream = bus.client.jetstream()
    reading = [await jetstream.pull_subscribe_bind("test=bot", "OUTBOUND") for _ in range(2)]

    async def are_waiting(count: int) -> bool:
        return bool((await jetstream.consumer_info("OUTBOUND", "test=bot")).num_waiting == count)

    async def take(reader: JetStreamContext.PullSubscription) -> None:
        with contextlib.suppress(NatsError):
            await reader.fetch(1, timeout=30)

    found = []
    async with asyncio.TaskGroup() as tasks:
        pulls = []
        for count, reader in enumerate(reading, 1):
            pulls.append(tasks.create_task(take(reader)))
            await eventually(partial(are_waiting, count))
            for _ in range(2):
                await survey.look_at_streams()
                found.append(survey.shared_accounts)
        for pull in pulls:
            pull.cancel()

    assert found == [frozenset()] * 3 + [{"test=bot"}]


async def test_the_oldest_unread_is_what_was_delivered_and_not_acknowledged(
    bus: Bus, store: Store
) -> None:
    del store
    jetstream = bus.client.jetstream()
    (durable,) = [its for its in DURABLES if its.name == "test=bot"]
    for number in range(3):
        await jetstream.publish(subjects.outbound("test", "bot", "none"), str(number).encode())
    reading = await jetstream.pull_subscribe_bind(durable.name, durable.stream)
    first, second, _ = await reading.fetch(3)
    await first.ack_sync()
    backlogs = StreamContents(bus.client)

    after_one = await backlogs.find_backlog(durable)
    await second.ack_sync()
    after_two = await backlogs.find_backlog(durable)

    assert after_one is not None
    assert after_two is not None
    assert (after_one.unread, after_two.unread) == (2, 1)
    assert after_one.oldest_at is not None
    assert after_two.oldest_at is not None
    assert after_one.oldest_at < after_two.oldest_at


async def test_what_everybody_read_has_no_age(bus: Bus, store: Store) -> None:
    del store
    jetstream = bus.client.jetstream()
    (durable,) = [its for its in DURABLES if its.name == "test=bot"]
    await jetstream.publish(subjects.outbound("test", "bot", "none"), b"{}")
    reading = await jetstream.pull_subscribe_bind(durable.name, durable.stream)
    await (await reading.fetch(1))[0].ack_sync()

    assert await StreamContents(bus.client).find_backlog(durable) == Backlog(0, None)


async def test_turns_leases_and_the_outbox_are_those_of_the_whole_service(
    bus: Bus, store: Store
) -> None:
    metrics = Metrics()
    async with store.transaction() as connection:
        await connection.execute(TURNS)
        await connection.execute(
            "INSERT INTO outbox (stream, subject, message_id, payload, created_at)"
            " VALUES ('DEAD', 's', 'm', 'p', clock_timestamp() - interval '90 s')"
        )
        lease = timedelta(seconds=30)
        await partitions.claim_free(
            connection, uuid4(), "inbound", except_for=(), limit=5, lease=lease
        )

    await surveying(bus, store, metrics).look_at_database()

    turns = {
        state: shown(metrics, "chatlane_turns", agent="main", state=state)
        for state in ("ready", "resting", "claimed", "overdue", "done")
    }
    assert turns == {"ready": 2, "resting": 1, "claimed": 1, "overdue": 1, "done": None}
    assert 50 < (shown(metrics, "chatlane_oldest_ready_turn_seconds", agent="main") or 0) < 120
    assert 89 < (shown(metrics, "chatlane_outbox_oldest_seconds") or 0) < 150
    unowned = {log: shown(metrics, "chatlane_partitions_unowned", log=log) for log in LOGS}
    assert unowned == {"inbound": OWNED - 5, "results": OWNED}
    assert {shown(metrics, "chatlane_partitions", log=log) for log in LOGS} == {OWNED}


async def test_a_partition_lags_while_its_messages_are_not_committed(
    logs: LogStreams, store: Store
) -> None:
    async with open_routers(store, logs) as (router,):
        metrics = Metrics()
        survey = surveying(logs.bus, store, metrics)
        survey._feeds = lambda: router.intake.feeds
        router.may_commit.clear()
        router.start()
        await eventually(lambda: len(router.intake.feeds) == 2 * OWNED)
        await logs.publish(3, ["waits"])
        await eventually(lambda: router.batch_sizes)

        await survey.look_at_partitions()
        waiting = shown(metrics, "chatlane_partition_lag_seconds", log="inbound", partition="3")
        router.may_commit.set()
        await eventually(lambda: all(feed.is_quiet for feed in router.intake.feeds))
        await survey.look_at_partitions()

    assert (waiting or 0) > 0
    assert shown(metrics, "chatlane_partition_lag_seconds", log="inbound", partition="3") == 0
    left = shown(metrics, "chatlane_partition_lease_seconds", log="inbound")
    assert left is not None
    assert 0 < left <= 3


OWNED = 32
TURNS = """
INSERT INTO turns (id, session_id, agent, state, due_at, rest, created_at)
SELECT gen_random_uuid(), gen_random_uuid(), 'main', state, clock_timestamp() + due, rest,
       clock_timestamp() - CASE rest WHEN 'resting' THEN interval '1 h' ELSE interval '1 min' END
FROM (VALUES ('ready', interval '5 s', NULL), ('ready', interval '-5 s', 'rested'),
             ('ready', interval '5 s', 'resting'), ('claimed', interval '5 s', NULL),
             ('claimed', interval '-5 s', NULL), ('done', interval '0 s', NULL))
    AS made (state, due, rest)
"""


async def test_the_age_of_dead_letters_tells_when_a_person_should_look(
    bus: Bus, store: Store
) -> None:
    metrics = Metrics()
    surveyed = surveying(bus, store, metrics)
    await surveyed.look_at_database()
    assert surveyed.oldest_dead_letter == timedelta(0)
    async with store.transaction() as connection:
        await connection.execute(
            "INSERT INTO dead_letters (id, at, stage, reason, digest, size_bytes)"
            " SELECT gen_random_uuid(), now() - hours * interval '1 hour', 'inbound', reason, 'x', 1"
            " FROM (VALUES (2, 'not_json'), (5, 'unknown_profile'), (90, 'rate_limited'))"
            " AS letters (hours, reason)"
        )

    await surveyed.look_at_database()

    oldest = surveyed.oldest_dead_letter
    assert timedelta(hours=5) <= oldest < timedelta(hours=6), "who wrote too much was told"
    name = "chatlane_oldest_dead_letter_seconds"
    assert (shown(metrics, name, cause="publisher") or 0) // 3600 == 5
    assert (shown(metrics, name, cause="sender") or 0) // 3600 == 90
