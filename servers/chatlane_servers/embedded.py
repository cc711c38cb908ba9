"""Run nats-server and Postgres as child processes, for the demo and the tests.

Both listen on loopback only, keep their data in a given directory, come back with the same port and
data after `kill`, and end with the process that started them, in every case.
"""

import asyncio
import contextlib
import json
import random
import secrets
import shutil
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg
from typing_extensions import override

from chatlane_servers.binaries import (
    nats_server_program,
    postgres_programs,
    require_passable,
    unprivileged_identity,
)
from chatlane_servers.processes import Identity, ServerProcess, ServerStartError, log_tail

LOOPBACK: Final = "127.0.0.1"
START_PATIENCE: Final = timedelta(seconds=30)
STOP_PATIENCE: Final = timedelta(seconds=10)
_POLL: Final = timedelta(milliseconds=20)
_PROBE_PATIENCE: Final = timedelta(seconds=2)

# Below the range of ports for outgoing connections: a client that keeps connecting to the port of a
# stopped server could otherwise get that port itself and talk to itself.
_PORTS: Final = range(15_000, 32_000)

_USER: Final = "chatlane"
_POSTGRES_SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "fsync": "on",
    "synchronous_commit": "on",
    # Otherwise the log would quote refused rows and parameters, which contain message bodies.
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class EmbeddedServer(ABC):
    """Common base of both servers: start, kill, stop, start again."""

    name: str

    def __init__(self, directory: Path, port: int | None) -> None:
        self.directory = directory
        self.log_path = directory / f"{self.name}.log"
        self._fixed_port = port
        self._port: int | None = None
        self._process: ServerProcess | None = None

    @property
    def port(self) -> int:
        """The port, known from the first start on and then unchanged."""
        if self._port is None:
            raise ServerStartError(self.name, "it was never started")
        return self._port

    @property
    def pid(self) -> int | None:
        """Process id of the running server."""
        return self._process.pid if self._process and self._process.is_running else None

    @property
    def is_running(self) -> bool:
        """The process is alive; a frozen process counts as alive."""
        return self.pid is not None

    async def start(self) -> None:
        """Start the server and return when it answers; do nothing if it is running.

        Raises:
            ServerStartError: It exits, or does not answer in 30 s.
        """
        if self.is_running:
            return
        await self._prepare()
        try:
            async with asyncio.timeout(START_PATIENCE.total_seconds()):
                while not await self._start_once():  # noqa: ASYNC110 # a process sends no event
                    await asyncio.sleep(_POLL.total_seconds())
        except BaseException as error:
            if self._process:
                await self._process.kill()
            if isinstance(error, TimeoutError):
                raise self._failure("no answer in time") from error
            raise

    async def stop(self) -> None:
        """Stop the server gracefully."""
        if self._process:
            await self._process.stop(self._stop_signal, STOP_PATIENCE)

    async def kill(self) -> None:
        """End the server with SIGKILL; `start` brings it back with its data."""
        if self._process:
            await self._process.kill()

    def pause(self) -> None:
        """Freeze the server with SIGSTOP: its connections stay open and it does not answer."""
        self._require_process().send(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused server."""
        self._require_process().send(signal.SIGCONT)

    @property
    @abstractmethod
    def url(self) -> str:
        """Address for clients, with credentials."""

    @property
    @abstractmethod
    def _stop_signal(self) -> signal.Signals: ...

    @property
    @abstractmethod
    def _parent_death_signal(self) -> signal.Signals: ...

    @property
    def _identity(self) -> Identity | None:
        return None

    async def _prepare(self) -> None:
        """Create the files that must exist before the first start."""
        self.directory.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def _arguments(self) -> list[str]:
        """Write the configuration for the current port and return the command line."""

    @abstractmethod
    async def _answers(self) -> bool:
        """Return whether this server, and not another one on its port, serves clients."""

    async def _start_once(self) -> bool:
        """Start the process and wait until it answers; return false if a port was taken."""
        self._port = self._fixed_port or free_port()
        log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._process = self._spawn(self._arguments())
        while self._process.is_running:
            if await self._answers():
                self._fixed_port = self._port
                return True
            await asyncio.sleep(_POLL.total_seconds())
        if not _is_worth_repeating(self.log_path, log_start):
            raise self._failure(f"exit code {self._process.exit_code}")
        return False

    def _spawn(self, arguments: list[str]) -> ServerProcess:
        return ServerProcess(
            arguments,
            log_path=self.log_path,
            identity=self._identity,
            parent_death_signal=self._parent_death_signal,
        )

    def _require_process(self) -> ServerProcess:
        if self._process is None or not self._process.is_running:
            raise ServerStartError(self.name, "it is not running")
        return self._process

    def _failure(self, reason: str) -> ServerStartError:
        return ServerStartError(self.name, reason, log_tail(self.log_path))


class NatsServer(EmbeddedServer):
    """One nats-server with JetStream and its monitoring port.

    Attributes:
        directory: Holds the store, the configuration and the log.
    """

    name = "nats-server"

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        *,
        sync_always: bool = False,
        max_payload_bytes: int | None = None,
        extra_config: str = "",
        server_name: str | None = None,
    ) -> None:
        super().__init__(directory, port)
        self._sync_always = sync_always
        self._max_payload_bytes = max_payload_bytes
        self._extra_config = extra_config
        self._server_name = server_name or f"chatlane-{secrets.token_hex(8)}"
        self._monitoring_port = 0

    @property
    @override
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def monitoring_url(self) -> str:
        """Address of the monitoring endpoint, over HTTP; changes with every start."""
        return f"http://{LOOPBACK}:{self._monitoring_port}"

    def reload(self) -> None:
        """Make the server read its configuration again; its log shows when it has."""
        self._require_process().send(signal.SIGHUP)

    @property
    @override
    def _stop_signal(self) -> signal.Signals:
        return signal.SIGTERM

    @property
    @override
    def _parent_death_signal(self) -> signal.Signals:
        return signal.SIGKILL

    @override
    def _arguments(self) -> list[str]:
        self._monitoring_port = free_port()
        config = self.directory / "nats-server.conf"
        config.write_text(self._config(), encoding="utf-8")
        return [str(nats_server_program()), "--config", str(config)]

    def _config(self) -> str:
        # nats-server also reads JSON. The storage limit is a constant, because the default is a
        # share of the free disk and a small disk then refuses declared streams.
        store: dict[str, object] = {
            "store_dir": str(self.directory / "store"),
            "max_file_store": 64 * 1024**3,
            "max_memory_store": 1024**3,
        }
        if self._sync_always:
            store["sync_interval"] = "always"
        settings: dict[str, object] = {
            "server_name": self._server_name,
            "listen": f"{LOOPBACK}:{self.port}",
            "http": f"{LOOPBACK}:{self._monitoring_port}",
            "jetstream": store,
        }
        if self._max_payload_bytes is not None:
            settings["max_payload"] = self._max_payload_bytes
        lines = [f"{key}: {json.dumps(value)}" for key, value in settings.items()]
        return "\n".join([*lines, self._extra_config, ""])

    @override
    async def _answers(self) -> bool:
        with contextlib.suppress(OSError, TimeoutError, ValueError, EOFError):
            async with asyncio.timeout(_PROBE_PATIENCE.total_seconds()):
                greeted = await _nats_greeting(self.port)
                is_ours = greeted.get("server_name") == self._server_name
                return is_ours and await _is_healthy(self._monitoring_port)
        return False


class PostgresServer(EmbeddedServer):
    """One Postgres cluster, UTF-8 with the C locale, reached over loopback TCP with a password.

    Attributes:
        directory: Holds the cluster, the password and the log.
        programs: Folder with `postgres` and its tools.
    """

    name = "postgres"

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        programs: Path | None = None,
    ) -> None:
        super().__init__(directory, port)
        self._settings = {**_POSTGRES_SETTINGS, **(settings or {})}
        self._user = unprivileged_identity()
        self.programs = programs or postgres_programs(self._user)
        self._data = directory / "data"
        self._password_path = directory / "password"
        self._password = ""

    @property
    @override
    def url(self) -> str:
        return self.dsn("postgres")

    def dsn(self, database: str, *, login: tuple[str, str] | None = None) -> str:
        """Return the URL of one database.

        Args:
            login: User and password; the superuser's when not given.
        """
        user, password = login or (_USER, self._password)
        address = f"{user}:{password}@{LOOPBACK}:{self.port}"
        return f"postgres://{address}/{database}?sslmode=disable"

    @override
    async def stop(self, *, is_immediate: bool = False) -> None:
        """Stop the server.

        Args:
            is_immediate: Skip the checkpoint, so that the next start recovers from the log.
        """
        if self._process:
            chosen = signal.SIGQUIT if is_immediate else self._stop_signal
            await self._process.stop(chosen, STOP_PATIENCE)

    @property
    @override
    def _stop_signal(self) -> signal.Signals:
        return signal.SIGINT

    @property
    @override
    def _parent_death_signal(self) -> signal.Signals:
        return signal.SIGQUIT

    @property
    @override
    def _identity(self) -> Identity | None:
        return self._user

    @override
    async def _prepare(self) -> None:
        await super()._prepare()
        if (self._data / "PG_VERSION").exists():
            self._password = self._password_path.read_text(encoding="ascii")
            return
        if self._user is not None:
            require_passable(self._data, self._user)
        self._password = secrets.token_hex(16)
        self._make_private_files()
        await self._initialise_cluster()

    def _make_private_files(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)
        self._data.mkdir(mode=0o700)
        self._password_path.touch(mode=0o600)
        self._password_path.write_text(self._password, encoding="ascii")
        if self._user is not None:
            for path in (self._data, self._password_path):
                shutil.chown(path, self._user.uid, self._user.gid)

    async def _initialise_cluster(self) -> None:
        # Written without a sync: a cluster that has served no client yet can be created again.
        process = self._spawn(
            [
                str(self.programs / "initdb"),
                *("--pgdata", str(self._data), "--username", _USER),
                *("--pwfile", str(self._password_path), "--auth", "scram-sha-256"),
                *("--encoding", "UTF8", "--locale", "C", "--no-sync"),
            ]
        )
        try:
            code = await process.wait(START_PATIENCE)
        except BaseException:
            await process.kill()
            raise
        if code != 0:
            raise self._failure(f"initdb ended with exit code {code}")

    @override
    def _arguments(self) -> list[str]:
        settings = {**self._settings, "port": str(self.port)}
        options = [option for key, value in settings.items() for option in ("-c", f"{key}={value}")]
        return [str(self.programs / "postgres"), "-D", str(self._data), *options]

    @override
    async def _answers(self) -> bool:
        # The password belongs to this cluster, so no other server can be mistaken for it.
        with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError):
            timeout = _PROBE_PATIENCE.total_seconds()
            connection = await asyncpg.connect(self.url, timeout=timeout, command_timeout=timeout)
            try:
                await connection.execute("SELECT 1")
            finally:
                connection.terminate()
            return True
        return False


@contextlib.asynccontextmanager
async def open_nats(
    directory: Path,
    port: int | None = None,
    *,
    sync_always: bool = False,
    max_payload_bytes: int | None = None,
    extra_config: str = "",
) -> AsyncIterator[NatsServer]:
    """Run a nats-server with JetStream until the end of the block.

    Args:
        directory: For its files; created if missing, never removed.
        port: Chosen if not given.
        sync_always: Sync every write to disk before it is acknowledged.
        max_payload_bytes: The server's default if not given.
        extra_config: More lines of its configuration, such as accounts.
    """
    server = NatsServer(
        directory,
        port,
        sync_always=sync_always,
        max_payload_bytes=max_payload_bytes,
        extra_config=extra_config,
    )
    async with _running(server):
        yield server


@contextlib.asynccontextmanager
async def open_postgres(
    directory: Path,
    port: int | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    programs: Path | None = None,
) -> AsyncIterator[PostgresServer]:
    """Run Postgres until the end of the block.

    Args:
        directory: For its files; created if missing, never removed. As root, a directory that the
            user `postgres` can pass through, or the unprivileged system user if there is no
            `postgres`.
        port: Chosen if not given.
        settings: Server settings by name, such as `synchronous_commit`.
        programs: Directory with `postgres` and `initdb`; by default from the wheel or PATH.
    """
    server = PostgresServer(directory, port, settings=settings, programs=programs)
    async with _running(server):
        yield server


def free_port() -> int:
    """Return a loopback port that is free now.

    Another process may take it in the next moment, so the caller must be ready to retry.
    """
    for port in random.SystemRandom().sample(_PORTS, 200):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((LOOPBACK, port))
                return port
    raise ServerStartError("port", f"none is free in {_PORTS.start}..{_PORTS.stop - 1}")


@contextlib.asynccontextmanager
async def _running(server: EmbeddedServer) -> AsyncIterator[None]:
    await server.start()
    try:
        yield
    finally:
        await server.stop()


def _is_worth_repeating(log_path: Path, log_start: int) -> bool:
    """Return whether a start failed on a temporary condition, according to the log.

    A port that was taken between choice and use, or a killed Postgres whose processes are still
    ending.
    """
    with log_path.open("rb") as log:
        log.seek(log_start)
        text = log.read()
    passing = (b"address already in use", b"Address already in use", b"is still in use")
    return any(words in text for words in passing)


async def _nats_greeting(port: int) -> dict[str, object]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        line = await reader.readline()
    finally:
        writer.close()
    greeting: dict[str, object] = json.loads(line.removeprefix(b"INFO "))
    return greeting


async def _is_healthy(monitoring_port: int) -> bool:
    """Return whether JetStream has recovered its streams."""
    reader, writer = await asyncio.open_connection(LOOPBACK, monitoring_port)
    try:
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        status = await reader.readline()
    finally:
        writer.close()
    return b" 200 " in status
