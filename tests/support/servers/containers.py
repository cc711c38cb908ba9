"""The servers of the tests as containers, with the same life as the embedded ones."""

import asyncio
import contextlib
import gc
import os
import re
import secrets
import warnings
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import docker
import nats
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from typing_extensions import override

from chatlane_servers.embedded import free_port

_START_PATIENCE: Final = timedelta(seconds=60)
_POLL: Final = timedelta(milliseconds=50)
_COMPOSE: Final = Path(__file__).parents[3] / "deploy" / "compose.yaml"


def pinned_image(name: str) -> str:
    """Return the image of a server that deploy/ pins, whatever is used in its place here."""
    (image,) = re.findall(rf"\$\{{CHATLANE_{name}_IMAGE:-(.+)\}}", _COMPOSE.read_text("utf-8"))
    return str(image)


def server_image(name: str) -> str:
    """Return the image of a server that is used here: of the environment, else the pinned one."""
    return os.environ.get(f"CHATLANE_{name}_IMAGE") or pinned_image(name)


def docker_answers() -> bool:
    """Return whether a Docker engine is there."""
    with warnings.catch_warnings():
        # The client leaves its socket open when nobody listens.
        warnings.simplefilter("ignore", ResourceWarning)
        answered = _ping()
        gc.collect()
    return answered


def _ping() -> bool:
    try:
        client = docker.from_env(timeout=2)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except (DockerException, OSError):
        return False
    finally:
        client.close()


class ContainerServer:
    """One server in a container: killed, it comes back with its port and data."""

    def __init__(self, container: DockerContainer, container_port: int) -> None:
        # A fixed host port, for a restarted container would get a new one.
        self.port = free_port()
        self._container = container.with_bind_ports(container_port, self.port)
        self._was_created = False

    @property
    def host(self) -> str:
        return self._container.get_container_host_ip()

    async def start(self) -> None:
        if self._was_created:
            await self._call("start")
        else:
            await asyncio.to_thread(self._container.start)
            self._was_created = True
        await self._until(self._answers)

    async def stop(self) -> None:
        await self._call("stop", timeout=10)

    async def kill(self) -> None:
        await self._call("kill")

    async def remove(self) -> None:
        await asyncio.to_thread(self._container.stop)

    async def _answers(self) -> bool:
        raise NotImplementedError

    async def _call(self, method: str, **arguments: Any) -> None:  # noqa: ANN401 # docker's own
        wrapped = self._container.get_wrapped_container()
        await asyncio.to_thread(getattr(wrapped, method), **arguments)

    async def _until(self, answers: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(_START_PATIENCE.total_seconds()):
            while not await answers():  # noqa: ASYNC110 # a container gives no event
                await asyncio.sleep(_POLL.total_seconds())


class NatsContainer(ContainerServer):
    """NATS with JetStream."""

    def __init__(self) -> None:
        container = DockerContainer(
            server_image("NATS"), command="--jetstream --store_dir /tmp/nats"
        )
        super().__init__(container, 4222)

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    @override
    async def _answers(self) -> bool:
        with contextlib.suppress(OSError, TimeoutError, nats.errors.Error):
            client = await nats.connect(self.url, allow_reconnect=False, connect_timeout=2)
            try:
                await client.jetstream().account_info()
            finally:
                await client.close()
            return True
        return False


class PostgresContainer(ContainerServer):
    """Postgres with the C locale, as the embedded one has."""

    def __init__(self) -> None:
        self._password = secrets.token_hex(16)
        environment = {
            "POSTGRES_USER": "chatlane",
            "POSTGRES_PASSWORD": self._password,
            "POSTGRES_INITDB_ARGS": "--encoding=UTF8 --locale=C",
        }
        container = DockerContainer(
            server_image("POSTGRES"), command="-c max_connections=200", env=environment
        )
        super().__init__(container, 5432)

    @property
    def url(self) -> str:
        return self.dsn("postgres")

    def dsn(self, database: str) -> str:
        address = f"chatlane:{self._password}@{self.host}:{self.port}"
        return f"postgres://{address}/{database}?sslmode=disable"

    @override
    async def _answers(self) -> bool:
        with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError):
            connection = await asyncpg.connect(self.url, timeout=2)
            await connection.close()
            return True
        return False
