"""Measures how long people wait when something dies: `make recovery`.

Two of everything serve thirty people who write steadily, as processes on servers of their own. Each
fault is made several times. What counts is the longest wait for an answer: from the fault, or from
when a server is back, or from when the message was written if that was later.
"""

import asyncio
import json
import logging
import signal
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final

from rich.console import Console
from rich.table import Table

from chatlane_client.failpoints import WorkerPoint
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import EmbeddedServer, open_nats, open_postgres
from tests.support.eventually import eventually
from tests.support.servers.databases import migrated, open_database
from tests.support.service.processes import ROUTER_LEASE, STREAM_ACK_WAIT, Process
from tests.support.service.scene import ALL_PARTITIONS, Scene, open_scene
from tests.support.service.watched_subscriber import GIVEN

RESULT: Final = Path("var/recovery.json")
PER_SECOND: Final = 30
ROUNDS: Final = 5
TURN_LEASE: Final = timedelta(seconds=3)
# How long a server is away.
_AWAY: Final = timedelta(seconds=2)
# Who writes so long after a fault does not meet it any more.
_MARGIN: Final = timedelta(seconds=1)
_ANSWERED_WITHIN: Final = timedelta(seconds=90)
_SECOND: Final = timedelta(seconds=1)
_HALF: Final = ALL_PARTITIONS // 2
# So many turns or messages somebody takes up before it dies with one in its hands.
_DIES_AT: Final = 20


@dataclass(slots=True)
class Stage:
    """What runs, and whose turn it is to die."""

    scene: Scene
    nats: EmbeddedServer
    postgres: EmbeddedServer
    turn: int = field(default=0)

    def next(self, kind: str) -> Process:
        """Return one of two processes, the other one than last time."""
        self.turn += 1
        return self.scene.process(f"{kind}{1 + self.turn % 2}")

    async def until_steady(self) -> None:
        """Wait until everything runs, owns its share and answers."""
        await eventually(self._is_shared, _ANSWERED_WITHIN)
        await self.scene.until_answers_flow(20)

    async def _is_shared(self) -> bool:
        # Who was told to stop may be on its way to the end.
        for process in self.scene.service.processes.values():
            process.start()
        owners = await self.scene.recorder.owners()
        return sorted(owners.values()) == [_HALF, _HALF]


