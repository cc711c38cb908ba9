"""All of chatlane on one machine: embedded servers, two routers, workers, a subscriber.

The demo disturbs it on purpose, `chatlane dev` keeps it running. Everything listens on loopback, on
free ports, and ends with the process that started it.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg

from chatlane.config.settings import Settings, load_settings
from chatlane.postgres import grants
from chatlane.postgres.grants import Roles
from chatlane.postgres.migrations import migrate
from chatlane_devkit.demo.observer import Observer
from chatlane_devkit.demo.stack_config import stack_config
from chatlane_servers.conditions import until
from chatlane_servers.embedded import (
    NatsServer,
    PostgresServer,
    free_port,
    open_nats,
    open_postgres,
)
from chatlane_servers.programs import LogTail, Program

AGENT: Final = "main"
DATABASE: Final = "chatlane"
ROUTERS: Final = 2
WORKERS: Final = 2

# A link to the example in a checkout, a copy of it in the wheel.
_SUBSCRIBER: Final = Path(__file__).parent / "data" / "subscriber.py"

# Login role of routers in the database.
_ROUTER: Final = "chatlane_router"
_START_PATIENCE: Final = timedelta(seconds=30)
_ROUTER_STARTED: Final = re.compile(r"\brouter_started\b.*\brouter=([0-9a-f-]{36})")

Tell = Callable[[str], None]


@dataclass(slots=True)
class Stack:
    """All running processes and their addresses.

    Attributes:
        directory: Data, configuration and logs.
        config: The `chatlane.toml` of all processes.
        router_ids: By name, the id of a router in the database.
        health_ports: By name, the port of `/readyz` and `/metrics` of a router.
        programs: By name.
    """

    directory: Path
    config: Path
    settings: Settings
    nats: NatsServer
    postgres: PostgresServer
    observer: Observer
    router_ids: dict[str, str] = field(default_factory=dict)
    health_ports: dict[str, int] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)

    @property
    def dsn(self) -> str:
        """Address of the database as its owner; programs log in with their own roles."""
        return self.postgres.dsn(DATABASE)

    @property
    def partitions(self) -> int:
        """Number of partitions of the log."""
        return self.settings.router.partitions

    async def start_router(self, name: str) -> None:
        """Start a router and return when it works; read its id from its log.

        Raises:
            ServerStartError: It ended by itself, or did not start in time.
        """
        program = self.programs[name]
        log = LogTail(program.log_path)
        log.new_lines()
        program.start()

        async def has_told() -> bool:
            program.require_running()
            for line in log.new_lines():
                if found := _ROUTER_STARTED.search(line):
                    self.router_ids[name] = found[1]
                    return True
            return False

        try:
            await until(has_told, _START_PATIENCE)
        except TimeoutError as error:
            raise program.failure("it did not come up in time") from error

    async def until_owned(self, shares: dict[str, int]) -> float:
        """Wait until routers own this many partitions; return the seconds that passed.

        Raises:
            TimeoutError: They did not in time.
        """
        wanted = {self.router_ids[name]: count for name, count in shares.items() if count}

        async def is_so() -> bool:
            return await self.observer.owners() == wanted

        return await until(is_so, _START_PATIENCE)

    def require_running(self) -> None:
        """Fail if any program ended by itself.

        Raises:
            ServerStartError: With the end of its log.
        """
        for program in self.programs.values():
            program.require_running()


@asynccontextmanager
async def open_stack(
    directory: Path,
    tell: Tell,
    *,
    think: timedelta,
    user_config: Path | None = None,
    has_workers: bool = True,
    more_config: str = "",
) -> AsyncIterator[Stack]:
    """Start everything, and stop it at the end of the block.

    Args:
        directory: For all files.
        tell: Prints a line.
        think: Time that an answer of the echo agent takes.
        user_config: A chatlane.toml whose declarations apply; None takes the shipped ones.
        has_workers: Echo workers and subscribers answer.
        more_config: TOML that is added to the configuration.

    Raises:
        ServerStartError: A process ended by itself or did not start.
    """
    async with (
        open_nats(directory / "nats") as nats,
        open_postgres(directory / "postgres") as postgres,
    ):
        tell(f"nats-server listens on {nats.url}")
        tell(f"Postgres listens on 127.0.0.1:{postgres.port}")
        config = await _prepare(
            directory, postgres, lambda dsn: stack_config(nats.url, dsn, user_config) + more_config
        )
        tell("streams and tables are set up")
        observer = Observer(postgres.dsn(DATABASE))
        stack = Stack(directory, config, load_settings(config, {}), nats, postgres, observer)
        _add_routers(stack)
        if not has_workers:
            pass
        elif user_config is None:
            _add_workers(stack, think)
        else:
            _add_declared_workers(stack, think)
        try:
            await _start_programs(stack, tell)
            yield stack
        finally:
            await _stop_programs(stack)
            await observer.close()


async def _prepare(
    directory: Path,
    postgres: PostgresServer,
    config_text: Callable[[str], str],
) -> Path:
    """Write the configuration, create the database, and apply migrations and topology.

    Args:
        directory: For the configuration.
        postgres: The database server.
        config_text: Returns the configuration for the address of the database.
    """
    config = directory / "chatlane.toml"
    password = secrets.token_hex(16)
    dsn = postgres.dsn(DATABASE, login=(_ROUTER, password))
    config.write_text(config_text(dsn), "utf-8")
    await _execute(postgres.url, f'CREATE DATABASE "{DATABASE}"')
    # The tables come first: `admin apply` logs in as one of their users to write the audit log.
    await _make_tables(postgres.dsn(DATABASE), password)
    await _run(directory, ["-m", "chatlane", "admin", "apply", "--config", str(config)])
    return config


async def _make_tables(dsn: str, password: str) -> None:
    """Create the tables, rights and logins, as the owner of a database would."""
    await migrate(dsn)
    roles = Roles()
    await _execute(dsn, grants.script(roles))
    membership = f"LOGIN PASSWORD '{password}' IN ROLE {roles.application}"
    await _execute(dsn, f"CREATE ROLE {_ROUTER} {membership}")


async def _execute(dsn: str, sql: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


async def _run(directory: Path, arguments: list[str]) -> None:
    """Run a chatlane command until it exits.

    Raises:
        ServerStartError: It failed.
    """
    program = Program("set-up", arguments, directory)
    program.start()

    async def has_ended() -> bool:
        return not program.is_running

    await until(has_ended, _START_PATIENCE)
    program.require_success()


def _add_routers(stack: Stack) -> None:
    """Add the routers, not started yet."""
    config = str(stack.config)
    for number in range(1, ROUTERS + 1):
        name = f"router {number}"
        port = stack.health_ports[name] = free_port()
        arguments = ["-m", "chatlane", "router", "--config", config]
        environment = {"CHATLANE_HTTP__PORT": str(port)}
        stack.programs[name] = Program(name, arguments, stack.directory, environment)


def _add_workers(stack: Stack, think: timedelta) -> None:
    """Add the workers of the shipped declarations, not started yet."""
    for number in range(1, WORKERS + 1):
        _add_echo_worker(stack, f"worker {number}", AGENT, think)
    _add_subscriber(stack, "subscriber", {})


def _add_declared_workers(stack: Stack, think: timedelta) -> None:
    """Add a worker for each agent that the user declares, not started yet."""
    for agent in stack.settings.catalog().agents.values():
        if agent.delivery == "turns":
            _add_echo_worker(stack, f"worker {agent.name}", agent.name, think)
        else:
            slots = str(stack.settings.router.slots)
            about = {"AGENT": agent.name, "SLOTS": slots}
            _add_subscriber(stack, f"subscriber {agent.name}", about)


def _add_echo_worker(stack: Stack, name: str, agent: str, think: timedelta) -> None:
    config = str(stack.config)
    arguments = ["-m", "chatlane", "echo-worker", "--config", config, "--agent", agent]
    arguments += ["--name", worker_id(name), "--think", f"{think.total_seconds()}s"]
    stack.programs[name] = Program(name, arguments, stack.directory)


def _add_subscriber(stack: Stack, name: str, environment: dict[str, str]) -> None:
    environment = {"NATS_URL": stack.nats.url, **environment}
    stack.programs[name] = Program(name, [str(_SUBSCRIBER)], stack.directory, environment)


async def _start_programs(stack: Stack, tell: Tell) -> None:
    """Start all programs at once and return when the routers share the partitions."""
    routers = list(stack.health_ports)
    for name in stack.programs.keys() - set(routers):
        stack.programs[name].start()
    await asyncio.gather(*(stack.start_router(name) for name in routers))
    share, rest = divmod(stack.partitions, len(routers))
    if not rest:
        await stack.until_owned(dict.fromkeys(routers, share))
    stack.require_running()
    for name in routers:
        tell(f"{name} owns {share} of {stack.partitions} partitions")


async def _stop_programs(stack: Stack) -> None:
    """Stop workers before routers, so that no worker waits for an answer that cannot come."""
    routers = [stack.programs[name] for name in stack.health_ports]
    others = [program for program in stack.programs.values() if program not in routers]
    for group in (others, routers):
        await asyncio.gather(*(program.stop() for program in group))


def worker_id(name: str) -> str:
    """Return the name under which a worker claims turns; it must not contain spaces."""
    return name.replace(" ", "-")
