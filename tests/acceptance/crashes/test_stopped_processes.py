"""SIGTERM, after which all is handed over at once, and SIGSTOP, which makes zombies."""

import signal
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest

from tests.acceptance.conftest import ReportLine
from tests.support.eventually import eventually
from tests.support.service.scene import ALL_PARTITIONS, Scene, open_scene, seconds_since

pytestmark = pytest.mark.acceptance

PER_SECOND = 120
ROUNDS = 3
SHORT_LEASE = timedelta(seconds=1.5)
# So long that nobody can have waited for its end.
LONG_LEASE = timedelta(seconds=10)
LONG_THOUGHT = timedelta(milliseconds=300)


async def redelivered(scene: Scene) -> int:
    """Return how many messages were delivered a second time by any durable."""
    jetstream = scene.client.jetstream()
    consumers = [
        info
        for stream in ("TURNS", "ROUTED", "OUTBOUND")
        for info in await jetstream.consumers_info(stream)
        if info.config.durable_name
    ]
    return sum(info.num_redelivered or 0 for info in consumers)


@pytest.mark.slow
async def test_what_is_stopped_hands_over_at_once(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, lease=LONG_LEASE) as scene:
        await _stop_amid_traffic(scene, report_line)


async def _stop_amid_traffic(scene: Scene, report_line: ReportLine) -> None:
    await scene.start()
    async with scene.users.talking(PER_SECOND):
        await scene.until_answers_flow()
        stopped_at = monotonic()
        router = scene.process("router 1")
        router.send(signal.SIGTERM)
        await scene.recorder.until_owned(ALL_PARTITIONS, timeout=LONG_LEASE / 2)
        handed_over = seconds_since(stopped_at)
        await eventually(lambda: router.exit_code is not None)
        router_exit = router.exit_code
        ended = seconds_since(stopped_at)
        await scene.process("worker-1").stop()
        router.start()
        await scene.recorder.until_owned(ALL_PARTITIONS // 2, ALL_PARTITIONS // 2)
        await scene.until_answers_flow()
    assert [router_exit, scene.process("worker-1").exit_code] == [0, 0]
    claims = scene.process("router 2").events("partitions_claimed")
    assert [its["taken_over"] for its in claims] == [0] * len(claims)
    assert await redelivered(scene) == 0
    await scene.verify()
    assert scene.users.slowest_since(stopped_at) < LONG_LEASE
    report_line(
        f"handed over after {handed_over}, exit 0 after {ended}, {scene.recovery(stopped_at)}"
    )


@pytest.mark.slow
async def test_a_router_that_wakes_up_after_its_lease_changes_nothing(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, lease=SHORT_LEASE) as scene:
        await scene.start()
        async with scene.users.talking(PER_SECOND):
            for number in range(1, ROUNDS + 1):
                await scene.until_answers_flow()
                report_line(f"taken over after {await _freeze_until_forgotten(scene, number)}")
        await scene.verify()
        scene.require_running()


async def _freeze_until_forgotten(scene: Scene, number: int) -> str:
    """Freeze a router until the other has gone on without it, and wake it up."""
    frozen = scene.process("router 1")
    frozen_at = monotonic()
    frozen.send(signal.SIGSTOP)
    await scene.recorder.until_owned(ALL_PARTITIONS)
    taken_over = seconds_since(frozen_at)
    await scene.until_answers_flow()
    frozen.send(signal.SIGCONT)
    await frozen.until_logged("partitions_lost", number)
    await scene.recorder.until_owned(ALL_PARTITIONS // 2, ALL_PARTITIONS // 2)
    return taken_over


async def test_a_worker_that_wakes_up_after_its_lease_changes_nothing(
    scene: Scene, report_line: ReportLine
) -> None:
    await scene.start(workers=0)
    frozen = scene.service.worker("worker-1", think=LONG_THOUGHT)
    scene.service.worker("worker-2", think=LONG_THOUGHT)
    async with scene.users.talking(PER_SECOND):
        await scene.until_answers_flow(10)
        await eventually(lambda: scene.claimed_by("worker-1"))
        frozen.send(signal.SIGSTOP)
        held = await scene.claimed_by("worker-1")

        async def are_answered() -> bool:
            query = "SELECT count(*) FROM turns WHERE state = 'done' AND id = ANY($1::uuid[])"
            return bool(await scene.recorder.value(query, held) == len(held))

        await eventually(are_answered, timedelta(seconds=20))
        frozen.send(signal.SIGCONT)
        await scene.until_answers_flow(10)
    await scene.verify()
    late = await scene.recorder.value("SELECT count(*) FROM late_results")
    report_line(f"{len(held)} turns were held, {late} late results")
