"""Of several processes of an account, one delivers; the next one takes over when it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeoutError

from chatlane_client import AdapterClient, Piece, TextLimit, open_connection
from chatlane_client.delivery import delivery_lease
from chatlane_client.delivery.delivery_lease import DeliveryLease
from chatlane_schemas.topology.streams import DELIVERER_LEASE, StreamName
from tests.integration.client.routing import ACCOUNT, PLATFORM, Chats, Speaker, running
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

# Of a lease that is not given back, and some more on a busy machine.
TAKEN_OVER_WITHIN = 3 * DELIVERER_LEASE


@pytest.fixture
def speaker(client: Client) -> Speaker:
    return Speaker(client)


@asynccontextmanager
async def delivering(url: str, chats: Chats) -> AsyncIterator[AdapterClient]:
    """Run an adapter with a connection of its own."""
    async with open_connection(url, name="adapter") as client:
        adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
        async with running(adapter.deliver(chats.deliver)):
            yield adapter


@pytest.mark.slow
async def test_a_second_process_stands_by_until_the_first_stops(
    bus_url: str, speaker: Speaker, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Chats(), Chats()
    async with delivering(bus_url, first) as earlier:
        await eventually(lambda: earlier.is_delivering)
        async with delivering(bus_url, second) as later:
            for number in range(1, 21):
                await speaker.say(number, chat=str(number % 3))
            await eventually(lambda: len(first.messages) == 20)
            assert not later.is_delivering
            assert second.messages == []
            await eventually(lambda: "delivery_standby" in caplog.text)
            earlier.stop()
            await eventually(lambda: later.is_delivering, TAKEN_OVER_WITHIN)
            await speaker.say(21, chat="1")
            await second.until_said("21")
    assert len(first.messages) == 20


async def test_a_second_process_takes_over_from_a_dead_one(bus_url: str, speaker: Speaker) -> None:
    first, second = Chats(), Chats()
    async with open_connection(bus_url, name="dying") as dying:
        adapter = AdapterClient(dying, platform=PLATFORM, account=ACCOUNT)
        async with running(adapter.deliver(first.deliver)):
            await speaker.say(1)
            await first.until_said("1")
            async with delivering(bus_url, second) as successor:
                # Nothing that it does at its end reaches the server.
                await dying.close()
                await speaker.say(2)
                await eventually(lambda: successor.is_delivering, TAKEN_OVER_WITHIN)
                await second.until_said("2")
    assert [it.text for it in first.messages] == ["1"]


async def test_a_process_that_lost_the_lease_sends_no_further_piece(
    client: Client, speaker: Speaker
) -> None:
    sent: list[str | None] = []
    may_return = asyncio.Event()

    async def send(piece: Piece) -> str:
        sent.append(piece.text)
        await may_return.wait()
        return str(len(sent))

    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    async with running(adapter.deliver_pieces(send, limit=TextLimit(30))):
        await speaker.say(1, text="word " * 40)
        await eventually(lambda: len(sent) == 1)
        other = await taken_away(client)
        await eventually(lambda: not adapter.is_delivering)
        may_return.set()
        async with other.used():
            await asyncio.wait_for(other.until_held(), TAKEN_OVER_WITHIN.total_seconds())
            await eventually(lambda: adapter._lease.is_lost)
        assert len(sent) == 1, "the piece in hand, and none after it"
        await eventually(lambda: len(sent) > 3)


async def taken_away(client: Client) -> DeliveryLease:
    """Remove the lease from the stream and return that of another process, which has taken it."""
    jetstream = client.jetstream()
    await jetstream.purge_stream(StreamName.DELIVERERS)
    other = DeliveryLease(client, platform=PLATFORM, account=ACCOUNT)
    await other._take_or_renew()
    assert other.is_held
    return other


async def test_a_renewal_whose_confirmation_is_lost_loses_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, lost = DeliveryLease._publish, 0

    async def unconfirmed_once(its: DeliveryLease, **headers: str) -> int:
        nonlocal lost
        sequence = await publish(its, **headers)
        if its._sequence and not lost:
            lost = sequence
            raise NatsTimeoutError
        return sequence

    monkeypatch.setattr(DeliveryLease, "_publish", unconfirmed_once)
    lease = DeliveryLease(client, platform=PLATFORM, account=ACCOUNT)
    async with lease.used():
        await lease.until_held()
        losing = asyncio.create_task(lease.until_lost())
        await eventually(lambda: lease._sequence > lost > 0)
        assert lease.is_held
        assert not losing.done()
        losing.cancel()


async def test_without_the_stream_of_leases_a_process_delivers_and_says_so(
    bus_url: str,
    client: Client,
    speaker: Speaker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(delivery_lease, "_PATIENCE", timedelta(seconds=0.5).total_seconds())
    await client.jetstream().delete_stream(StreamName.DELIVERERS)
    chats = Chats()
    async with delivering(bus_url, chats):
        await speaker.say(1)
        await chats.until_said("1")
    assert "delivery_unguarded" in caplog.text
