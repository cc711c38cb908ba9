"""Run all parts of a bot on one machine, until it is stopped."""

import asyncio
import contextlib
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncpg

from chatlane.config.settings import load_settings
from chatlane.connections import bus_options, declared_topology
from chatlane.nats import topology
from chatlane.nats.connection import open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.postgres import grants
from chatlane.postgres.grants import Roles
from chatlane.postgres.migrations import known_versions, migrate
from chatlane_bot.backup import take_requested_backup
from chatlane_bot.bot_config import TERMINAL, TERMINAL_PERSON, BotConfig, merged, write_bot_config
from chatlane_bot.data_directory import DataDirectory, DataDirectoryError
from chatlane_bot.supervisor import Part, ProgramPart, ServerPart, Supervisor, Tell, trim_log
from chatlane_servers.embedded import LOOPBACK, NatsServer, PostgresServer, free_port
from chatlane_servers.processes import ServerStartError
from chatlane_servers.programs import Program
from chatlane_servers.toml_text import toml_text

DATABASE: Final = "chatlane"

_ROUTER: Final = "chatlane_router"
# The account of people who write in a browser, unless the bot talks in a terminal.
_BROWSER: Final = ("console", "web")
# What a program has in its log once it works; an adapter may have to wait for its platform.
_SIGNS_OF_START: Final = {
    "router": '"router_started"',
    "worker": '"worker_started"',
    "console": "console: http",
}
_PRIVATE: Final = 0o600
_START_PATIENCE: Final = timedelta(seconds=60)
# Enough for days of a busy bot, and little enough for a small machine.
_STREAM_BYTES: Final = {
    "inbound": "512MiB",
    "routed": "64MiB",
    "turns": "64MiB",
    "results": "512MiB",
    "outbound": "256MiB",
    "events": "64MiB",
    "dead": "64MiB",
    "advisories": "16MiB",
}
# For a machine with 1 GiB.
_SMALL_POSTGRES: Final = {
    "max_connections": "50",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
}


@dataclass(slots=True)
class Bot:
    """The running parts of a bot and their addresses.

    Attributes:
        nats_url: Address of NATS.
        postgres_at: Address of Postgres without a password.
        health_port: Port of `/readyz` and `/metrics` of the router.
        console_port: Port of the console.
        media_port: Port of the links to files of the browser.
        adapter_media_port: Port of the links to files of the platform.
        servers: Embedded servers, in the order of their start.
        programs: Router, worker, console, eraser and adapter, in the order of their start.
        link_token: Token of the link that signs in to the console.
    """

    nats_url: str
    postgres_at: str
    health_port: int
    console_port: int
    media_port: int
    adapter_media_port: int
    servers: list[Part] = field(default_factory=list)
    programs: list[Part] = field(default_factory=list)
    link_token: str = field(default_factory=partial(secrets.token_urlsafe, 24), repr=False)


async def run_bot(directory: DataDirectory, config: BotConfig, tell: Tell, *, chats: bool) -> None:
    """Run a bot until SIGTERM, SIGINT, or the end of the chat in this terminal.

    Args:
        directory: Locked by this process.
        config: What the bot is.
        tell: Prints a line.
        chats: Whether a bot of the platform `terminal` talks in this terminal.

    Raises:
        ServerStartError: A part did not start.
        DataDirectoryError: The data are of a newer release.
    """
    stop, backup = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, backup.set)
    while True:
        async with open_bot(directory, config) as bot:
            keeping = asyncio.create_task(Supervisor(tell).keep([*bot.servers, *bot.programs]))
            tell(_summary(directory, config, bot))
            watched = [
                keeping,
                asyncio.create_task(stop.wait()),
                asyncio.create_task(backup.wait()),
            ]
            if chats and config.platform == TERMINAL:
                watched.append(asyncio.create_task(_chat(directory)))
            try:
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in watched:
                    task.cancel()
                await asyncio.gather(*watched, return_exceptions=True)
            tell("stopping")
        if keeping.done() and not keeping.cancelled() and (error := keeping.exception()):
            raise error
        if not backup.is_set() or stop.is_set():
            return
        backup.clear()
        tell(await asyncio.to_thread(take_requested_backup, directory))


