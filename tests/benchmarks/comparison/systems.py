"""The compared systems, each set up as its documents advise, and what a fault kills in each."""

import ast
import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg
import httpx

from chatlane_devkit.demo.stack import open_stack
from chatlane_servers.conditions import until
from chatlane_servers.embedded import (
    LOOPBACK,
    EmbeddedServer,
    PostgresServer,
    free_port,
    open_postgres,
)
from chatlane_servers.programs import Program
from tests.support.servers.restate_server import open_restate, restate_program

ROOT: Final = Path(__file__).parents[3]
PROGRAMS: Final = Path(__file__).with_name("programs")
THINK: Final = timedelta(milliseconds=60)
# A supervisor starts again what ended, after so long.
_AWAY: Final = timedelta(milliseconds=500)
_LOOK_AGAIN: Final = timedelta(milliseconds=50)
_START_PATIENCE: Final = timedelta(seconds=60)
_CHATLANE: Final = """
[agents.main]
lease = "3s"

[platforms.telegram.accounts.assistant]
"""

Part = Program | EmbeddedServer


@dataclass(slots=True)
class System:
    """A running system.

    Attributes:
        victims: What each fault of the chat day kills, by its cue.
        restarts: How often a program ended by itself and was started again.
    """

    victims: Mapping[str, tuple[Part, ...]]
    restarts: int = 0
    _killed: set[Part] = field(default_factory=set)

    async def happen(self, cue: str) -> None:
        """Kill what the fault is about with SIGKILL, all at once, and start it again."""
        victims = self.victims[cue]
        self._killed.update(victims)
        await asyncio.gather(*(part.kill() for part in victims))
        await asyncio.sleep(_AWAY.total_seconds())
        for part in victims:
            await _start(part)
        self._killed.difference_update(victims)

    async def supervise(self) -> None:
        """Start programs that ended by themselves again, until cancelled."""
        parts = {part for victims in self.victims.values() for part in victims}
        programs = [part for part in parts if isinstance(part, Program)]
        while True:
            await asyncio.sleep(_LOOK_AGAIN.total_seconds())
            for program in programs:
                if not program.is_running and program not in self._killed:
                    self.restarts += 1
                    await asyncio.sleep(_AWAY.total_seconds())
                    program.start()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A system that can be started.

    Attributes:
        programs: What its user writes, besides the adapter that all share.
        servers: What has to run besides these programs.
    """

    name: str
    programs: tuple[str, ...]
    servers: str
    open: Callable[[Path, str], AbstractAsyncContextManager[System]]

    @property
    def lines(self) -> int:
        """Lines that the user writes, without imports, comments, documentation and empty lines."""
        return sum(_code_lines(PROGRAMS / f"{name}.py") for name in self.programs)


async def _start(part: Part) -> None:
    if isinstance(part, Program):
        part.start()
    else:
        await part.start()


def _program(name: str, directory: Path, platform_url: str, copy: str = "", **more: str) -> Program:
    variables = {
        "PLATFORM_URL": platform_url,
        "THINK_SECONDS": str(THINK.total_seconds()),
        "PYTHONPATH": str(ROOT),
        **more,
    }
    module = f"tests.benchmarks.comparison.programs.{name}"
    return Program(f"{name}{copy}", ["-m", module], directory, variables)


@asynccontextmanager
async def _supervised(
    programs: Iterable[Program], victims: Mapping[str, tuple[Part, ...]]
) -> AsyncIterator[System]:
    """Start programs and keep them running during the block."""
    system = System(victims)
    for program in programs:
        program.start()
    supervisor = asyncio.create_task(system.supervise())
    try:
        yield system
    finally:
        supervisor.cancel()
        with suppress(asyncio.CancelledError):
            await supervisor
        await asyncio.gather(*(program.kill() for program in programs))


async def _database(server: PostgresServer, name: str) -> str:
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
    return server.dsn(name)


@asynccontextmanager
async def _open_naive(directory: Path, platform_url: str) -> AsyncIterator[System]:
    bot = _program("naive_bot", directory, platform_url)
    victims = dict.fromkeys(("router", "worker", "nats", "postgres"), (bot,))
    async with _supervised([bot], victims) as system:
        yield system


@asynccontextmanager
async def _open_langgraph(directory: Path, platform_url: str) -> AsyncIterator[System]:
    async with open_postgres(directory / "postgres") as postgres:
        dsn = await _database(postgres, "checkpoints")
        bot = _program("langgraph_bot", directory, platform_url, DATABASE_URL=dsn)
        victims = dict.fromkeys(("router", "worker", "nats"), (bot,))
        async with _supervised([bot], {**victims, "postgres": (postgres,)}) as system:
            yield system


@asynccontextmanager
async def _open_dbos(directory: Path, platform_url: str) -> AsyncIterator[System]:
    async with open_postgres(directory / "postgres") as postgres:
        place = {
            "DATABASE_URL": await _database(postgres, "dbos"),
            "MEMORY_URL": await _database(postgres, "memory"),
        }
        adapter = _program("dbos_adapter", directory, platform_url, **place)
        agents = [
            _program("dbos_agent", directory, platform_url, name, EXECUTOR_ID=name, **place)
            for name in ("1", "2")
        ]
        victims: dict[str, tuple[Part, ...]] = {
            "router": (adapter,),
            "worker": (agents[0],),
            "nats": (agents[1],),
            "postgres": (postgres,),
        }
        # The first agent makes the tables of DBOS.
        agents[0].start()
        await _until_listening(place["DATABASE_URL"])
        async with _supervised([*agents, adapter], victims) as system:
            yield system


async def _until_listening(dsn: str) -> None:
    """Wait until DBOS has registered its queue."""

    async def is_there() -> bool:
        connection = await asyncpg.connect(dsn)
        try:
            return bool(await connection.fetchval("SELECT count(*) FROM dbos.queues"))
        except asyncpg.PostgresError:
            return False
        finally:
            await connection.close()

    await until(is_there, _START_PATIENCE)


@asynccontextmanager
async def _open_restate(directory: Path, platform_url: str) -> AsyncIterator[System]:
    async with open_restate(directory / "restate", restate_program()) as server:
        handlers = f"{LOOPBACK}:{free_port()}"
        agent = _program("restate_agent", directory, platform_url, HANDLERS=handlers)
        adapter = _program("restate_adapter", directory, platform_url, INGRESS_URL=server.url)
        victims: dict[str, tuple[Part, ...]] = {
            "router": (adapter,),
            "worker": (agent,),
            "nats": (agent,),
            "postgres": (server,),
        }
        agent.start()

        async def is_registered() -> bool:
            with suppress(httpx.HTTPError):
                return await server.register(f"http://{handlers}")
            return False

        await until(is_registered, _START_PATIENCE)
        async with _supervised([agent, adapter], victims) as system:
            yield system


@asynccontextmanager
async def _open_chatlane(directory: Path, platform_url: str) -> AsyncIterator[System]:
    config = directory / "declared.toml"
    config.write_text(_CHATLANE, "utf-8")
    stack_directory = directory / "stack"
    stack_directory.mkdir()
    async with open_stack(
        stack_directory, lambda _: None, think=THINK, user_config=config, has_workers=False
    ) as stack:
        place = {"NATS_URL": stack.nats.url}
        adapter = _program("chatlane_adapter", directory, platform_url, **place)
        agents = [
            _program("chatlane_agent", directory, platform_url, name, **place)
            for name in ("1", "2")
        ]
        victims: dict[str, tuple[Part, ...]] = {
            "router": (adapter, stack.programs["router 1"]),
            "worker": (agents[0],),
            "nats": (stack.nats,),
            "postgres": (stack.postgres,),
        }
        async with _supervised([*agents, adapter], victims) as system:
            yield system


CANDIDATES: Final = (
    Candidate(
        "chatlane",
        ("chatlane_adapter", "chatlane_agent"),
        "NATS, Postgres, 2 routers",
        _open_chatlane,
    ),
    Candidate("Restate", ("restate_adapter", "restate_agent"), "restate-server", _open_restate),
    Candidate("DBOS", ("dbos_adapter", "dbos_agent"), "Postgres", _open_dbos),
    Candidate("LangGraph with a checkpointer", ("langgraph_bot",), "Postgres", _open_langgraph),
    Candidate("naive bot", ("naive_bot",), "none", _open_naive),
)


def _code_lines(path: Path) -> int:
    """Count the lines of code of a module."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [it for it in body if not _is_left_out(it)] or [ast.Pass()]  # type: ignore[attr-defined]
    # The formatter of the repository breaks long lines; here each statement is one line.
    return len(ast.unparse(tree).split("\n")) - ast.unparse(tree).count("\n\n")


def _is_left_out(statement: object) -> bool:
    if isinstance(statement, ast.Expr):
        value = statement.value
        return isinstance(value, ast.Constant) and isinstance(value.value, str)
    return isinstance(statement, ast.Import | ast.ImportFrom)
