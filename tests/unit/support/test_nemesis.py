"""What a nemesis breaks, of processes that are made of nothing; time passes when nobody works."""

import asyncio
import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

from chatlane_devkit.judge.event_log import EventLog
from tests.support.nemesis import CRASH_POINT, WEIGHTS, Nemesis
from tests.support.servers.lossy_link import LossyLink
from tests.support.worlds.virtual_time import VirtualTimeLoop

PAUSE: Final = timedelta(seconds=1)
# So long every kind of fault takes its turn.
LONG: Final = 600.0


@dataclass(slots=True)
class Fake:
    """A process that runs until it is told otherwise; `ends_with` is what becomes of an armed one."""

    ends_with: int | None = -signal.SIGKILL
    exit_code: int | None = None
    is_frozen: bool = False
    armed: list[str] = field(default_factory=list)

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    def start(self) -> None:
        self.exit_code = None
        self.is_frozen = False

    def start_with_failpoint(self, crash_at: str) -> None:
        self.start()
        self.armed.append(crash_at)
        self.exit_code = self.ends_with

    async def kill(self) -> None:
        self.exit_code = -signal.SIGKILL

    async def stop(self) -> None:
        self.exit_code = 0

    def send(self, signal_number: signal.Signals) -> None:
        self.is_frozen = signal_number is signal.SIGSTOP

    async def wait(self, timeout: timedelta) -> None:  # noqa: ASYNC109 # as a process has it
        if self.exit_code is None:
            await asyncio.sleep(timeout.total_seconds())


@dataclass(slots=True)
class FakeServer:
    """A server that notes whether it is away."""

    is_away: bool = False

    async def start(self) -> None:
        self.is_away = False

    async def kill(self) -> None:
        self.is_away = True

    def pause(self) -> None:
        self.is_away = True

    def resume(self) -> None:
        self.is_away = False


@dataclass(slots=True)
class Stage:
    """A nemesis and all that it can break."""

    nemesis: Nemesis
    processes: dict[str, Fake]
    servers: dict[str, FakeServer]
    path: Path

    def run(self, seconds: float) -> None:
        """Let it do its worst for a while."""

        async def run() -> None:
            running = asyncio.create_task(self.nemesis.run(PAUSE))
            await asyncio.sleep(seconds)
            self.nemesis.stop()
            await running

        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(run())

    @property
    def faults(self) -> list[tuple[str, str]]:
        """Kind and target of each fault that was noted."""
        lines: list[dict[str, Any]] = [json.loads(it) for it in self.path.read_text().splitlines()]
        return [(its["kind"], its["target"]) for its in lines if its["op"] == "fault"]


def stage(
    path: Path, seed: int = 1, weights: Mapping[str, int] = WEIGHTS, ends_with: int | None = -9
) -> Stage:
    names = ("router 1", "router 2", "worker-1", "subscriber 1", "adapter")
    processes = {name: Fake(ends_with) for name in names}
    servers = {"nats": FakeServer(), "postgres": FakeServer()}
    links = {"nats link": LossyLink("nats://127.0.0.1:1")}
    chance, event_log = Random(seed), EventLog(path, "nemesis")  # noqa: S311 # the same every time
    nemesis = Nemesis(processes, servers, links, chance, event_log, weights)
    return Stage(nemesis, processes, servers, path)


def test_a_seed_makes_the_same_faults_and_another_one_others(tmp_path: Path) -> None:
    runs = [
        stage(tmp_path / "first.jsonl", 1),
        stage(tmp_path / "again.jsonl", 1),
        stage(tmp_path / "other.jsonl", 2),
    ]
    for it in runs:
        it.run(LONG)
    first, again, other = (it.faults for it in runs)
    assert first == again
    assert first != other


def test_every_kind_of_fault_is_made_and_mended(tmp_path: Path) -> None:
    its = stage(tmp_path / "run.jsonl")
    its.run(LONG)
    assert its.nemesis.made.keys() - {CRASH_POINT} == WEIGHTS.keys()
    assert {kind for kind, _ in its.faults} == WEIGHTS.keys()
    assert all(it.is_running and not it.is_frozen for it in its.processes.values())
    assert not any(it.is_away for it in its.servers.values())
    assert its.nemesis.ended == []


def test_every_crash_point_gets_its_turn_in_the_process_that_has_it(tmp_path: Path) -> None:
    its = stage(tmp_path / "run.jsonl", weights={"crash": 1})
    its.run(LONG)
    armed = {name: {at.partition(":")[0] for at in it.armed} for name, it in its.processes.items()}
    points = {str(point) for point in its.nemesis.points}
    others = ("worker.", "adapter.")
    assert armed["router 1"] == {point for point in points if not point.startswith(others)}
    assert armed["worker-1"] == {point for point in points if point.startswith("worker.")}
    assert armed["adapter"] == {point for point in points if point.startswith("adapter.")}
    assert armed["subscriber 1"] == set()
    assert its.nemesis.made[CRASH_POINT] == its.nemesis.made["crash"]


def test_a_process_that_ends_of_something_else_has_reached_no_crash_point(tmp_path: Path) -> None:
    its = stage(tmp_path / "run.jsonl", weights={"crash": 1}, ends_with=1)
    its.run(LONG)
    assert its.nemesis.made[CRASH_POINT] == 0
    assert len(its.nemesis.ended) == its.nemesis.made["crash"]
    assert {code for _, code in its.nemesis.ended} == {1}


def test_a_process_that_does_not_get_to_its_point_is_ended_by_hand(tmp_path: Path) -> None:
    its = stage(tmp_path / "run.jsonl", weights={"crash": 1}, ends_with=None)
    its.run(LONG)
    assert its.nemesis.made["crash"]
    assert its.nemesis.made[CRASH_POINT] == 0
    assert its.nemesis.ended == []


def test_a_process_that_ended_by_itself_is_named_and_runs_again(tmp_path: Path) -> None:
    its = stage(tmp_path / "run.jsonl", weights={"cut": 1})
    its.processes["worker-1"].exit_code = 3
    its.run(5)
    assert its.nemesis.ended == [("worker-1", 3)]
    assert its.processes["worker-1"].is_running


def test_who_is_asked_for_mercy_breaks_nothing(tmp_path: Path) -> None:
    its = stage(tmp_path / "run.jsonl")
    its.nemesis.has_mercy = lambda: True
    its.run(60)
    assert its.nemesis.made.total() == 0
