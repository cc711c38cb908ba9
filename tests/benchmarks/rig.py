"""What is measured stands here: real servers, a router of its own, and the programs around it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, Final, LiteralString, NamedTuple

import asyncpg
import nats
import psutil
from nats.aio.client import Client

from chatlane.app import bus_options, declared_topology
from chatlane.bus import topology
from chatlane.bus.connection import open_bus
from chatlane.bus.jetstream import JetStream
from chatlane.dev.programs import Program
from chatlane.dev.servers import NatsServer, PostgresServer, open_nats, open_postgres
from chatlane.dev.waiting import until
from chatlane.settings import Settings, load_settings
from chatlane.store.migrations import migrate

_HERE: Final = Path(__file__).parent
_PATIENCE: Final = timedelta(seconds=120)
_LOOK_AGAIN_SECONDS: Final = 0.05

_CONFIG: Final = """
[nats]
url = "{nats_url}"

[postgres]
dsn = "{dsn}"

[http]
port = 0

[agents.main]

[agents.notes]
delivery = "stream"

[profiles.notes]

[platforms.telegram.accounts.bot]
profiles = ["default", "notes"]
"""

_OUTPUTS: Final = ("ROUTED", "TURNS", "OUTBOUND", "EVENTS")

FORGET_SQL: Final[LiteralString] = """
-- bench: start from nothing; the logs and the cursors in them go on
TRUNCATE lanes, sessions, seen, waiting, turns, messages, outbox, searchable, search_progress
"""


TAKEN_SQL: Final[LiteralString] = """
-- bench: how many partitions of both logs have an owner
SELECT count(*) FROM partitions WHERE lease_until > clock_timestamp()
"""
SHARED_SQL: Final[LiteralString] = """
-- bench: among how many routers the partitions of each log are shared out evenly
SELECT CASE WHEN max(held) - min(held) <= 1 THEN count(DISTINCT owner) ELSE 0 END
FROM (
    SELECT owner, count(*) AS held FROM partitions
    WHERE lease_until > clock_timestamp() GROUP BY owner, log
) AS shares
"""


class Throughput(NamedTuple):
    """How fast something went.

    Attributes:
        cpu_us: Microseconds of processor time for each message, by program.
    """

    per_second: float
    cpu_us: dict[str, float]


class _Reading(NamedTuple):
    at: float
    done: int
    cpu_seconds: dict[str, float]


@dataclass(slots=True)
class Rig:
    """Both servers, an empty database, and connections to look at them.

    Attributes:
        directory: Data, configuration and logs.
        config: The `chatlane.toml` of the router.
    """

    directory: Path
    config: Path
    nats: NatsServer
    postgres: PostgresServer
    client: Client
    database: asyncpg.Connection
    partitions: int

    def script(self, name: str, *arguments: object) -> Program:
        """Return one of the programs here, to be started."""
        command = [str(_HERE / f"{name}.py"), *map(str, arguments)]
        return Program(name, command, self.directory, {"PYTHONPATH": str(_HERE.parents[1])})

    async def run(self, name: str, *arguments: object) -> dict[str, Any]:
        """Run one of the programs here to its end and return what it reports."""
        program = self.script(name, *arguments)
        program.start()

        async def has_ended() -> bool:
            return not program.is_running

        await until(has_ended, _PATIENCE)
        program.require_success()
        last = program.log_path.read_text("utf-8").splitlines()[-1:]
        report: dict[str, Any] = json.loads(last[0]) if last and last[0].startswith("{") else {}
        return report

    @asynccontextmanager
    async def chatlane(self, *arguments: str, name: str | None = None) -> AsyncIterator[Program]:
        """Run one of chatlane's commands for the length of the block."""
        command = ["-m", "chatlane", *arguments, "--config", str(self.config)]
        async with self.running(Program(name or arguments[0], command, self.directory)) as program:
            yield program

    @asynccontextmanager
    async def routers(self, count: int) -> AsyncIterator[list[Program]]:
        """Run so many routers for the length of the block."""
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(self.chatlane("router", name=f"router-{number}"))
                for number in range(1, count + 1)
            ]

    @asynccontextmanager
    async def running(self, program: Program) -> AsyncIterator[Program]:
        """Run a program for the length of the block; it must not end by itself."""
        program.start()
        try:
            yield program
            program.require_running()
        finally:
            await program.stop()

    async def reset(self) -> None:
        """Empty the tables and the streams that the router writes to; no router may run."""
        await self.database.execute(FORGET_SQL)
        for stream in _OUTPUTS:
            await self.client.jetstream().purge_stream(stream)

    async def stored(self, stream: str) -> int:
        """Return how many messages a stream has."""
        info = await self.client.jetstream().stream_info(stream)
        return info.state.messages

    async def last_sequence(self, stream: str) -> int:
        """Return the newest sequence of a stream."""
        info = await self.client.jetstream().stream_info(stream)
        return info.state.last_seq

    async def until(
        self,
        program: Program,
        count: Callable[[], Awaitable[int]],
        total: int,
        patience: timedelta = _PATIENCE,
    ) -> int:
        """Wait until there are so many, and return how many there are then.

        Raises:
            ServerStartError: The program ended by itself.
            TimeoutError: It took longer than `patience`.
        """
        async with asyncio.timeout(patience.total_seconds()):
            while (found := await count()) < total:
                program.require_running()
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        return found

    async def until_owned(self, router: Program) -> None:
        """Wait until the router has taken all partitions."""

        async def taken() -> int:
            return int(await self.database.fetchval(TAKEN_SQL))

        await self.until(router, taken, 2 * self.partitions)

    async def until_shared(self, routers: Sequence[Program]) -> None:
        """Wait until no router has more partitions than another."""

        async def shared() -> int:
            return int(await self.database.fetchval(SHARED_SQL))

        await self.until(routers[0], shared, len(routers))

    async def throughput(
        self, routers: Sequence[Program], count: Callable[[], Awaitable[int]], total: int
    ) -> Throughput:
        """Return the speed from the first tenth of `total`, and their fair share, to its end.

        Raises:
            TimeoutError: It took longer than two minutes.
        """
        await self.until_shared(routers)
        begin = self._reading(routers, await self.until(routers[0], count, total // 10))
        end = self._reading(routers, await self.until(routers[0], count, total))
        counted = end.done - begin.done
        return Throughput(
            counted / (end.at - begin.at),
            {
                name: (end.cpu_seconds[name] - before) / counted * 1e6
                for name, before in begin.cpu_seconds.items()
            },
        )

    def _reading(self, routers: Sequence[Program], done: int) -> _Reading:
        pids = {
            "router": [router.pid for router in routers],
            "nats": [self.nats.pid],
            "postgres": [self.postgres.pid],
        }
        seconds = {name: sum(_cpu_seconds(pid) for pid in its if pid) for name, its in pids.items()}
        return _Reading(perf_counter(), done, seconds)


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and of the children it has now or had."""
    process = psutil.Process(pid)
    times = [process.cpu_times()]
    times += [child.cpu_times() for child in process.children(recursive=True)]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


@asynccontextmanager
async def open_rig(
    directory: Path, *, sync_always: bool = False, settings: str = ""
) -> AsyncIterator[Rig]:
    """Start both servers and make streams and tables, as `chatlane admin` does.

    Args:
        directory: For everything that is written.
        sync_always: NATS syncs every message to the disk.
        settings: More lines for `chatlane.toml`.
    """
    async with (
        open_nats(directory / "nats", sync_always=sync_always) as server,
        open_postgres(directory / "postgres") as postgres,
    ):
        config = directory / "chatlane.toml"
        config.write_text(_CONFIG.format(nats_url=server.url, dsn=postgres.url) + settings, "utf-8")
        await migrate(postgres.url)
        loaded = load_settings(config, {})
        await _apply_topology(loaded)
        client = await nats.connect(server.url)
        database = await asyncpg.connect(postgres.url)
        try:
            yield Rig(
                directory,
                config,
                server,
                postgres,
                client,
                database,
                loaded.router.partitions,
            )
        finally:
            await database.close()
            await client.close()


async def _apply_topology(settings: Settings) -> None:
    declared = declared_topology(settings)
    async with open_bus(bus_options(settings, "bench")) as bus:
        await topology.apply(JetStream(bus.client), declared.streams, declared.durables)
