"""Every crash point once, in processes that end themselves there amid steady traffic.

Routers and workers that are armed come and go beside one of each that stays. A point that no
process reached fails the test as a lost message does.
"""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from chatlane.failpoints import POINTS, RouterPoint, WorkerPoint
from tests.acceptance.conftest import ReportLine
from tests.support.service.failpoint_scene import (
    AFTER_DEATHS,
    WHEN_STOPPED,
    open_short_leased_scene,
    until_dead,
)
from tests.support.service.scene import Scene

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

PER_SECOND: Final = 80
PEOPLE: Final = 30
# So many routers are on their way to their end at a time.
AT_ONCE: Final = 3
# The first pass tells least where there are many of them.
NTH: Final = {
    RouterPoint.BATCH_TAKEN: 5,
    RouterPoint.CURSORS_MOVED: 5,
    RouterPoint.BATCH_WRITTEN: 5,
    RouterPoint.OUTBOX_COMMITTED: 5,
    RouterPoint.PUBLISHING: 20,
    RouterPoint.PUBLISHED: 20,
    RouterPoint.ACKNOWLEDGED: 20,
    WorkerPoint.NOTIFIED: 5,
    WorkerPoint.CLAIMED: 5,
    WorkerPoint.ACKNOWLEDGED: 5,
    WorkerPoint.ANSWERED: 5,
    WorkerPoint.PUBLISHED: 5,
}


def crash_at(point: RouterPoint | WorkerPoint) -> str:
    return f"{point}:{NTH.get(point, 1)}"


async def die_in_turn(scene: Scene, points: Iterator[RouterPoint]) -> None:
    """Let a router die at each of these points, which it reaches by itself or by being stopped."""
    for point in points:
        process = scene.service.router(f"router {point}", crash_at=crash_at(point))
        if point in WHEN_STOPPED:
            await process.until_logged("partitions_claimed")
            await scene.until_answers_flow()
            process.send(signal.SIGTERM)
        await until_dead(process, point)


async def workers_die_in_turn(scene: Scene) -> None:
    for point in WorkerPoint:
        process = scene.service.worker(f"worker-{point}", crash_at=crash_at(point))
        await until_dead(process, point)


async def die_of_others(scene: Scene) -> None:
    """Wait for the routers that clear up after others; let others die until they have."""
    victim, worker = scene.process("victim"), scene.process("worker-victim")
    for point in AFTER_DEATHS:
        process = scene.process(f"router {point}")
        while process.is_running:
            await victim.kill()
            await worker.kill()
            victim.start()
            worker.start()
            await scene.until_answers_flow()
        await until_dead(process, point)


@pytest.mark.timeout(180)
async def test_a_death_at_any_point_costs_nothing_but_time(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    async with open_short_leased_scene(tmp_path, nats_url, database_url, PEOPLE) as scene:
        await scene.start(routers=1, workers=1)
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            # Who waits for the death of others is there from the start.
            for point in AFTER_DEATHS:
                scene.service.router(f"router {point}", crash_at=crash_at(point))
            points = iter([its for its in RouterPoint if its not in AFTER_DEATHS])
            routers = [die_in_turn(scene, points) for _ in range(AT_ONCE)]
            await asyncio.gather(workers_die_in_turn(scene), *routers)
            scene.service.router("victim")
            scene.service.worker("worker-victim")
            await die_of_others(scene)
        await scene.verify()
        again = await scene.recorder.value("SELECT count(*) FROM turns WHERE attempt > 1")
        report_line(
            f"{len(POINTS)} points, {len(scene.users.sent)} messages, {again} turns tried again"
        )