Make = Callable[[Stage], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is made again and again.

    Attributes:
        target: The longest that anybody may wait.
        make: Does it, and returns the moment from which is measured.
    """

    name: str
    target: timedelta
    make: Make


async def _nothing(_stage: Stage) -> float:
    return monotonic()


async def _kill_router(stage: Stage) -> float:
    router, at = stage.next("router "), monotonic()
    await router.kill()
    return at


async def _stop_router(stage: Stage) -> float:
    router, at = stage.next("router "), monotonic()
    router.send(signal.SIGTERM)
    return at


def _die_at(kind: str, point: str) -> Make:
    """Return what lets one of two die by SIGKILL at a point, where it has something to lose."""

    async def make(stage: Stage) -> float:
        process = stage.next(kind)
        await process.stop()
        process.start_with_failpoint(f"{point}:{_DIES_AT}")
        await process.wait(_ANSWERED_WITHIN)
        return monotonic()

    return make


async def _restart_nats(stage: Stage) -> float:
    await stage.nats.kill()
    await asyncio.sleep(_AWAY.total_seconds())
    starting = asyncio.create_task(stage.nats.start())
    while not _is_open(stage.nats.port):  # noqa: ASYNC110 # a port gives no event
        await asyncio.sleep(0.01)
    at = monotonic()
    await starting
    return at


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.1):
        return True
    return False


async def _restart_postgres(stage: Stage) -> float:
    await stage.postgres.kill()
    await asyncio.sleep(_AWAY.total_seconds())
    await stage.postgres.start()
    return monotonic()


FAULTS: Final = (
    Fault("nothing", _SECOND, _nothing),
    Fault("router killed", ROUTER_LEASE + _SECOND, _kill_router),
    Fault("router stopped", _SECOND, _stop_router),
    Fault(
        "turn worker killed with a turn",
        TURN_LEASE + _SECOND,
        _die_at("worker-", WorkerPoint.ACKNOWLEDGED),
    ),
    Fault(
        "turn worker killed before its claim",
        TURN_LEASE + _SECOND,
        _die_at("worker-", WorkerPoint.NOTIFIED),
    ),
    Fault(
        "subscriber killed with a message",
        STREAM_ACK_WAIT + _SECOND,
        _die_at("subscriber ", GIVEN),
    ),
    Fault("NATS killed, from its open port", timedelta(seconds=3), _restart_nats),
    Fault("Postgres killed, from ready", timedelta(seconds=2), _restart_postgres),
)


@asynccontextmanager
async def open_stage(directory: Path) -> AsyncIterator[Stage]:
    """Start both servers and two of everything."""
    async with (
        open_nats(directory / "nats") as nats,
        open_postgres(directory / "postgres") as postgres,
        open_database(postgres.url) as database,
    ):
        dsn = postgres.dsn(database)
        await migrated(dsn)
        async with open_scene(
            directory, nats.url, dsn, lease=ROUTER_LEASE, turn_lease=TURN_LEASE, max_attempts=9
        ) as scene:
            # As deployed: nobody shares memory with anybody.
            scene.service.forks = False
            await scene.start(subscribers=2)
            yield Stage(scene, nats, postgres)


async def longest_wait(stage: Stage, fault: Fault) -> float:
    """Make a fault, and return how many seconds somebody waited for an answer because of it."""
    users = stage.scene.users
    await stage.until_steady()
    at = await fault.make(stage)
    last = at + (fault.target + _MARGIN).total_seconds()
    await asyncio.sleep(last - monotonic())

    def is_heard() -> bool:
        return not any(written <= last for written in users.unheard.values())

    await eventually(is_heard, _ANSWERED_WITHIN)
    return max(
        written + seconds - max(written, at)
        for written, seconds in users.seconds
        if written <= last and written + seconds >= at
    )


async def measure(stage: Stage, faults: Sequence[Fault], rounds: int) -> dict[str, list[float]]:
    """Return the longest waits by fault, in the order of the rounds."""
    waits: dict[str, list[float]] = {fault.name: [] for fault in faults}
    async with stage.scene.users.talking(PER_SECOND):
        for _ in range(rounds):
            for fault in faults:
                waits[fault.name].append(await longest_wait(stage, fault))
        await stage.until_steady()
    await stage.scene.verify()
    return waits


def table(faults: Sequence[Fault], waits: dict[str, list[float]]) -> Table:
    """Return the figures for people."""
    shown = Table("fault", "times", "median s", "worst s", "target s")
    for fault in faults:
        its = waits[fault.name]
        target = fault.target.total_seconds()
        mark = "" if max(its) <= target else " missed"
        figures = (f"{median(its):.2f}", f"{max(its):.2f}{mark}", f"{target:g}")
        shown.add_row(fault.name, str(len(its)), *figures)
    return shown


def asked(arguments: list[str]) -> Namespace:
    """Return what was asked for."""
    parser = ArgumentParser(prog="make recovery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", action="append", help="a part of the name of a fault", default=[])
    return parser.parse_args(arguments)


async def main(arguments: list[str]) -> int:
    """Measure, print and write; return 1 where somebody waited for too long."""
    options = asked(arguments)
    # The people's own client tells of every server that is gone.
    logging.getLogger("chatlane_client").addHandler(logging.NullHandler())
    faults = [
        fault
        for fault in FAULTS
        if not options.only or any(part in fault.name for part in options.only)
    ]
    with server_directory("recovery-") as directory:
        async with open_stage(directory) as stage:
            waits = await measure(stage, faults, options.rounds)
    Console().print(table(faults, waits))
    targets = {fault.name: fault.target.total_seconds() for fault in faults}
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    figures = {name: {"waits": its, "target": targets[name]} for name, its in waits.items()}
    RESULT.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    return int(any(max(its) > targets[name] for name, its in waits.items()))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
