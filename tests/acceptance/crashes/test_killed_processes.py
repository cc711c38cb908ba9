"""SIGKILL of a router and of a worker in the middle of steady traffic."""

from datetime import timedelta
from time import monotonic

import pytest

from tests.acceptance.conftest import ReportLine
from tests.support.eventually import eventually
from tests.support.service.scene import ALL_PARTITIONS, Scene, seconds_since

pytestmark = pytest.mark.acceptance

PER_SECOND = 120
# A worker spends most of its time on its turns.
THOUGHT = timedelta(milliseconds=200)


async def test_a_killed_router_costs_nothing_but_time(
    scene: Scene, report_line: ReportLine
) -> None:
    await scene.start()
    async with scene.users.talking(PER_SECOND):
        await scene.until_answers_flow()
        killed_at = monotonic()
        await scene.process("router 1").kill()
        await scene.recorder.until_owned(ALL_PARTITIONS)
        taken_over = seconds_since(killed_at)
        await scene.until_answers_flow()
    await scene.verify()
    report_line(f"partitions taken over after {taken_over}, {scene.recovery(killed_at)}")


async def test_a_killed_worker_leaves_its_turns_to_the_other(
    scene: Scene, report_line: ReportLine
) -> None:
    await scene.start(workers=0)
    for name in ("worker-1", "worker-2"):
        scene.service.worker(name, think=THOUGHT)
    async with scene.users.talking(PER_SECOND):
        await scene.until_answers_flow()
        killed_at = monotonic()
        while True:
            await eventually(lambda: scene.claimed_by("worker-1"))
            await scene.process("worker-1").kill()
            if held := await scene.claimed_by("worker-1"):
                break
            scene.process("worker-1").start()
        await scene.until_answers_flow()
    await scene.verify()
    again = await scene.recorder.value(
        "SELECT count(*) FROM turns WHERE id = ANY($1::uuid[]) AND attempt >= 2", held
    )
    assert again >= 1
    report_line(f"{len(held)} turns were held, {scene.recovery(killed_at)}")
