"""The place from which a lost connection to Discord's gateway goes on."""

import asyncio

import aiohttp
import pytest

from chatlane.nats.tasks import end_task
from chatlane_adapters.discord.gateway import Gateway
from chatlane_devkit.platforms.discord import open_discord
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


async def test_a_session_of_which_nothing_is_stored_is_resumed_after_a_heartbeat() -> None:
    async with open_discord() as server, aiohttp.ClientSession() as session:
        server.gateway.heartbeat_ms = 20
        dm = server.world.dm(person := server.world.person("Ann"))
        gateway = Gateway(
            session, server.token, server.gateway.url, None, notice=lambda _name, _data: None
        )
        running = asyncio.create_task(gateway.run())
        try:
            # Discord may forget the event that a heartbeat names.
            await eventually(lambda: 1 in server.gateway.heartbeats)
            server.gateway.drop()
            server.world.write(dm, person, "hello")
            batches = gateway.batches()
            names: list[str] = []
            while "RESUMED" not in names:
                async with asyncio.timeout(60):
                    names += [event.name for event in await anext(batches)]
        finally:
            await end_task(running)
    assert server.gateway.identified == 1
    assert names.count("READY") == names.count("MESSAGE_CREATE") == 1
