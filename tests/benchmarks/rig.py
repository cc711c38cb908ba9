"""What is measured stands here: real servers, a router of its own, and the programs around it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final, LiteralString, NamedTuple
from uuid import uuid4

import asyncpg
import nats
import psutil
from nats.aio.client import Client

from chatlane.config.settings import Settings, load_settings
from chatlane.connections import bus_options, declared_topology
from chatlane.nats import topology
from chatlane.nats.connection import open_bus
from chatlane.nats.jetstream import JetStream
from chatlane_servers.conditions import until
from chatlane_servers.embedded import (
    NatsServer,
    PostgresServer,
    free_port,
    open_nats,
    open_postgres,
)
from chatlane_servers.programs import Program
from tests.support.servers.databases import login_of, migrated
from tests.support.servers.nats_users import Keys, with_keys

_PROGRAMS: Final = Path(__file__).parent / "programs"
PYTHONPATH: Final = {"PYTHONPATH": str(_PROGRAMS.parents[2])}
PATIENCE: Final = timedelta(seconds=120)
_LOOK_AGAIN_SECONDS: Final = 0.05
# A throughput counts at least one part in so many of the messages.
_LEAST_PART: Final = 3
# As in the middle of a long life: right after a checkpoint each page is written to the log once
# whole, which a short measurement would count for every message.
# A million sessions with their lanes, marks and messages stay in memory, as deployed.
_POSTGRES_SETTINGS: Final = {
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "shared_buffers": "2GB",
}

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

[platforms.telegram.accounts.hostile]
"""

ADAPTER: Final = "telegram-bot"
HOSTILE: Final = "telegram-hostile"
# As `chatlane admin nats-config` lets them in. What only looks, and what chatlane is compared
# with, has no key.
_USERS: Final = {
    "router": {"role": "router"},
    "main-worker": {"role": "worker", "agent": "main"},
    ADAPTER: {"role": "adapter", "account": "telegram/bot"},
    HOSTILE: {"role": "adapter", "account": "telegram/hostile"},
}
_COMMAND_USERS: Final = {"router": "router", "echo-worker": "main-worker"}

_OUTPUTS: Final = ("ROUTED", "TURNS", "OUTBOUND", "EVENTS")

FORGET_SQL: Final[LiteralString] = """
-- bench: start from nothing; the logs and the cursors in them go on
TRUNCATE lanes, sessions, seen, waiting, turns, messages, outbox, searchable, search_progress,
    dead_letters, deliveries
"""
HUGE_PAGES_SQL: Final[LiteralString] = """
-- bench: whether the memory of the server is in huge pages
SELECT current_setting('huge_pages_status')
"""
TAKEN_SQL: Final[LiteralString] = """
-- bench: how many partitions of both logs have an owner
SELECT count(*) FROM partitions WHERE lease_until > clock_timestamp()
"""
WRITTEN_SQL: Final[LiteralString] = """
-- bench: the number of the newest transaction that wrote; those that only read have none
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint
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
        commits: Transactions that wrote, for each message.
    """

    per_second: float
    cpu_us: dict[str, float]
    commits: float


class TooFewError(Exception):
    """There were too few messages to measure anything."""


class Router(NamedTuple):
    """A router that runs, and where it serves its metrics."""

    program: Program
    port: int


class _Reading(NamedTuple):
    at: float
    done: int
    cpu_seconds: dict[str, float]
    written: int


