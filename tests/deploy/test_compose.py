"""The whole stack in containers: it answers, and goes on when a router is killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from chatlane_client import AdapterClient, open_connection
from chatlane_schemas import Chat, InboundEvent, OutboundMessage, Sender, new_envelope_id
from tests.deploy.compose_stack import Stack, open_stack, ran
from tests.support.eventually import eventually

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

HEALTHY = ("nats", "postgres", "router-1", "router-2")
# Enough for 32 partitions that each router has somebody.
PEOPLE = [f"person-{number}" for number in range(24)]
ANSWERED_WITHIN = timedelta(seconds=30)


class Room:
    """People at the platform of the example configuration, and what they were answered."""

    def __init__(self, adapter: AdapterClient) -> None:
        self._adapter = adapter
        self._heard: dict[str, list[str | None]] = {person: [] for person in PEOPLE}

    async def hear(self, message: OutboundMessage) -> None:
        assert message.target.chat is not None
        self._heard[str(message.target.chat.id)].append(message.text)

    async def say(self, text: str) -> None:
        for person in PEOPLE:
            await self._adapter.publish(event(person, text))

    async def until_heard(self, *texts: str) -> None:
        expected = {person: list(texts) for person in PEOPLE}

        def have_heard() -> bool:
            assert self._heard == expected
            return True

        await eventually(have_heard, ANSWERED_WITHIN)


def event(person: str, text: str) -> InboundEvent:
    return InboundEvent(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        message_id=new_envelope_id(),
        platform="terminal",
        account="local",
        chat=Chat(id=person),
        sender=Sender(id=person),
        text=text,
    )


@asynccontextmanager
async def open_room(stack: Stack) -> AsyncIterator[Room]:
    async with open_connection(stack.nats_url, name="test") as client:
        adapter = AdapterClient(client, platform="terminal", account="local")
        room = Room(adapter)
        delivering = asyncio.create_task(adapter.deliver(room.hear))
        try:
            yield room
        finally:
            adapter.stop()
            await delivering


async def owned_inbound_partitions(port: int) -> float:
    async with httpx.AsyncClient() as client:
        page = await client.get(f"http://127.0.0.1:{port}/metrics")
    sample = 'chatlane_partitions_owned{log="inbound"} '
    (value,) = [line for line in page.text.splitlines() if line.startswith(sample)]
    return float(value.removeprefix(sample))


async def test_the_other_router_goes_on_when_one_is_killed() -> None:
    async with open_stack() as stack, open_room(stack) as room:
        await room.say("hello")
        await room.until_heard("#1 heard: hello")

        async def are_healthy() -> bool:
            states = [await stack.health(service) for service in HEALTHY]
            assert states == ["healthy"] * len(HEALTHY)
            return True

        await eventually(are_healthy, ANSWERED_WITHIN)

        async def is_shared() -> bool:
            owned = [await owned_inbound_partitions(port) for port in stack.router_ports]
            assert owned == [16, 16]
            return True

        await eventually(is_shared, ANSWERED_WITHIN)
        await ran("docker", "kill", await stack.container("router-1"))
        await room.say("are you there?")
        await room.until_heard("#1 heard: hello", "#3 heard: are you there?")
