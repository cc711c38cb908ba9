"""What every publisher promises the relay: the fake of the tests and the real one alike."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import nats
import pytest
from typing_extensions import override

from chatlane.errors import BusUnavailableError, MalformedMessageError, OversizedMessageError
from chatlane.nats.connection import BusOptions, open_bus
from chatlane.outbox.publish_window import Publisher
from chatlane.outbox.publisher import Publisher as BusPublisher
from chatlane.outbox.publisher import open_publisher
from tests.support.eventually import eventually
from tests.support.servers.backends import Backends, RunningServer, open_test_nats
from tests.support.worlds.fake_streams import FakePublisher, FakeStream

SUBJECT = "chat.v1.outbound.telegram.main_bot.none"
MAX_PAYLOAD = 1024 * 1024
PATIENCE = timedelta(seconds=2)


class World(ABC):
    """A publisher and the server behind it."""

    publisher: Publisher

    @abstractmethod
    async def stored(self) -> list[bytes]:
        """Return the bodies the stream holds, in order."""

    @abstractmethod
    async def disconnect(self) -> None:
        """Take the server away."""


class FakeWorld(World):
    def __init__(self) -> None:
        self.publisher = self._fake = FakePublisher(FakeStream(), max_payload=MAX_PAYLOAD)

    @override
    async def stored(self) -> list[bytes]:
        return [payload for _, payload in self._fake.stream.messages]

    @override
    async def disconnect(self) -> None:
        self._fake.disconnect()


class RealWorld(World):
    def __init__(self, publisher: BusPublisher, server: RunningServer) -> None:
        self.publisher = publisher
        self._server = server

    @override
    async def stored(self) -> list[bytes]:
        client = await nats.connect(self._server.url)
        try:
            jetstream = client.jetstream()
            count = (await jetstream.stream_info("OUTBOUND")).state.messages
            found = [await jetstream.get_msg("OUTBOUND", seq) for seq in range(1, count + 1)]
            return [message.data or b"" for message in found]
        finally:
            await client.close()

    @override
    async def disconnect(self) -> None:
        await self._server.kill()


@asynccontextmanager
async def open_real_world(server: RunningServer) -> AsyncIterator[RealWorld]:
    async with open_bus(BusOptions(url=server.url)) as bus:
        await bus.client.jetstream().add_stream(name="OUTBOUND", subjects=["chat.v1.outbound.>"])
        async with open_publisher(bus, PATIENCE) as publisher:
            yield RealWorld(publisher, server)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.integration)])
async def world(request: pytest.FixtureRequest, backends: Backends) -> AsyncIterator[World]:
    if request.param == "fake":
        yield FakeWorld()
        return
    async with open_test_nats(backends.own_server) as server, open_real_world(server) as real:
        yield real


async def test_an_acknowledged_message_is_stored(world: World) -> None:
    ack = await (await world.publisher.publish(SUBJECT, b"one", "id-1"))
    assert (ack.sequence, ack.is_duplicate) == (1, False)
    assert await world.stored() == [b"one"]


async def test_the_order_of_calls_is_the_order_in_the_stream(world: World) -> None:
    bodies = [str(number).encode() for number in range(500)]
    futures = [await world.publisher.publish(SUBJECT, body, body.decode()) for body in bodies]
    acks = await asyncio.gather(*futures)
    assert [ack.sequence for ack in acks] == list(range(1, 501))
    assert await world.stored() == bodies


async def test_a_repeat_with_the_same_id_is_stored_once(world: World) -> None:
    await (await world.publisher.publish(SUBJECT, b"one", "id-1"))
    ack = await (await world.publisher.publish(SUBJECT, b"one", "id-1"))
    assert (ack.sequence, ack.is_duplicate) == (1, True)
    assert await world.stored() == [b"one"]


async def test_an_oversized_message_is_refused_and_harms_nothing(world: World) -> None:
    with pytest.raises(OversizedMessageError):
        await (await world.publisher.publish(SUBJECT, bytes(MAX_PAYLOAD), "id-1"))
    await (await world.publisher.publish(SUBJECT, b"two", "id-2"))
    assert await world.stored() == [b"two"]


@pytest.mark.parametrize("subject", ["", "chat.v1.outbound.a b", "chat.v1.outbound.>"])
async def test_a_subject_that_cannot_be_sent_is_refused(world: World, subject: str) -> None:
    with pytest.raises(MalformedMessageError):
        await (await world.publisher.publish(subject, b"one", "id-1"))


async def test_every_future_ends_when_the_server_goes(world: World) -> None:
    futures = [await world.publisher.publish(SUBJECT, b"x", f"id-{n}") for n in range(100)]
    await world.disconnect()
    async with asyncio.timeout(2 * PATIENCE.total_seconds()):
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)} <= {
        BusUnavailableError
    }


async def test_without_a_server_a_publish_fails_at_once(world: World) -> None:
    await world.disconnect()

    async def is_refused() -> bool:
        try:
            future = await world.publisher.publish(SUBJECT, b"x", "id-1")
            await asyncio.wait([future])
        except BusUnavailableError:
            return True
        return False

    assert await eventually(is_refused)
