"""A routed message that no worker acknowledges becomes a dead letter, once."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import NoReturn
from uuid import UUID, uuid4

import nats
import pytest

from chatlane.domain.catalog import Agent
from chatlane.errors import BusUnavailableError, StoreUnavailableError
from chatlane.nats import topology
from chatlane.nats.advisories import AdvisoryQueue
from chatlane.nats.connection import Bus, BusOptions, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.observability.metrics import Metrics
from chatlane.outbox.undeliverable import UndeliverableMessages
from chatlane.postgres.pool import Store
from chatlane_schemas.codec import encode
from chatlane_schemas.routed import RoutedMessage
from chatlane_schemas.source import Source
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import declared_durables, declared_streams
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

AGENT = Agent("echo", delivery="stream", ack_wait=timedelta(seconds=5))
SESSION = UUID("019f0000-0000-8000-8000-000000000000")


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    async with open_bus(BusOptions(url=nats_url)) as opened:
        await topology.apply(
            JetStream(opened.client), declared_streams(2), declared_durables([AGENT], [], slots=1)
        )
        yield opened


def collector(bus: Bus, store: Store) -> UndeliverableMessages:
    return UndeliverableMessages(AdvisoryQueue(bus.client), store.transaction, Metrics())


async def route(bus: Bus) -> bytes:
    """Publish one routed message."""
    message = RoutedMessage(
        id=str(uuid4()),
        at=datetime.now(UTC),
        session_id=SESSION,
        session_key="agent:echo:telegram:bot:dm:1",
        agent="echo",
        seq=1,
        source=Source(platform="telegram", account="bot"),
        text="hello",
        stored_at=datetime.now(UTC),
    )
    body = encode(message)
    await bus.client.jetstream().publish(subjects.routed("echo", 0, SESSION), body)
    return body


async def refuse_it_to_the_end(bus: Bus) -> None:
    """Be a worker that cannot deal with it."""
    worker = await bus.client.jetstream().pull_subscribe_bind(consumer="echo-0", stream="ROUTED")
    for _ in range(5):
        (delivered,) = await worker.fetch(1, timeout=5)
        await delivered.nak()
    # The server notices when it would deliver the message once more.
    with pytest.raises(nats.errors.TimeoutError):
        await worker.fetch(1, timeout=0.2)
    await eventually(lambda: is_noticed(bus))


async def is_noticed(bus: Bus) -> bool:
    return (await JetStream(bus.client).get_stream("ADVISORIES")).last_sequence > 0


async def test_it_becomes_a_dead_letter_with_its_body(bus: Bus, store: Store) -> None:
    body = await route(bus)
    await refuse_it_to_the_end(bus)
    assert await collector(bus, store).collect() == 1
    async with store.transaction() as connection:
        (letter,) = await connection.fetch("SELECT * FROM dead_letters")
        (said,) = await connection.fetch("SELECT * FROM outbox")
    assert (letter["stage"], letter["reason"]) == ("routed", "undeliverable")
    assert (letter["body"], letter["session_id"], letter["sequence"]) == (body, SESSION, 1)
    assert letter["detail"] == "5 deliveries by echo-0"
    assert (said["stream"], said["subject"]) == ("DEAD", "chat.v1.dead.routed")
    assert json.loads(said["payload"])["id"] == str(letter["id"])
    assert b"hello" not in said["payload"]


async def test_an_advisory_that_comes_twice_changes_nothing(bus: Bus, store: Store) -> None:
    await route(bus)
    await refuse_it_to_the_end(bus)
    queue = AdvisoryQueue(bus.client)
    notice = await queue.next()
    assert notice is not None
    assert await queue.next() is None, "it is in our hands"
    await notice.raw.nak()
    assert await eventually(collector(bus, store).collect) == 1
    assert notice.undelivered is not None
    assert not await collector(bus, store)._set_aside(notice.undelivered)
    async with store.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM dead_letters") == 1
        assert await connection.fetchval("SELECT count(*) FROM outbox") == 1


def no_transaction() -> NoReturn:
    raise StoreUnavailableError


async def test_a_failed_transaction_leaves_the_advisory_for_later(bus: Bus) -> None:
    await route(bus)
    await refuse_it_to_the_end(bus)
    broken = UndeliverableMessages(AdvisoryQueue(bus.client), no_transaction, Metrics())
    with pytest.raises(StoreUnavailableError):
        await broken.collect()
    info = await JetStream(bus.client).request("CONSUMER.INFO.ADVISORIES.routers")
    assert info["num_ack_pending"] == 1


async def test_a_message_that_is_gone_is_still_reported(bus: Bus, store: Store) -> None:
    await route(bus)
    await refuse_it_to_the_end(bus)
    await JetStream(bus.client).request("STREAM.PURGE.ROUTED")
    assert await collector(bus, store).collect() == 1
    async with store.transaction() as connection:
        (letter,) = await connection.fetch("SELECT * FROM dead_letters")
    assert (letter["body"], letter["sequence"]) == (b"", 1)
    assert letter["detail"].endswith("the message is gone")


async def test_what_is_no_advisory_is_passed_over(bus: Bus, store: Store) -> None:
    subject = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ROUTED.echo-0"
    for body in (b"no json", b"[]", b'{"consumer": "echo-0"}'):
        await bus.client.publish(subject, body)
    await eventually(lambda: is_noticed(bus))
    assert await collector(bus, store).collect() == 0
    assert await AdvisoryQueue(bus.client).next() is None


async def test_nothing_to_collect_is_no_error(bus: Bus, store: Store) -> None:
    assert await collector(bus, store).collect() == 0


async def test_a_missing_durable_is_an_error(bus: Bus, store: Store) -> None:
    await JetStream(bus.client).request("CONSUMER.DELETE.ADVISORIES.routers")
    with pytest.raises(BusUnavailableError):
        await collector(bus, store).collect()
