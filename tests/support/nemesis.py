"""Makes faults, one after another and some at a time, the same ones for the same seed."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final, Protocol

from chatlane.failpoints import RouterPoint, WorkerPoint
from chatlane_devkit.dialogue.adapter import AdapterPoint
from chatlane_devkit.judge.event_log import EventLog
from tests.support.servers.lossy_link import LossyLink

# How likely each fault is; what costs a new process is dear on a small machine.
WEIGHTS: Final[Mapping[str, int]] = {
    "kill": 5,
    "crash": 5,
    "terminate": 2,
    "freeze": 10,
    "cut": 8,
    "mute": 4,
    "kill server": 2,
    "freeze server": 3,
}
# Counted beside the faults: a process that was told to has ended at its point.
CRASH_POINT: Final = "crash point"
# Longer and shorter than every lease of a run.
_FREEZE_SECONDS: Final = (0.2, 2.0)
_AWAY_SECONDS: Final = (0.0, 0.7)
# On a slow machine a process takes half of it to start.
_CRASHES_WITHIN: Final = timedelta(seconds=20)
# In the first lives of a process every point is passed often enough.
_LATEST_PASS: Final = 4
# Published rows are deleted by themselves only when there is no traffic.
POINTS: Final = tuple(
    its for its in (*RouterPoint, *WorkerPoint, *AdapterPoint) if its is not RouterPoint.DELETED
)
Point = RouterPoint | WorkerPoint | AdapterPoint

# Which points a process has, by the first word of its name.
_POINTS_OF: Final[Mapping[str, type[Point]]] = {
    "router": RouterPoint,
    "worker": WorkerPoint,
    "adapter": AdapterPoint,
}


class Life(Protocol):
    """A process that can be ended, frozen, told where to end itself, and started again."""

    @property
    def is_running(self) -> bool: ...

    @property
    def exit_code(self) -> int | None: ...

    def start(self) -> None: ...

    def start_with_failpoint(self, crash_at: str) -> None: ...

    async def kill(self) -> None: ...

    async def stop(self) -> None: ...

    def send(self, signal_number: signal.Signals) -> None: ...

    async def wait(self, timeout: timedelta) -> None: ...  # noqa: ASYNC109 # as `Process` has it


class Server(Protocol):
    """A server that can be killed, frozen and started again with its data."""

    async def start(self) -> None: ...

    async def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(slots=True)
class Nemesis:
    """What can be broken, and by chance is.

    Attributes:
        has_mercy: Tells while nothing more is to be broken. Where processes take longer to start than
            it takes to break them again, there is nothing left that a fault could harm.
        made: How many faults of each kind.
        ended: Processes that ended by themselves, with their exit codes, and were started again, as a
            supervisor does.
    """

    processes: Mapping[str, Life]
    servers: Mapping[str, Server]
    links: Mapping[str, LossyLink]
    chance: Random
    event_log: EventLog
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    points: Sequence[Point] = POINTS
    has_mercy: Callable[[], bool] = lambda: False
    made: Counter[str] = field(default_factory=Counter)
    ended: list[tuple[str, int | None]] = field(default_factory=list)
    _in_trouble: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, pause: timedelta) -> None:
        """Make faults until told to stop; then everything runs again."""
        while not self._stop.is_set():
            self._start_what_ended()
            if not self.has_mercy():
                self._break_something()
            await asyncio.sleep(pause.total_seconds() * self.chance.uniform(0.5, 1.5))
        await asyncio.gather(*self._tasks)
        self._start_what_ended()

    @property
    def fault_count(self) -> int:
        """How many faults were made; that one came to its point is no other."""
        return self.made.total() - self.made[CRASH_POINT]

    def stop(self) -> None:
        """Let `run` come to its end."""
        self._stop.set()

    def _start_what_ended(self) -> None:
        for name, process in self.processes.items():
            if name not in self._in_trouble and not process.is_running:
                self.ended.append((name, process.exit_code))
                self.event_log.note("killed", name)
                process.start()

    def _break_something(self) -> None:
        kinds = [kind for kind in self.weights if self._targets(kind)]
        if not kinds:
            return
        kind = self.chance.choices(kinds, [self.weights[kind] for kind in kinds])[0]
        target = self.chance.choice(self._targets(kind))
        self.made[kind] += 1
        self.event_log.note("fault", kind=kind, target=target)
        self._in_trouble.add(target)
        task = asyncio.create_task(self._trouble(target, self._act(kind, target)))
        self._tasks.add(task)

    def _targets(self, kind: str) -> list[str]:
        named: Iterable[str]
        if kind.endswith("server"):
            # Never both: then nothing happens, and a run is to be short.
            named = () if self._in_trouble & self.servers.keys() else self.servers
        elif kind in {"cut", "mute"}:
            named = self.links
        elif kind == "crash":
            named = [name for name in self.processes if self._has_points(name)]
        else:
            named = self.processes
        return [name for name in named if name not in self._in_trouble]

    def _has_points(self, name: str) -> bool:
        return _kind_of_points(name) in {type(its) for its in self.points}

    async def _trouble(self, target: str, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await act()
        finally:
            self._in_trouble.discard(target)

    def _act(self, kind: str, target: str) -> Callable[[], Awaitable[None]]:
        """Return the fault with all its chances taken, so that a seed gives the same ones."""
        away = self.chance.uniform(*_AWAY_SECONDS)
        frozen = self.chance.uniform(*_FREEZE_SECONDS)
        kind_of_point = _kind_of_points(target) or RouterPoint
        points: list[Point] = [its for its in self.points if isinstance(its, kind_of_point)]
        point = self.chance.choice(points or list(kind_of_point))
        crash_at = f"{point}:{self.chance.randint(1, _LATEST_PASS)}"
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": lambda: self._kill(target, away),
            "crash": lambda: self._crash(target, crash_at),
            "terminate": lambda: self._terminate(target),
            "freeze": lambda: self._freeze(target, frozen),
            "cut": lambda: self._cut(target, 0.0),
            "mute": lambda: self._cut(target, frozen),
            "kill server": lambda: self._kill_server(target, away),
            "freeze server": lambda: self._freeze_server(target, frozen),
        }
        return acts[kind]

    async def _kill(self, name: str, away: float) -> None:
        self.event_log.note("killed", name)
        await self.processes[name].kill()
        await asyncio.sleep(away)
        self.processes[name].start()

    async def _crash(self, name: str, crash_at: str) -> None:
        """Let a new life of the process end at a point, or by our hand when it does not get there."""
        process = self.processes[name]
        self.event_log.note("killed", name)
        await process.kill()
        process.start_with_failpoint(crash_at)
        await self._until_ended(process)
        if process.exit_code == -signal.SIGKILL:
            self.made[CRASH_POINT] += 1
        elif not process.is_running:
            self.ended.append((name, process.exit_code))
        await self._kill(name, 0.0)

    async def _until_ended(self, process: Life) -> None:
        """Wait until a process has ended by itself, or there is no traffic any more to end it."""
        endings = [
            asyncio.create_task(process.wait(_CRASHES_WITHIN)),
            asyncio.create_task(self._stop.wait()),
        ]
        await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        for ending in endings:
            ending.cancel()
        await asyncio.gather(*endings, return_exceptions=True)

    async def _terminate(self, name: str) -> None:
        await self.processes[name].stop()
        self.event_log.note("killed", name)
        self.processes[name].start()

    async def _freeze(self, name: str, seconds: float) -> None:
        self.event_log.note("frozen", name)
        self.processes[name].send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        # Noted first: what it does from now on it does awake.
        self.event_log.note("thawed", name)
        self.processes[name].send(signal.SIGCONT)

    async def _cut(self, name: str, mute_seconds: float) -> None:
        """Break all connections of a link; before that, lose what the server says for a while."""
        if mute_seconds:
            self.links[name].swallow()
            await asyncio.sleep(mute_seconds)
        self.links[name].cut()

    async def _kill_server(self, name: str, away: float) -> None:
        await self.servers[name].kill()
        await asyncio.sleep(away)
        await self.servers[name].start()

    async def _freeze_server(self, name: str, seconds: float) -> None:
        self.servers[name].pause()
        await asyncio.sleep(seconds)
        self.servers[name].resume()


def _kind_of_points(name: str) -> type[Point] | None:
    return next((kind for first, kind in _POINTS_OF.items() if name.startswith(first)), None)
