"""One adapter floods with garbage while people of another account talk: only it pays for it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import pytest

from chatlane.nats.jetstream import JetStream
from chatlane_client import open_connection
from chatlane_schemas.topology import subjects
from tests.support.eventually import eventually
from tests.support.service.hostile_adapter import MARKER, attack
from tests.support.service.processes import PLATFORM
from tests.support.service.scene import Scene, open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300), pytest.mark.slow]

HOSTILE: Final = "hostile"
OWNER: Final = f"{PLATFORM}/{HOSTILE}"
PER_SECOND: Final = 300
SECONDS: Final = 25
TALK_PER_SECOND: Final = 20
LETTERS: Final = 300
CONFIG: Final = f"""
[platforms.{PLATFORM}.accounts.{HOSTILE}]

[dead_letters]
most_per_hour = {LETTERS}
most_bytes_per_hour = "4MiB"
"""
MIB: Final = 1024 * 1024
SMALL_LOG: Final = 16 * MIB
PATIENCE: Final = timedelta(seconds=60)
ROUTERS: Final = ("router 1", "router 2")


async def readiness(port: int) -> Mapping[str, Any]:
    async with httpx.AsyncClient(timeout=5) as client:
        told: Mapping[str, Any] = (await client.get(f"http://127.0.0.1:{port}/readyz")).json()
    return told


async def metrics(port: int) -> str:
    async with httpx.AsyncClient(timeout=5) as client:
        return (await client.get(f"http://127.0.0.1:{port}/metrics")).text


def memory(scene: Scene) -> dict[str, int]:
    """Return how many bytes each router has in memory."""
    pids = {name: scene.process(name).pid for name in ROUTERS}
    return {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}


async def states_during(ports: list[int], stop: asyncio.Event) -> list[Mapping[str, Any]]:
    """Ask the routers how they are, again and again."""
    told = []
    while not stop.is_set():
        told += [await readiness(port) for port in ports]
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), timeout=0.5)
    return told


@pytest.fixture
async def scene(nats_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """A stage with a second account, and with few dead letters in an hour."""
    async with open_scene(tmp_path, nats_url, database_url, more=CONFIG) as opened:
        yield opened


async def test_only_the_adapter_that_floods_pays_for_it(scene: Scene) -> None:
    scene.patience = PATIENCE
    await scene.start(routers=2, workers=2, subscribers=1)
    started = [await scene.process(name).until_logged("router_started") for name in ROUTERS]
    ports = [its["port"] for its in started]
    async with scene.users.talking(TALK_PER_SECOND):
        await scene.until_answers_flow(10)
    before = memory(scene)
    stop = asyncio.Event()
    looking = asyncio.create_task(states_during(ports, stop))
    async with scene.users.talking(TALK_PER_SECOND):
        published = await attack(
            scene.service.nats_url, PLATFORM, HOSTILE, per_second=PER_SECOND, seconds=SECONDS
        )
    await scene.until_all_is_heard()
    stop.set()
    told = await looking

    assert published.total() > PER_SECOND * SECONDS / 2
    assert scene.users.refused == 0, "what others publish is taken"
    heard = Counter(text for one in scene.users.received for text in one.heard)
    assert heard == Counter({sent.text: 1 for sent in scene.users.sent}), "answered once each"
    assert {its["state"] for its in told} == {"ready"}, [its for its in told if its["complaints"]]
    await eventually(lambda: are_named(ports), PATIENCE)
    grown = {name: size - before[name] for name, size in memory(scene).items()}
    assert max(grown.values()) < 150 * MIB, grown
    kept = await scene.recorder.value("SELECT count(*) FROM dead_letters WHERE body IS NOT NULL")
    # Two routers that decide at the same time may keep a batch more each.
    assert kept < 2 * LETTERS
    assert await scene.recorder.value("SELECT sum(length(body)) FROM dead_letters") < 8 * MIB
    shown = "".join([await metrics(port) for port in ports])
    assert f'chatlane_log_trimmed_total{{log="inbound",owner="{OWNER}"}}' in shown
    assert f'chatlane_dead_letters_dropped_total{{log="inbound",owner="{OWNER}"}}' in shown
    assert f'chatlane_received_messages_total{{log="inbound",owner="{OWNER}"}}' in shown
    for process in scene.service.processes.values():
        assert MARKER not in process.log_path.read_text("utf-8")
    scene.require_running()


async def are_named(ports: list[int]) -> bool:
    for port in ports:
        told = await readiness(port)
        assert told["state"] == "ready"
        for what in ("dead_letters_dropped", "log_trimmed", "unpartitioned"):
            assert f"{what} inbound {OWNER}" in told["notices"], told["notices"]
    return True


async def test_a_log_that_one_adapter_filled_has_room_again_within_seconds(scene: Scene) -> None:
    """Nothing bounds a burst that comes before any router can decide; what follows it is bounded."""
    scene.patience = PATIENCE
    await scene.start(routers=2, workers=2, subscribers=1)
    jetstream = JetStream(scene.client)
    await jetstream.request("STREAM.UPDATE.INBOUND", await with_limit(jetstream, SMALL_LOG))
    async with scene.users.talking(TALK_PER_SECOND):
        await scene.until_answers_flow(5)
        await fill(scene.service.nats_url)
        await scene.until_answers_flow(50)
    await scene.until_all_is_heard()
    heard = Counter(text for one in scene.users.received for text in one.heard)
    assert heard == Counter({sent.text: 1 for sent in scene.users.sent})

    async def has_room() -> bool:
        state = (await scene.client.jetstream().stream_info("INBOUND")).state
        return state.bytes < 0.8 * SMALL_LOG

    await eventually(has_room, PATIENCE)
    scene.require_running()


async def with_limit(jetstream: JetStream, max_bytes: int) -> dict[str, Any]:
    return {**(await jetstream.get_stream("INBOUND")).config, "max_bytes": max_bytes}


async def fill(url: str) -> None:
    """Store as much as a log takes, as fast as a connection can, without waiting for any answer."""
    body = f"{MARKER} ".encode() * 1000
    async with open_connection(url, name="fill") as client:
        for number in range(3 * SMALL_LOG // len(body)):
            chat = subjects.chat_token(f"hostile-{number % 100}")
            await client.publish(f"chat.v1.inbound.{PLATFORM}.{HOSTILE}.{chat}", body)
            if number % 200 == 0:
                await client.flush()
        answer = await client.request(
            f"chat.v1.inbound.{PLATFORM}.{HOSTILE}.{subjects.chat_token('last')}", body
        )
        assert b"maximum bytes exceeded" in answer.data, "the log was full"
