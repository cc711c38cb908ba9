"""The HPA controller, with the figures of a modelled load and of recorded outages, in real time."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.kube_api.cluster import NAMESPACE, PATIENCE, Cluster
from tests.deploy.kube_api.manual import chart_command
from tests.deploy.kube_api.test_chart_installed import installed, prepare, set_values
from tests.deploy.kubernetes.outage_recording import AWAY
from tests.deploy.kubernetes.test_autoscaling import (
    MOST_WAIT_SECONDS,
    OUTAGES,
    answers_during,
    processors,
    router_scaler,
    scrape_seconds,
    slots,
    trigger,
)
from tests.deploy.kubernetes.worker_load import START_SECONDS, Load, WorkerLoad
from tests.support.eventually import eventually

pytestmark = [pytest.mark.kube_api, pytest.mark.timeout(1200)]

ROUTERS: Final = (NAMESPACE, "chatlane-router")
WORKERS: Final = (NAMESPACE, "echo-worker")
# Turns that four workers answer become four times as many.
LOAD: Final = Load(rate=1.6, factor=4, turn_seconds=10, before=45, after=75)


async def replicas(cluster: Cluster, name: str) -> int:
    """Return how many pods a Deployment is to have."""
    found = await cluster.find(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}")
    assert found is not None
    number: int = found["spec"]["replicas"]
    return number


async def test_workers_are_added_before_turns_wait_for_long(
    cluster: Cluster, report_line: Callable[[str], None]
) -> None:
    cluster.figures.external |= {ROUTERS: 0, WORKERS: 16}
    cluster.figures.processors[NAMESPACE] = 0.1
    await installed(cluster, "keda")

    async def there_are_four_workers() -> bool:
        return await cluster.ready("echo-worker") == 4

    await eventually(there_are_four_workers, PATIENCE)
    workers = WorkerLoad(slots(), scrape_seconds(), running=4)
    clock = asyncio.get_running_loop().time
    begin = clock() + LOAD.before
    ready: list[tuple[float, int]] = [(-LOAD.before, 4)]
    for now in workers.steps(LOAD, random.Random(7)):  # noqa: S311 # repeatable arrivals
        await asyncio.sleep(begin + now - clock())
        cluster.figures.external[WORKERS] = workers.live_turns
        ready.append((now, await cluster.ready("echo-worker")))
        workers.running = next(
            number for at, number in reversed(ready) if at <= max(now - START_SECONDS, -LOAD.before)
        )
    numbers = [number for _, number in ready]
    longest = workers.longest_wait(0, LOAD.after)
    report_line(f"4 workers became {numbers[-1]}; the longest wait of a turn was {longest:.1f} s")
    assert workers.longest_wait(-LOAD.before, 0) < 1
    assert longest <= MOST_WAIT_SECONDS
    assert numbers[-1] > 4
    assert await replicas(cluster, "echo-worker") == numbers[-1]


@pytest.mark.parametrize("variant", ["hpa", "keda"])
async def test_routers_are_added_for_work_and_not_while_postgres_is_away(
    variant: str, cluster: Cluster, tmp_path: Path
) -> None:
    """The outage is played from shortly before it until shortly after, as it was recorded."""
    await prepare(cluster, variant)
    set_values(cluster, variant, "1", size="medium")
    times = range(AWAY.start - 15, AWAY.stop + 45, 15)
    query = trigger(router_scaler())["query"]
    lagging = answers_during("postgres", query, times, tmp_path)
    used = [processors(OUTAGES["postgres"], time) / 3 for time in times]
    cluster.figures.external |= {ROUTERS: lagging[0], WORKERS: 0}
    cluster.figures.processors[NAMESPACE] = used[0]
    await cluster.run(chart_command())

    async def three_are_ready() -> bool:
        return await cluster.ready("router") == 3

    await eventually(three_are_ready, PATIENCE)
    asked = cluster.figures.asked
    clock = asyncio.get_running_loop().time
    begin = clock()
    for time, count, processor in zip(times, lagging, used, strict=True):
        cluster.figures.external[ROUTERS] = count
        cluster.figures.processors[NAMESPACE] = processor
        await asyncio.sleep(begin + time - times[0] + 15 - clock())
        assert await replicas(cluster, "chatlane-router") == 3
    if variant == "keda":
        assert cluster.figures.asked > asked

    # Then there is work.
    cluster.figures.external[ROUTERS] = 24
    cluster.figures.processors[NAMESPACE] = 1.5

    async def more_are_ready() -> bool:
        return await cluster.ready("router") >= 6

    await eventually(more_are_ready, PATIENCE)