@contextlib.asynccontextmanager
async def open_bot(directory: DataDirectory, config: BotConfig) -> AsyncIterator[Bot]:
    """Start all parts in order, and stop them in the opposite order.

    Raises:
        ServerStartError: A part did not start.
        DataDirectoryError: The data are of a newer release.
    """
    directory.require_known()
    write_bot_config(directory.bot_toml, config)
    async with contextlib.AsyncExitStack() as stack:
        bot = await _open_servers(directory, config, stack)
        await _apply_topology(directory.chatlane_toml)
        programs = _programs(directory, config, bot)
        stack.push_async_callback(_stop_programs, programs)
        for part in programs:
            trim_log(part.log_path)
            await part.start()
        bot.programs.extend(programs)
        await _until_ready(programs)
        yield bot


async def _open_servers(
    directory: DataDirectory, config: BotConfig, stack: contextlib.AsyncExitStack
) -> Bot:
    """Start the servers that run here, and write the configuration of the router."""
    ports = {name: port for name, port in directory.ports().items() if _is_free(port)}
    servers: list[Part] = []
    nats_url, dsn = config.servers.nats, config.servers.postgres
    nats = NatsServer(directory.path / "nats", ports.get("nats"), sync_always=True)
    postgres = PostgresServer(
        directory.path / "postgres", ports.get("postgres"), settings=_SMALL_POSTGRES
    )
    here = [its for its, url in ((nats, nats_url), (postgres, dsn)) if url is None]
    for server in here:
        stack.push_async_callback(server.stop)
        servers.append(ServerPart(server))
    await asyncio.gather(*(server.start() for server in here))
    if nats_url is None:
        nats_url, ports["nats"] = nats.url, nats.port
    if dsn is None:
        ports["postgres"] = postgres.port
        dsn = await _prepare_database(postgres)
    else:
        await _migrate(dsn)
    for name in ("console", "media", "adapter_media"):
        ports.setdefault(name, free_port())
    directory.keep_ports(ports)
    _write_configuration(directory, config, nats_url, dsn)
    return Bot(
        nats_url,
        _without_login(dsn),
        free_port(),
        ports["console"],
        ports["media"],
        ports["adapter_media"],
        servers,
    )


def _write_configuration(
    directory: DataDirectory, config: BotConfig, nats_url: str, dsn: str
) -> None:
    platform, account = _browser_account(config)
    here: dict[str, Any] = {"platforms": {platform: {"accounts": {account: {}}}}}
    if config.servers.nats is None:
        here["streams"] = {"replicas": 1, "max_bytes": _STREAM_BYTES}
    if config.servers.postgres is None:
        # A database that runs elsewhere may have a list under another key.
        here["erasure"] = {"key": directory.erasure_key()}
    tables: dict[str, Any] = {
        **merged(here, config.declarations()),
        "nats": {"url": nats_url},
        "postgres": {"dsn": dsn},
        "log": {"format": "json"},
    }
    path = directory.chatlane_toml
    path.touch(mode=_PRIVATE)
    path.write_text(toml_text(tables), "utf-8")
    load_settings(path, {}).catalog()


async def _prepare_database(postgres: PostgresServer) -> str:
    """Create or upgrade the tables, and return the address for the router."""
    connection = await asyncpg.connect(postgres.url)
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE):
            await connection.execute(f'CREATE DATABASE "{DATABASE}"')
    finally:
        await connection.close()
    owner, password, roles = postgres.dsn(DATABASE), secrets.token_hex(16), Roles()
    await _migrate(owner)
    connection = await asyncpg.connect(owner)
    try:
        await connection.execute(grants.script(roles))
        has_role = await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", _ROUTER)
        verb = "ALTER ROLE" if has_role else "CREATE ROLE"
        await connection.execute(f"{verb} {_ROUTER} LOGIN PASSWORD '{password}'")
        # Whoever runs the bot also exports and erases, with the same configuration.
        await connection.execute(f"GRANT {roles.application}, {roles.retention} TO {_ROUTER}")
    finally:
        await connection.close()
    return postgres.dsn(DATABASE, login=(_ROUTER, password))


async def _migrate(dsn: str) -> None:
    """Upgrade the tables.

    Raises:
        DataDirectoryError: They are of a newer release.
    """
    connection = await asyncpg.connect(dsn)
    try:
        newest = None
        if await connection.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL"):
            newest = await connection.fetchval("SELECT max(version) FROM schema_migrations")
    finally:
        await connection.close()
    if newest is not None and newest > known_versions()[-1]:
        raise DataDirectoryError(
            f"the database is at migration {newest}, and this release of chatlane knows "
            f"{known_versions()[-1]}: upgrade chatlane (`pip install --upgrade chatlane`)"
        )
    await migrate(dsn)


