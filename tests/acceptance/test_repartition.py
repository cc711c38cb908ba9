"""The number of partitions changes under load, while routers and the command itself die."""

import signal
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from chatlane.crash_points import ChangePoint
from tests.acceptance.conftest import Tell
from tests.support.service.processes import Process, Service
from tests.support.service.scene import Scene, open_scene

pytestmark = pytest.mark.acceptance

PER_SECOND: Final = 30
FEW: Final = 4
MANY: Final = 16
LEASE: Final = timedelta(seconds=2)
DONE_WITHIN: Final = timedelta(seconds=40)
OF_COMMAND: Final = (ChangePoint.STOPPED, ChangePoint.MAPPED, ChangePoint.BOUNDED)


async def repartition(service: Service, count: int, crash_at: ChangePoint | None = None) -> int:
    """Run the command for a number of partitions; return its exit code."""
    config = service.directory / f"{count}.toml"
    declared = service.config.read_text("utf-8")
    config.write_text(declared.replace(f"partitions = {FEW}\n", f"partitions = {count}\n"), "utf-8")
    arguments = ["-m", "chatlane", "admin", "repartition", "--config", str(config)]
    command = Process(f"repartition {count} {crash_at or ''}", arguments, service.directory)
    if crash_at:
        command.start_armed(f"{crash_at}:1")
    else:
        command.start()
    await command.wait(DONE_WITHIN)
    assert command.exit_code is not None
    return command.exit_code


async def require_divided(scene: Scene, count: int) -> None:
    rows = await scene.recorder.fetch("SELECT log, id FROM partitions ORDER BY log, id")
    numbers = range(count)
    assert [tuple(row) for row in rows] == [
        (log, number) for log in ("inbound", "results") for number in numbers
    ]


async def start_router(scene: Scene, name: str, crash_at: str = "") -> Process:
    router = scene.service.router(name, crash_at=crash_at)
    await scene.service.until_started(router)
    return router


@pytest.mark.timeout(150)
async def test_partitions_become_more_and_fewer_while_everything_may_die(
    nats_url: str, database_url: str, tmp_path: Path, tell: Tell
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, lease=LEASE, partitions=FEW) as scene:
        first = await start_router(scene, "router 1")
        await start_router(scene, "router 2")
        scene.service.worker("worker-1")
        scene.service.worker("worker-2")
        scene.service.subscriber("subscriber 1")
        await scene.recorder.until_owned(FEW, FEW)
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            began_at = monotonic()
            for point in OF_COMMAND:
                assert await repartition(scene.service, MANY, point) == -signal.SIGKILL
                # Nobody waits for whoever runs it again.
                await scene.until_answers_flow()
            assert await repartition(scene.service, MANY) == 0
            await require_divided(scene, MANY)
            died = await start_router(scene, "router 3", f"{ChangePoint.REACHED}:1")
            await scene.recorder.until_owned(12, 10, 10)
            assert await repartition(scene.service, 2) == 0
            await require_divided(scene, 2)
            assert died.exit_code == -signal.SIGKILL
            # Under the number that it was once started with.
            await first.kill()
            first.start()
            await first.until_told("router_started", 2)
            await scene.until_answers_flow()
        tell(scene.recovery(began_at))
        await scene.verify()
