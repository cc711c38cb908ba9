"""A stream that is gone costs no other stream anything, and readiness names it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from nats.aio.client import Client

from chatlane.app.state import App
from chatlane.outbox.relay import Relay
from chatlane.store import outbox
from chatlane_client import Turn
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import (
    ACCOUNT,
    PLATFORM,
    Chats,
    apply_topology,
    delivering,
    said,
    working,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

# Some rows of each stream fit into the memory of the relay.
STREAM_BYTES = 20_000


@pytest.fixture
async def router(
    bus_url: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[App]:
    monkeypatch.setattr("chatlane.app.parts.Relay", partial(Relay, stream_bytes=STREAM_BYTES))
    async with real_router(tmp_path, bus_url, database_url) as opened:
        yield opened


async def readiness(router: App) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=5) as client:
        answer = await client.get(f"http://127.0.0.1:{router.http_port}/readyz")
    told: dict[str, Any] = answer.json()
    return told


def names(router: App, stream: StreamName) -> Callable[[], Awaitable[bool]]:
    async def is_named() -> bool:
        told = await readiness(router)
        return told["streams"] == {stream: "missing"} and "stream_missing" in told["complaints"]

    return is_named


async def echo(turn: Turn) -> str:
    return f"{turn.text}"


@pytest.mark.parametrize(
    "stream", [StreamName.EVENTS, pytest.param(StreamName.DEAD, marks=pytest.mark.slow)]
)
async def test_a_stream_of_announcements_that_is_gone_stops_no_answer(
    client: Client, router: App, bus_url: str, stream: StreamName
) -> None:
    await client.jetstream().delete_stream(stream)
    chats = Chats()
    # More garbage, and more turns with their events, than the relay has memory for.
    for number in range(100):
        subject = subjects.inbound(PLATFORM, ACCOUNT, f"{number:016x}")
        await client.jetstream().publish(subject, b"not json")
    async with working(client, echo, slots=8), delivering(client, chats.deliver) as adapter:
        for number in range(40):
            await adapter.publish(said(f"hello {number}", chat=str(number)))
        await eventually(lambda: len(chats.messages) == 40, timedelta(seconds=30))
        await eventually(names(router, stream), timedelta(seconds=8))
        assert (await readiness(router))["ready"]

        await apply_topology(bus_url)

        async def is_all_published() -> bool:
            stored = await client.jetstream().stream_info(stream)
            async with router.store.transaction() as connection:
                left = (await outbox.backlog(connection)).rows
            told = await readiness(router)
            return stored.state.messages >= 40 and left == 0 and told["streams"] == {}

        await eventually(is_all_published, timedelta(seconds=30))


@pytest.mark.parametrize(
    "stream", [StreamName.INBOUND, pytest.param(StreamName.RESULTS, marks=pytest.mark.slow)]
)
async def test_a_log_that_is_gone_makes_the_reader_unready_within_seconds(
    client: Client, router: App, bus_url: str, stream: StreamName
) -> None:
    assert (await readiness(router))["checks"]["reader"]
    await client.jetstream().delete_stream(stream)
    await eventually(names(router, stream), timedelta(seconds=8))
    # It stays so, however often the partitions are given up and taken again.
    for _ in range(60):
        told = await readiness(router)
        assert (told["ready"], told["checks"]["reader"]) == (False, False)
        assert told["streams"] == {stream: "missing"}

    await apply_topology(bus_url)

    async def is_ready() -> bool:
        return bool((await readiness(router))["ready"])

    await eventually(is_ready, timedelta(seconds=30))
    chats = Chats()
    async with working(client, echo), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))
        await chats.until_said("hello")
