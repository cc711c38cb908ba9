"""Routers come and go under load: nothing is lost, and nobody waits for a lease."""

from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from tests.acceptance.conftest import ReportLine
from tests.support.service.processes import PARTITIONS, Process
from tests.support.service.scene import ALL_PARTITIONS, Scene, open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

PER_SECOND: Final = 60
MOST: Final = 6
# So long that nobody can have waited for its end.
LONG_LEASE: Final = timedelta(seconds=10)


def shares(routers: int) -> list[int]:
    """Return how many partitions of both logs each router has when they are shared out evenly."""
    share, rest = divmod(PARTITIONS, routers)
    return [2 * (share + (number < rest)) for number in range(routers)]


async def add_routers(scene: Scene, *numbers: int) -> list[Process]:
    routers = [scene.service.router(f"router {number}") for number in numbers]
    await scene.service.until_started(*routers)
    return routers


async def stop(router: Process) -> int | None:
    await router.stop()
    return router.exit_code


async def test_routers_are_added_and_taken_away_under_load(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, lease=LONG_LEASE) as scene:
        await scene.start(routers=1, workers=2, subscribers=1)
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            grew_at = monotonic()
            # Each takes seconds of the processors that they share here, and pods do not.
            routers = []
            for number in range(2, MOST + 1):
                routers += await add_routers(scene, number)
            await scene.recorder.until_owned(*shares(MOST))
            await scene.until_answers_flow()
            grown = scene.recovery(grew_at)

            shrank_at = monotonic()
            exits = [await stop(router) for router in routers[1:]]
            await scene.recorder.until_owned(*shares(2))
            await scene.until_answers_flow()
        assert exits == [0] * (MOST - 2)
        await scene.verify()
        assert scene.users.slowest_since(grew_at) < LONG_LEASE
        require_no_take_overs(scene)
        report_line(f"1 to {MOST}: {grown}; {MOST} to 2: {scene.recovery(shrank_at)}")


async def test_all_routers_are_replaced_one_by_one_under_load(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, lease=LONG_LEASE) as scene:
        await scene.start(routers=1, workers=2, subscribers=1)
        await add_routers(scene, 2, 3)
        await scene.recorder.until_owned(*shares(3))
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            began_at = monotonic()
            for number in (1, 2, 3):
                router = scene.process(f"router {number}")
                assert await stop(router) == 0
                router.start()
                await scene.recorder.until_owned(*shares(3))
            await scene.until_answers_flow()
        await scene.verify()
        assert scene.users.slowest_since(began_at) < LONG_LEASE
        require_no_take_overs(scene)
        report_line(scene.recovery(began_at))


async def test_more_routers_than_partitions_share_the_work_and_stand_by(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with open_scene(
        tmp_path, nats_url, database_url, lease=timedelta(seconds=1), partitions=2
    ) as scene:
        await add_routers(scene, 1, 2, 3, 4)
        scene.service.worker("worker-1")
        scene.service.subscriber("subscriber 1")
        await scene.recorder.until_owned(2, 2)
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            busy = sorted(await scene.recorder.owners())
            await scene.process(await named(scene, busy[0])).kill()
            await scene.recorder.until_owned(2, 2)
            await scene.until_answers_flow()
        await scene.verify()


async def named(scene: Scene, router_id: str) -> str:
    """Return the process that is the router with this id."""
    for name, process in scene.service.processes.items():
        if any(its["router"] == router_id for its in process.events("router_started")):
            return name
    raise AssertionError(router_id)


def require_no_take_overs(scene: Scene) -> None:
    """Require that every partition was handed over, and none taken from a router that went."""
    claims = [
        claim
        for name, process in scene.service.processes.items()
        if name.startswith("router")
        for claim in process.events("partitions_claimed")
    ]
    assert sum(claim["taken_over"] for claim in claims) == 0
    assert sum(len(claim["partitions"]) for claim in claims) >= ALL_PARTITIONS
