"""Three nats-servers, streams with three replicas, and faults of the server that leads."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from chatlane_servers.binaries import server_directory
from tests.acceptance.conftest import ReportLine
from tests.support.servers.nats_cluster import NatsCluster, open_nats_cluster
from tests.support.servers.nats_users import Keys, with_keys
from tests.support.service.processes import USERS
from tests.support.service.scene import ALL_PARTITIONS, Scene, open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

PER_SECOND: Final = 60
STREAMS: Final = ("INBOUND", "ROUTED", "TURNS", "RESULTS", "OUTBOUND")
# Ten seconds on a machine that has nothing else to do.
LEADER_KILL_WITHIN: Final = timedelta(seconds=20)
# A frozen server keeps its clients until two pings are unanswered; one that is cut off keeps
# them until they notice that nothing is stored. Half of it, where nothing else runs.
SILENCE_WITHIN: Final = timedelta(seconds=60)
EQUAL_WITHIN: Final = timedelta(seconds=60)
PATIENCE: Final = timedelta(seconds=90)
# Longer than an election takes, as the shipped one is: no attempt fails for want of a leader.
TURN_LEASE: Final = timedelta(seconds=20)

Fault = Callable[[NatsCluster, str], Awaitable[None]]


@pytest.fixture
def users(tmp_path: Path) -> tuple[Keys, str]:
    """Each part of the service has an account of its own, as in production."""
    return with_keys(tmp_path / "keys", USERS)


@pytest.fixture
async def cluster(users: tuple[Keys, str]) -> AsyncIterator[NatsCluster]:
    _, config = users
    with server_directory() as directory:
        async with open_nats_cluster(directory, extra_config=config) as its:
            yield its


@pytest.fixture
async def clustered(
    cluster: NatsCluster, users: tuple[Keys, str], database_url: str, tmp_path: Path
) -> AsyncIterator[Scene]:
    """A stage with two of each, at two servers; the adapter is at the first."""
    keys, _ = users
    async with open_scene(
        tmp_path, cluster.urls[0], database_url, keys=keys, replicas=3, turn_lease=TURN_LEASE
    ) as scene:
        scene.patience = PATIENCE
        await start(scene, cluster)
        yield scene


async def kill(cluster: NatsCluster, name: str) -> None:
    await cluster.servers[name].kill()


async def freeze(cluster: NatsCluster, name: str) -> None:
    cluster.servers[name].pause()


async def isolate(cluster: NatsCluster, name: str) -> None:
    await cluster.isolate(name)


async def mute(cluster: NatsCluster, name: str) -> None:
    await cluster.mute(name)


async def mend(cluster: NatsCluster, name: str) -> None:
    """Undo whichever fault it was."""
    server = cluster.servers[name]
    if server.is_running:
        server.resume()
    await server.start()
    await cluster.heal()


async def find(cluster: NatsCluster, scene: Scene, victim: str) -> str:
    """Return the server that leads a stream or the cluster, or that the adapter is connected to."""
    match victim:
        case "meta":
            return await cluster.meta_leader()
        case "adapter":
            return cluster.name_of(scene.client.connected_url)
        case stream:
            return await cluster.stream_leader(scene.client, stream)


async def start(scene: Scene, cluster: NatsCluster) -> None:
    service, second = scene.service, cluster.urls[1]
    variables = {"CHATLANE_NATS__URL": second}
    routers = [service.router("router 1"), service.router("router 2", variables=variables)]
    service.worker("worker-1")
    service.worker("worker-2", variables=variables)
    service.subscriber("subscriber 1")
    service.subscriber("subscriber 2", variables={"NATS_URL": second})
    await service.until_started(*routers)
    await scene.recorder.until_owned(*[ALL_PARTITIONS // 2] * 2)


async def strike(
    cluster: NatsCluster, scene: Scene, fault: Fault, victim: str, report_line: ReportLine
) -> timedelta:
    """Strike amid traffic, see answers flow without the victim, and mend it.

    Returns:
        How long until answers flowed.
    """
    await scene.until_answers_flow()
    name = await find(cluster, scene, victim)
    struck_at = monotonic()
    await fault(cluster, name)
    await scene.until_answers_flow()
    gap = timedelta(seconds=monotonic() - struck_at)
    told = f"answers flow after {gap.total_seconds():.1f} s, {scene.recovery(struck_at)}"
    report_line(f"{fault.__name__} {victim}: {told}")
    await mend(cluster, name)
    await scene.until_answers_flow()
    return gap


async def verify(cluster: NatsCluster, scene: Scene) -> None:
    # A cluster that still catches up may move the leader of a stream while the verdict reads it.
    await cluster.until_equal(STREAMS, EQUAL_WITHIN)
    await scene.verify()
    scene.require_running()


@pytest.mark.timeout(180)
async def test_a_leader_that_is_killed_costs_nothing_but_time(
    cluster: NatsCluster, clustered: Scene, report_line: ReportLine
) -> None:
    async with clustered.users.talking(PER_SECOND):
        gap = await strike(cluster, clustered, kill, "INBOUND", report_line)
    await verify(cluster, clustered)
    assert gap < LEADER_KILL_WITHIN


# A nats-py client forgets the socket of an attempt to connect that nobody answered.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", [freeze, isolate, mute])
@pytest.mark.parametrize("victim", ["INBOUND", "RESULTS", "meta", "adapter"])
async def test_a_server_that_falls_silent_costs_nothing_but_time(
    cluster: NatsCluster, clustered: Scene, report_line: ReportLine, fault: Fault, victim: str
) -> None:
    async with clustered.users.talking(PER_SECOND):
        gap = await strike(cluster, clustered, fault, victim, report_line)
    await verify(cluster, clustered)
    assert gap < SILENCE_WITHIN


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_leaders_that_are_killed_one_after_the_other_cost_nothing_but_time(
    cluster: NatsCluster, clustered: Scene, report_line: ReportLine
) -> None:
    async with clustered.users.talking(PER_SECOND):
        gaps = [
            await strike(cluster, clustered, kill, victim, report_line)
            for victim in ("meta", *STREAMS)
        ]
    await verify(cluster, clustered)
    assert max(gaps) < LEADER_KILL_WITHIN
