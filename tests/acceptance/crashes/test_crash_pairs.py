"""Two ends of processes in a row: one dies at a crash point, and who comes after it at another.

Nobody healthy is there in between: what the first leaves behind is all with the second when that
dies, too. Then comes one that lives, and answers flow again before the next pair. Every pair of
points of routers, and every pair of points of workers, is tried by the long tests; the short one
takes some, chosen by a seed.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path
from random import Random
from typing import Final

import pytest

from chatlane.failpoints import RouterPoint, WorkerPoint
from chatlane.nats.tasks import end_task
from tests.acceptance.conftest import ReportLine
from tests.support.service.failpoint_scene import (
    AFTER_DEATHS,
    ONCE,
    REACHED_WITHIN,
    WHEN_STOPPED,
    open_short_leased_scene,
    until_dead,
)
from tests.support.service.processes import Process
from tests.support.service.scene import Scene

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120), pytest.mark.slow]

PER_SECOND: Final = 30
# So many that some of them wait for nobody who is dead.
PEOPLE: Final = 90
# What leads to a point by itself does so within a lease or two.
SOON: Final = timedelta(seconds=5)
FEW: Final = 10
SEED: Final = 4

RouterPair = tuple[RouterPoint, RouterPoint]
WorkerPair = tuple[WorkerPoint, WorkerPoint]

ROUTER_PAIRS: Final = tuple(product(RouterPoint, RouterPoint))
WORKER_PAIRS: Final = tuple(product(WorkerPoint, WorkerPoint))
# Who dies at one of these has done nothing yet.
AT_ONCE: Final = {*AFTER_DEATHS, RouterPoint.PARTITIONS_CLAIMED}
# A life passes the others often; which pass is the last is a matter of chance: late for the first
# of a pair, so that answers flow before, and soon for the second.
FIRST_PASSES: Final = (10, 20)
SECOND_PASSES: Final = (1, 5)


@dataclass(slots=True)
class Deaths:
    """Lets processes die in pairs on one stage.

    Attributes:
        reached: The points at which processes died, in this order.
        others: How many routers were killed so that one would get to its point.
    """

    scene: Scene
    chance: Random
    reached: list[str] = field(default_factory=list)
    others: int = 0

    def _name(self, kind: str) -> str:
        return f"{kind}-{len(self.scene.service.processes)}"

    def _crash_at(self, point: RouterPoint | WorkerPoint) -> str:
        return f"{point}:{1 if point in ONCE else self.chance.randint(*SECOND_PASSES)}"

    async def of_routers(self, pairs: Sequence[RouterPair]) -> None:
        """Let routers die in pairs, beside a worker that stays and one that dies with them."""
        victim = self.scene.service.worker("worker-victim")
        for first, second in pairs:
            victim.start()
            await self._first_router_dies(first, victim)
            await self._router_dies(second)
        self.scene.service.router(self._name("router"))
        await self.scene.until_answers_flow(FEW)

    async def _first_router_dies(self, point: RouterPoint, victim: Process) -> None:
        """Let answers flow before a router dies: by itself, or beside one that is killed for it."""
        late = 1 if point in ONCE else self.chance.randint(*FIRST_PASSES)
        if point in AT_ONCE:
            router = self.scene.service.router(self._name("router"))
            await self.scene.until_answers_flow(FEW)
            await router.kill()
            await victim.kill()
            await self._router_dies(point)
        else:
            router = self.scene.service.router(self._name("router"), crash_at=f"{point}:{late}")
            await self._until_answers_flow_from(router)
            if point in WHEN_STOPPED:
                router.send(signal.SIGTERM)
            await self._until_dead(router, point)
            await victim.kill()

    async def of_workers(self, pairs: Sequence[WorkerPair]) -> None:
        """Let workers die in pairs, with one router that stays."""
        service = self.scene.service
        worker = service.worker(self._name("worker"))
        for pair in pairs:
            await self.scene.until_answers_flow(FEW)
            await worker.kill()
            for point in pair:
                dies = service.worker(self._name("worker"), crash_at=self._crash_at(point))
                await self._until_dead(dies, point)
            worker = service.worker(self._name("worker"))
        await self.scene.until_answers_flow(FEW)

    async def _router_dies(self, point: RouterPoint) -> None:
        router = self.scene.service.router(self._name("router"), crash_at=self._crash_at(point))
        if point in WHEN_STOPPED:
            await self._until_answers_flow_from(router)
            router.send(signal.SIGTERM)
        if point in AFTER_DEATHS:
            await self._others_die_until(router)
        await self._until_dead(router, point)

    async def _until_answers_flow_from(self, router: Process) -> None:
        """Wait until a router does its work, or has ended by itself."""
        await router.until_logged("partitions_claimed")
        flowing = asyncio.create_task(self.scene.until_answers_flow(FEW))
        ended = asyncio.create_task(router.wait(REACHED_WITHIN))
        await asyncio.wait([flowing, ended], return_when=asyncio.FIRST_COMPLETED)
        for task in (flowing, ended):
            await end_task(task)

    async def _others_die_until(self, router: Process) -> None:
        """Wait until a router has ended; where nobody left it anything, let others die beside it."""
        victim = self.scene.process("worker-victim")
        while not await _is_dead(router, SOON):
            self.others += 1
            other = self.scene.service.router(self._name("router"))
            victim.start()
            # Answers flow without it, too, and who has nothing leaves nothing.
            await other.until_logged("partitions_claimed")
            await self.scene.until_answers_flow(FEW)
            await other.kill()
            await victim.kill()

    async def _until_dead(self, process: Process, point: str) -> None:
        await until_dead(process, point)
        self.reached.append(point)


async def _is_dead(process: Process, within: timedelta) -> bool:
    try:
        await process.wait(within)
    except TimeoutError:
        return False
    return True


@asynccontextmanager
async def open_deaths(
    directory: Path, nats_url: str, database_url: str, seed: int
) -> AsyncIterator[Deaths]:
    """Set a stage on which a worker and a subscriber stay; nothing may be wrong in the end."""
    async with open_short_leased_scene(directory, nats_url, database_url, PEOPLE) as scene:
        scene.service.subscriber("subscriber 1")
        async with scene.users.talking(PER_SECOND):
            yield Deaths(scene, Random(seed))  # noqa: S311 # the same every time
        await scene.verify()


def _count(deaths: Deaths, pairs: int) -> str:
    messages = len(deaths.scene.users.sent)
    return f"{pairs} pairs, {len(deaths.reached)} deaths, {messages} messages, {deaths.others} others killed"


async def _routers_die(
    deaths: Deaths, pairs: Sequence[RouterPair], report_line: ReportLine
) -> None:
    deaths.scene.service.worker("worker-1")
    await deaths.of_routers(pairs)
    assert deaths.reached == [point for pair in pairs for point in pair]
    report_line(_count(deaths, len(pairs)))


async def _workers_die(
    deaths: Deaths, pairs: Sequence[WorkerPair], report_line: ReportLine
) -> None:
    deaths.scene.service.router("router 1")
    await deaths.of_workers(pairs)
    assert deaths.reached == [point for pair in pairs for point in pair]
    report_line(_count(deaths, len(pairs)))


async def test_who_comes_after_a_dead_router_may_die_too(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    some = Random(SEED).sample(ROUTER_PAIRS, 3)  # noqa: S311 # the same every time
    async with open_deaths(tmp_path, nats_url, database_url, SEED) as deaths:
        await _routers_die(deaths, some, report_line)


async def test_who_comes_after_a_dead_worker_may_die_too(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    some = Random(SEED).sample(WORKER_PAIRS, 3)  # noqa: S311 # the same every time
    async with open_deaths(tmp_path, nats_url, database_url, SEED) as deaths:
        await _workers_die(deaths, some, report_line)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", RouterPoint)
async def test_every_pair_of_points_of_routers(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine, first: RouterPoint
) -> None:
    pairs = [pair for pair in ROUTER_PAIRS if pair[0] is first]
    seed = ROUTER_PAIRS.index(pairs[0])
    async with open_deaths(tmp_path, nats_url, database_url, seed) as deaths:
        await _routers_die(deaths, pairs, report_line)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_every_pair_of_points_of_workers(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    async with open_deaths(tmp_path, nats_url, database_url, SEED) as deaths:
        await _workers_die(deaths, WORKER_PAIRS, report_line)
