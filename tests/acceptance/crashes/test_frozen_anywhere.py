"""Processes that freeze at a crash point for more than three leases, and then go on from there.

They know nothing of it: what they are about to write, publish or answer was right when they
stopped. One router and one worker stay awake and do the work meanwhile. Every point is tried by the
long test; the short one takes some, chosen by a seed.

A router that takes over rows later than a duplicate window after their publish publishes them a
second time, with the same id (docs/guarantees.md). The window is so short here that this happens on
a busy machine, and such copies are no fault. A copy that a process publishes when it wakes up is
one, unless the process froze in the middle of that publish.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import pytest

from chatlane.failpoints import RouterPoint, WorkerPoint
from chatlane_devkit.judge.event_log import EventLog
from chatlane_devkit.judge.verdict import Run, judge, unwatched
from tests.acceptance.conftest import ReportLine
from tests.support.eventually import eventually
from tests.support.service.failpoint_scene import (
    AFTER_DEATHS,
    ONCE,
    REACHED_WITHIN,
    WHEN_STOPPED,
    open_short_leased_scene,
)
from tests.support.service.processes import Process
from tests.support.service.scene import Scene

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180), pytest.mark.slow]

PER_SECOND: Final = 40
PEOPLE: Final = 60
FROZEN: Final = timedelta(seconds=3.5)
# Shorter than they are frozen: a stream would take again what it has.
DUPLICATE_WINDOW: Final = timedelta(seconds=3)
# What a process had written to the client of NATS when it froze is sent so soon after it wakes up.
MID_PUBLISH: Final = timedelta(seconds=2)
ENDS_WITHIN: Final = timedelta(seconds=30)
FEW: Final = 10
SEED: Final = 18
ROUNDS: Final = 3

PASSES: Final = (1, 10)

Point = RouterPoint | WorkerPoint


@dataclass(slots=True)
class Freezes:
    """Freezes one process after another on one stage.

    Attributes:
        tells: Where it is noted who is frozen.
        spans: When a process was frozen, with the time that its last publish may still take.
    """

    scene: Scene
    chance: Random
    tells: EventLog
    frozen: list[Point] = field(default_factory=list)
    spans: list[tuple[datetime, datetime]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    async def at_each(self, points: Iterable[Point]) -> None:
        """Let a process freeze at each of these points, and go on when others did its work."""
        for point in points:
            await self._at(point)

    async def _at(self, point: Point) -> None:
        process = await self._frozen_at(point)
        begin = datetime.now(UTC)
        self.tells.note("frozen", process.name)
        await asyncio.gather(
            asyncio.sleep(FROZEN.total_seconds()), self.scene.until_answers_flow(FEW)
        )
        self.tells.note("thawed", process.name)
        sent_within = MID_PUBLISH if point is RouterPoint.PUBLISHED else timedelta(0)
        self.spans.append((begin, datetime.now(UTC) + sent_within))
        process.send(signal.SIGCONT)
        self.frozen.append(point)
        await self.scene.until_answers_flow(FEW)
        process.send(signal.SIGTERM)
        await process.wait(ENDS_WITHIN)
        assert (point, process.exit_code) == (point, 0), process.failure("woke up and died")

    def explains(self, first_at: datetime, copy_at: datetime) -> bool:
        """Return whether a copy in a stream is one of a late take-over."""
        is_late = copy_at - first_at >= DUPLICATE_WINDOW
        return is_late and any(begin <= copy_at <= end for begin, end in self.spans)

    async def _frozen_at(self, point: Point) -> Process:
        """Return a process that is frozen at a point."""
        nth = 1 if point in ONCE else self.chance.randint(*PASSES)
        name = f"{point.partition('.')[0]}-{next(self._numbers)}"
        start = (
            self.scene.service.worker
            if isinstance(point, WorkerPoint)
            else self.scene.service.router
        )
        process = start(name, freeze_at=f"{point}:{nth}")
        if point in WHEN_STOPPED:
            await process.until_logged("partitions_claimed")
            await self.scene.until_answers_flow(FEW)
            process.send(signal.SIGTERM)
        if point in AFTER_DEATHS:
            await self._others_die_until_frozen(process)
        await eventually(lambda: process.is_frozen, REACHED_WITHIN)
        return process

    async def _others_die_until_frozen(self, process: Process) -> None:
        number = next(self._numbers)
        router = self.scene.service.router(f"victim-{number}")
        worker = self.scene.service.worker(f"worker-victim-{number}")
        while not process.is_frozen:
            await self.scene.until_answers_flow(FEW)
            self.tells.note("killed", worker.name)
            await asyncio.gather(router.kill(), worker.kill())
            router.start()
            worker.start()
        for victim in (router, worker):
            await victim.stop()


@asynccontextmanager
async def open_freezes(
    directory: Path, nats_url: str, database_url: str, seed: int
) -> AsyncIterator[Freezes]:
    """Set a stage with one of each that stays awake; nothing may be wrong in the end."""
    path = directory / "event_log.jsonl"
    async with open_short_leased_scene(
        directory, nats_url, database_url, PEOPLE, duplicate_window=DUPLICATE_WINDOW
    ) as scene:
        scene.service.event_log = path
        scene.users.event_log = EventLog(path, "users")
        await scene.start(routers=1, workers=1)
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow(FEW)
            freezes = Freezes(scene, Random(seed), EventLog(path, "test"))  # noqa: S311 # a seed
            scene.recorder.is_explained = freezes.explains
            yield freezes
        await scene.recorder.until_settled(scene.users, scene.patience)
        history = await scene.watched_history(path)
        found = [*unwatched(history), *judge(Run(history)).problems]
        assert not found, "\n".join(found)


async def _told(freezes: Freezes, report_line: ReportLine) -> None:
    late = len(await freezes.scene.recorder.records.late())
    sent = len(freezes.scene.users.sent)
    report_line(f"{len(freezes.frozen)} frozen, {sent} messages, {late} late results")


async def test_who_wakes_up_at_some_point_does_no_harm(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    chance = Random(SEED)  # noqa: S311 # the same every time
    routers = chance.sample(list(RouterPoint), 4)
    workers = chance.sample(list(WorkerPoint), 2)
    async with open_freezes(tmp_path, nats_url, database_url, SEED) as freezes:
        await asyncio.gather(
            freezes.at_each(routers[:2]), freezes.at_each(routers[2:]), freezes.at_each(workers)
        )
        assert sorted(freezes.frozen) == sorted([*routers, *workers])
        await _told(freezes, report_line)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_who_wakes_up_at_any_point_does_no_harm(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine, seed: int
) -> None:
    async with open_freezes(tmp_path, nats_url, database_url, seed) as freezes:
        points: list[Point] = [*RouterPoint, *WorkerPoint]
        freezes.chance.shuffle(points)
        await asyncio.gather(freezes.at_each(points[::2]), freezes.at_each(points[1::2]))
        assert sorted(freezes.frozen) == sorted(points)
        await _told(freezes, report_line)