async def _apply_topology(path: Path) -> None:
    """Create and update the streams and durables that the configuration declares.

    What only a new stream could change, such as the number of partitions, stays as it is.
    """
    settings = load_settings(path, {})
    declared = declared_topology(settings)
    async with open_bus(bus_options(settings, "bot")) as bus:
        await topology.apply(JetStream(bus.client), declared.streams, declared.durables)


def _programs(directory: DataDirectory, config: BotConfig, bot: Bot) -> list[ProgramPart]:
    toml = str(directory.chatlane_toml)
    listed = [
        Program(
            "router",
            ["-m", "chatlane", "router", "--config", toml],
            directory.logs,
            {"CHATLANE_HTTP__PORT": str(bot.health_port)},
        ),
        Program(
            "worker",
            ["-m", "chatlane_bot.worker_process", str(directory.bot_toml)],
            directory.logs,
            {"CHATLANE_CONFIG": toml},
        ),
        Program(
            "console",
            ["-m", "chatlane", "console"],
            directory.logs,
            _console_of(directory, config, bot),
        ),
    ]
    if config.servers.postgres is None:
        listed.append(
            Program(
                "eraser",
                ["-m", "chatlane", "people", "erase-requested", "--every", "1m", "--config", toml],
                directory.logs,
                {},
            )
        )
    if config.platform != TERMINAL:
        listed.append(
            Program(
                "adapter",
                ["-m", "chatlane", "adapter", config.platform],
                directory.logs,
                {
                    "CHATLANE_ADAPTER_MEDIA_URL": str(directory.media),
                    "CHATLANE_ADAPTER_MEDIA_LISTEN_PORT": str(bot.adapter_media_port),
                    **config.adapter_environment(bot.nats_url),
                },
            )
        )
    return [ProgramPart(program) for program in listed]


def _console_of(directory: DataDirectory, config: BotConfig, bot: Bot) -> dict[str, str]:
    """Return the environment of the console.

    The person of a terminal goes on with its conversations in the browser.
    """
    platform, account = _browser_account(config)
    variables = {
        "port": str(bot.console_port),
        "nats_url": bot.nats_url,
        "operator_principal": "console-operator",
        "platform": platform,
        "account": account,
        "link_person": TERMINAL_PERSON if config.platform == TERMINAL else "me",
        "link_token": bot.link_token,
        "media_url": str(directory.media),
        "media_listen_port": str(bot.media_port),
    }
    return {f"CHATLANE_CONSOLE_{name.upper()}": value for name, value in variables.items()}


def _browser_account(config: BotConfig) -> tuple[str, str]:
    return (config.platform, config.account) if config.platform == TERMINAL else _BROWSER


async def _until_ready(programs: list[ProgramPart]) -> None:
    """Wait until the programs work; an adapter may have to wait for its platform.

    Raises:
        ServerStartError: One of them ended, or did not come up in time.
    """
    for part in programs:
        if part.name in _SIGNS_OF_START:
            try:
                await part.until_logged(_SIGNS_OF_START[part.name])
            except TimeoutError as exc:
                raise ServerStartError(part.name, "it did not come up in time") from exc


async def _stop_programs(programs: list[ProgramPart]) -> None:
    """Stop what needs the router before the router."""
    await asyncio.gather(*(part.stop() for part in programs if part.name != "router"))
    await asyncio.gather(*(part.stop() for part in programs))


async def _chat(directory: DataDirectory) -> None:
    """Talk to the bot in this terminal, until the end of the input."""
    arguments = ["-m", "chatlane", "chat", "--as", TERMINAL_PERSON]
    arguments += ["--account", "bot"]
    arguments += ["--config", str(directory.chatlane_toml)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _summary(directory: DataDirectory, config: BotConfig, bot: Bot) -> str:
    lines = [
        f"{config.model.name} answers on {config.platform}; Ctrl-C stops it",
        f"  data      {directory.path}",
        f"  logs      {directory.logs}",
        f"  NATS      {bot.nats_url}",
        f"  Postgres  {bot.postgres_at}",
        f"  router    http://{LOOPBACK}:{bot.health_port}/metrics",
        f"  console   http://{LOOPBACK}:{bot.console_port}/sign-in/link?token={bot.link_token}",
    ]
    lines += [f"  {part.name:<9} process {part.pid}" for part in [*bot.servers, *bot.programs]]
    lines.append(f"  look      chatlane sessions list --config {directory.chatlane_toml}")
    return "\n".join(lines)


def _without_login(dsn: str) -> str:
    return dsn.partition("?")[0].rpartition("@")[2]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
