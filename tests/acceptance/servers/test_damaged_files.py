"""Bits that flip, and ends that are missing, in the files of a nats-server that was away."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import JetStream
from chatlane_devkit.judge.history import LogEntry
from chatlane_devkit.judge.verdict import Run, judge
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import NatsServer
from chatlane_servers.processes import ServerStartError
from tests.acceptance.conftest import ReportLine
from tests.support.eventually import eventually
from tests.support.servers.nats_cluster import NatsCluster, open_nats_cluster
from tests.support.service.load_users import people
from tests.support.service.scene import Scene, open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

PER_SECOND: Final = 20
STREAMS: Final = ("INBOUND", "ROUTED", "TURNS", "RESULTS", "OUTBOUND")
LEADS_WITHIN: Final = timedelta(seconds=60)
EQUAL_WITHIN: Final = timedelta(seconds=60)
PATIENCE: Final = timedelta(seconds=90)
# Longer than an election takes, as the shipped one is.
TURN_LEASE: Final = timedelta(seconds=20)
MESSAGES: Final = 4

Damage = Callable[[bytearray], None]


def flip(content: bytearray) -> None:
    """Flip one bit, past the middle."""
    content[len(content) * 3 // 5] ^= 4


def cut(content: bytearray) -> None:
    """Lose the end, as much as a page."""
    del content[-min(4096, len(content) // 2) :]


def damage(directory: Path, pattern: str, how: Damage) -> int:
    """Damage all files whose paths end like this; returns how many."""
    hit = [path for path in directory.rglob("*") if path.match(pattern) and path.stat().st_size]
    for path in hit:
        content = bytearray(path.read_bytes())
        how(content)
        path.write_bytes(content)
    return len(hit)


@pytest.fixture
async def cluster() -> AsyncIterator[NatsCluster]:
    with server_directory() as directory:
        async with open_nats_cluster(directory) as its:
            yield its


async def lead(scene: Scene, cluster: NatsCluster, name: str) -> None:
    """Make a server lead every stream."""
    jetstream = JetStream(scene.client)

    async def leads(stream: str) -> bool:
        if await cluster.stream_leader(scene.client, stream) == name:
            return True
        request = {"placement": {"preferred": name}}
        await jetstream.request(f"STREAM.LEADER.STEPDOWN.{stream}", request)
        return False

    async def does(stream: str) -> bool:
        try:
            return await leads(stream)
        except BusUnavailableError:
            # They elect somebody, or it is not far enough to be elected.
            return False

    for stream in STREAMS:
        await eventually(lambda stream=stream: does(stream), LEADS_WITHIN)  # type: ignore[misc]


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(("$G/streams/*/msgs/*.blk", flip), id="messages-flip"),
        pytest.param(("$G/streams/*/msgs/*.blk", cut), id="messages-cut"),
        pytest.param(("$G/streams/*/meta.inf", flip), id="description-flip"),
        pytest.param(("_js_/S-R3F-*/msgs/*.blk", flip), id="raft-flip"),
        pytest.param(("_js_/S-R3F-*/msgs/*.blk", cut), id="raft-cut"),
    ],
)
async def test_a_replica_with_damaged_files_that_comes_to_lead_costs_nothing(
    cluster: NatsCluster,
    database_url: str,
    tmp_path: Path,
    report_line: ReportLine,
    damaged: tuple[str, Damage],
) -> None:
    async with open_scene(
        tmp_path, cluster.urls[0], database_url, replicas=3, turn_lease=TURN_LEASE
    ) as scene:
        scene.patience = PATIENCE
        await scene.start()
        # Nobody is connected to the last one.
        name, server = list(cluster.servers.items())[-1]
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            await server.kill()
            count = damage(server.directory / "store", *damaged)
            assert count
            await server.start()
            await lead(scene, cluster, name)
            await scene.until_answers_flow()
        await scene.verify()
        await cluster.until_equal(STREAMS, EQUAL_WITHIN)
        scene.require_running()
        report_line(f"{count} files")


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_a_replica_that_cannot_trust_its_snapshots_is_made_anew_amid_traffic(
    cluster: NatsCluster, database_url: str, tmp_path: Path
) -> None:
    """It stays unhealthy, and the other two go on, until somebody takes its files away."""
    async with open_scene(
        tmp_path, cluster.urls[0], database_url, replicas=3, turn_lease=TURN_LEASE
    ) as scene:
        scene.patience = PATIENCE
        await scene.start()
        name, server = list(cluster.servers.items())[-1]
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            await server.kill()
            assert damage(server.directory / "store", "_js_/S-R3F-*/snapshots/*", flip)
            with pytest.raises(ServerStartError, match="snapshot corrupt"):
                await server.start()
            await scene.until_answers_flow()
            shutil.rmtree(server.directory / "store")
            await server.start()
            await lead(scene, cluster, name)
            await scene.until_answers_flow()
        await scene.verify()
        await cluster.until_equal(STREAMS, EQUAL_WITHIN)
        scene.require_running()


@pytest.fixture
async def alone() -> AsyncIterator[NatsServer]:
    """A server without replicas, whose files the test can reach."""
    with server_directory() as directory:
        server = NatsServer(directory / "nats", sync_always=True)
        await server.start()
        try:
            yield server
        finally:
            await server.kill()


@pytest.mark.parametrize("how", [flip, pytest.param(cut, marks=pytest.mark.long)])
async def test_what_a_lone_server_loses_of_what_was_dealt_with_is_told_and_repeats_nothing(
    alone: NatsServer, database_url: str, tmp_path: Path, how: Damage
) -> None:
    """Killed, it trusts no index: from a block with a flipped bit it drops what follows."""
    async with open_scene(tmp_path, alone.url, database_url, people(6)) as scene:
        await scene.start(routers=1, workers=1, subscribers=1)
        await _everybody_writes(scene)
        await scene.verify()
        said = {its.envelope_id for its in scene.users.sent}
        before = await scene.recorder.history(scene.users)
        await alone.kill()
        for stream in STREAMS:
            assert damage(alone.directory / "store", f"streams/{stream}/msgs/*.blk", how)
        await alone.start()
        await _everybody_writes(scene)
        await scene.recorder.until_settled(scene.users)
        await scene.process("router 1").until_logged("log_replaced")
        history = await scene.recorder.history(scene.users)
        lost = said - set(history.stored_ids)
        # INBOUND ends with receipts.
        assert lost or set(before.receipts) - set(history.receipts)
        assert {its.envelope_id for its in scene.users.sent} - set(history.stored_ids) == lost
        known = replace(history, log=[*history.log, *map(LogEntry, lost)], routed=(), outbound=())
        found = [line for line in judge(Run(known)).problems if not _tells_of_what_is_lost(line)]
        assert found == []
        scene.require_running()


def _tells_of_what_is_lost(line: str) -> bool:
    return "was never published to its agent" in line or "the log has the messages" in line


async def _everybody_writes(scene: Scene) -> None:
    for _ in range(MESSAGES):
        await asyncio.gather(*(scene.users.say(person) for person in scene.users.members))
