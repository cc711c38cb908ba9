"""A connection comes back by itself, tells those who listen, and says when it is gone for good."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane.errors import BusUnavailableError
from chatlane.nats.connection import Bus, BusOptions, forget_unsent, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane_servers.embedded import NatsServer, open_nats
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer

pytestmark = pytest.mark.integration


async def test_a_lost_connection_comes_back_and_listeners_hear_of_both(
    nats_server: RunningServer,
) -> None:
    heard: list[str] = []
    async with open_bus(BusOptions(url=nats_server.url)) as bus:
        bus.listen(
            disconnected=lambda: heard.append("lost"), reconnected=lambda: heard.append("back")
        )
        remove = bus.listen(disconnected=lambda: heard.append("never"))
        remove()
        await nats_server.kill()
        await eventually(lambda: heard == ["lost"])
        assert not bus.is_connected
        with pytest.raises(BusUnavailableError, match="disconnected"):
            await JetStream(bus.client).request("INFO")
        await nats_server.start()
        await eventually(lambda: heard == ["lost", "back"])
        assert (await JetStream(bus.client).request("INFO"))["streams"] == 0
        assert not bus.closed.is_set()
    assert heard == ["lost", "back"]


async def test_a_server_that_is_not_there_yet_is_waited_for(nats_server: RunningServer) -> None:
    url = nats_server.url
    await nats_server.kill()

    async def connects() -> bool:
        async with open_bus(BusOptions(url=url)) as bus:
            return bus.is_connected

    connecting = asyncio.create_task(connects())
    await nats_server.start()
    assert await asyncio.wait_for(connecting, 10)


async def test_waiting_for_a_server_can_be_given_up() -> None:
    async def connects() -> None:
        async with open_bus(BusOptions(url="nats://127.0.0.1:1")):
            pytest.fail("nobody listens there")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await connects()


async def test_an_address_that_cannot_be_used_is_an_error() -> None:
    with pytest.raises(BusUnavailableError):
        async with open_bus(BusOptions(url="nats://127.0.0.1:port")):
            pytest.fail("there is no such port")


async def test_a_connection_the_server_refuses_is_gone_for_good(nats_url: str) -> None:
    async with open_bus(BusOptions(url=nats_url)) as bus:
        # What the publisher never lets through.
        bus.client._max_payload = 1024**3
        await bus.client.publish("anything", bytes(2 * 1024 * 1024))
        await asyncio.wait_for(bus.closed.wait(), 10)
        assert not bus.is_connected


async def test_closing_on_purpose_is_no_loss(nats_url: str) -> None:
    async with open_bus(BusOptions(url=nats_url)) as bus:
        pass
    assert not bus.closed.is_set()


async def test_nothing_unsent_survives_a_lost_connection(nats_url: str) -> None:
    """Pins the two private names of nats-py that `forget_unsent` relies on."""
    async with open_bus(BusOptions(url=nats_url)) as bus:
        client = bus.client
        assert isinstance(client._pending, list)
        await client._send_command(b"PUB late 0\r\n\r\n")
        assert client.pending_data_size > 0
        forget_unsent(client)
        assert client._pending == []
        assert client.pending_data_size == 0
        await client.flush()


async def test_the_options_reach_the_server(tmp_path: Path) -> None:
    accounts = 'authorization: {users: [{user: "router", password: "secret"}]}'
    async with open_nats(tmp_path, extra_config=accounts) as server:
        options = BusOptions(
            url=f"nats://127.0.0.1:1,{server.url}",
            user="router",
            password="secret",  # noqa: S106 # of this test's own server
            principal="router",
            connect_timeout=timedelta(seconds=1),
        )
        async with open_bus(options) as bus:
            assert bus.client.new_inbox().startswith("_INBOX.router.")
            assert (await JetStream(bus.client).request("INFO"))["streams"] == 0
        wrong = BusOptions(url=server.url, user="router", password="wrong")  # noqa: S106
        bus = Bus()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await bus.connect(wrong)
        await bus.close()


async def test_a_changed_password_is_used_when_the_connection_is_back(tmp_path: Path) -> None:
    def server(password: str, port: int | None) -> NatsServer:
        login = f'authorization: {{user: "router", password: "{password}"}}'
        return NatsServer(tmp_path, port, extra_config=login)

    told = "old"
    first = server("old", None)
    await first.start()
    try:
        options = BusOptions(url=first.url, user=lambda: "router", password=lambda: told)
        async with open_bus(options) as bus:
            refused: list[str] = []
            report = bus._error

            async def heard(error: Exception) -> None:
                if "Authorization" in str(error):
                    refused.append(str(error))
                await report(error)

            bus.client._error_cb = heard
            await first.stop()
            second = server("new", first.port)
            await second.start()
            try:
                await eventually(lambda: len(refused) > 1)
                told = "new"
                await eventually(lambda: bus.is_connected)
                assert (await JetStream(bus.client).request("INFO"))["streams"] == 0
                assert not bus.closed.is_set()
            finally:
                await second.stop()
    finally:
        await first.stop()


async def test_a_server_is_left_for_another_of_its_cluster(
    nats_url: str, nats_server: RunningServer
) -> None:
    heard: list[str] = []
    async with open_bus(BusOptions(url=f"{nats_url},{nats_server.url}")) as bus:
        bus.listen(
            disconnected=lambda: heard.append("lost"), reconnected=lambda: heard.append("back")
        )
        bus.move_on()
        bus.move_on()
        await eventually(lambda: heard == ["lost", "back"] and bus.is_connected)


async def test_the_only_server_is_not_left(nats_url: str) -> None:
    async with open_bus(BusOptions(url=nats_url)) as bus:
        bus.move_on()
        await bus.client.flush()
        assert bus.is_connected