@dataclass(slots=True)
class Rig:
    """Both servers, an empty database, and connections to look at them.

    Attributes:
        directory: Data, configuration and logs.
        config: The `chatlane.toml` of the router.
        huge_pages: `on` where the memory of Postgres is in huge pages.
        keys: Of the users of NATS; None where it has none.
    """

    directory: Path
    config: Path
    nats: NatsServer
    postgres: PostgresServer
    client: Client
    database: asyncpg.Connection
    partitions: int
    huge_pages: str
    keys: Keys | None = None

    def environment(self, user: str) -> dict[str, str]:
        """Return how a process of chatlane connects as a user, where NATS has users."""
        return {} if self.keys is None else self.keys.environment(user)

    def speaking(self, user: str = ADAPTER) -> list[str]:
        """Return what makes a program speak as an adapter, where NATS has users."""
        return [] if self.keys is None else ["--seed", str(self.keys.seed_file(user))]

    def script(self, name: str, *arguments: object, user: str | None = None) -> Program:
        """Return one of the programs here, to be started; where a user is given, as that one."""
        command = [str(_PROGRAMS / f"{name}.py"), *map(str, arguments)]
        environment = PYTHONPATH | ({} if user is None else self.environment(user))
        return Program(name, command, self.directory, environment)

    async def run(self, name: str, *arguments: object) -> dict[str, Any]:
        """Run one of the programs here to its end and return what it reports."""
        program = self.script(name, *arguments)
        program.start()

        async def has_ended() -> bool:
            return not program.is_running

        try:
            await until(has_ended, PATIENCE)
        finally:
            await program.stop()
        program.require_success()
        last = program.log_path.read_text("utf-8").splitlines()[-1:]
        report: dict[str, Any] = json.loads(last[0]) if last and last[0].startswith("{") else {}
        return report

    @asynccontextmanager
    async def chatlane(self, *arguments: str, name: str | None = None) -> AsyncIterator[Program]:
        """Run one of chatlane's commands for the length of the block."""
        command = ["-m", "chatlane", *arguments, "--config", str(self.config)]
        environment = self.environment(_COMMAND_USERS[arguments[0]])
        program = Program(name or arguments[0], command, self.directory, environment)
        async with self.running(program):
            yield program

    @asynccontextmanager
    async def routers(self, count: int) -> AsyncIterator[list[Router]]:
        """Run so many routers for the length of the block; all begin at the same time."""
        gate = self.directory / f"gate-{uuid4().hex}"
        async with AsyncExitStack() as stack:
            routers = []
            for number in range(1, count + 1):
                router = self._router(f"router-{number}", gate)
                await stack.enter_async_context(self.running(router.program))
                routers.append(router)
            await until(partial(_all_wait, routers), PATIENCE)
            gate.touch()
            stack.callback(gate.unlink)
            yield routers

    def _router(self, name: str, gate: Path) -> Router:
        port = free_port()
        command = [str(_PROGRAMS / "gated_router.py"), str(self.config), str(gate)]
        http = {"CHATLANE_HTTP__PORT": str(port)}
        environment = PYTHONPATH | http | self.environment("router")
        program = Program(name, command, self.directory, environment)
        # The log of the last router of this name says that it waits, too.
        program.log_path.unlink(missing_ok=True)
        return Router(program, port)

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
        await self.empty_outputs()

    async def empty_outputs(self) -> None:
        """Empty the streams that the router writes to."""
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
        least: int,
        patience: timedelta = PATIENCE,
    ) -> int:
        """Wait until there are so many, and return how many there are then.

        Raises:
            ServerStartError: The program ended by itself.
            TimeoutError: It took longer than `patience`.
        """
        async with asyncio.timeout(patience.total_seconds()):
            while (found := await count()) < least:
                program.require_running()
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        return found

    async def until_owned(self, router: Program) -> None:
        """Wait until the router has taken all partitions."""
        await self.until(router, lambda: self.value(TAKEN_SQL), 2 * self.partitions)

    async def until_shared(self, routers: Sequence[Router]) -> None:
        """Wait until no router has more partitions than another."""
        await self.until(routers[0].program, lambda: self.value(SHARED_SQL), least=len(routers))

    async def value(self, query: LiteralString) -> int:
        """Return a number from the database."""
        return int(await self.database.fetchval(query))

    async def throughput(
        self,
        routers: Sequence[Router],
        count: Callable[[], Awaitable[int]],
        warm_up: int,
        total: int,
    ) -> Throughput:
        """Return the speed from `warm_up` of `total`, and their fair share, to its end.

        Raises:
            TimeoutError: It took longer than two minutes.
            TooFewError: Most of it was over before the partitions were shared.
        """
        await self.until_shared(routers)
        watched = routers[0].program
        begin = await self._reading(routers, await self.until(watched, count, warm_up))
        end = await self._reading(routers, await self.until(watched, count, total))
        counted = end.done - begin.done
        if counted * _LEAST_PART < total:
            raise TooFewError(f"{counted} of {total} messages were left to be counted: take more")
        return Throughput(
            counted / (end.at - begin.at),
            {
                name: (end.cpu_seconds[name] - before) / counted * 1e6
                for name, before in begin.cpu_seconds.items()
            },
            (end.written - begin.written) / counted,
        )

    async def _reading(self, routers: Sequence[Router], done: int) -> _Reading:
        pids = {
            "router": [router.program.pid for router in routers],
            "nats": [self.nats.pid],
            "postgres": [self.postgres.pid],
        }
        seconds = {name: sum(cpu_seconds(pid) for pid in its if pid) for name, its in pids.items()}
        return _Reading(perf_counter(), done, seconds, await self.value(WRITTEN_SQL))


async def _all_wait(routers: Sequence[Router]) -> bool:
    for router in routers:
        router.program.require_running()
    return all(b"waiting\n" in router.program.log_path.read_bytes() for router in routers)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and of the children it has now or had."""
    process = psutil.Process(pid)
    times = [process.cpu_times()]
    times += [child.cpu_times() for child in process.children(recursive=True)]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


@asynccontextmanager
async def open_rig(
    directory: Path, *, sync_always: bool = False, settings: str = "", has_users: bool = True
) -> AsyncIterator[Rig]:
    """Start both servers and make streams and tables, as `chatlane admin` does.

    Args:
        directory: For everything that is written.
        sync_always: NATS syncs every message to the disk.
        settings: More lines for `chatlane.toml`.
        has_users: NATS has users with accounts of their own.
    """
    keys, users = with_keys(directory / "keys", _USERS) if has_users else (None, "")
    async with (
        open_nats(directory / "nats", sync_always=sync_always, extra_config=users) as server,
        open_postgres(directory / "postgres", settings=_POSTGRES_SETTINGS) as postgres,
    ):
        config = directory / "chatlane.toml"
        await migrated(postgres.url)
        dsn = await login_of(postgres.url)
        config.write_text(_CONFIG.format(nats_url=server.url, dsn=dsn) + settings, "utf-8")
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
                await database.fetchval(HUGE_PAGES_SQL),
                keys,
            )
        finally:
            await database.close()
            await client.close()


async def _apply_topology(settings: Settings) -> None:
    declared = declared_topology(settings)
    async with open_bus(bus_options(settings, "bench")) as bus:
        await topology.apply(JetStream(bus.client), declared.streams, declared.durables)
