"""Which servers the tests run on: given by URL, in containers, or embedded.

A URL in CHATLANE_TEST_NATS_URL or CHATLANE_TEST_POSTGRES_URL wins; every stream on that NATS
server is deleted. Else CHATLANE_TEST_BACKEND says `containers` or `embedded`; `auto`, the
default, takes containers where a Docker engine answers. A server that cannot be had fails the
tests that need it; nothing is skipped.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

import nats
from typing_extensions import override

from chatlane_servers.embedded import open_nats, open_postgres
from tests.support.servers import containers
from tests.support.servers.databases import with_database
from tests.support.servers.memory_directory import open_memory_directory

ContainerT = TypeVar("ContainerT", bound=containers.ContainerServer)


class Backend(StrEnum):
    """Where one server comes from."""

    URL = "url"
    CONTAINERS = "containers"
    EMBEDDED = "embedded"


class RunningServer(Protocol):
    """A server that a test may kill and start again; it keeps its port and data."""

    @property
    def url(self) -> str: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def kill(self) -> None: ...


class RunningPostgres(RunningServer, Protocol):
    """A Postgres server; `url` leads to its maintenance database."""

    def dsn(self, database: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Backends:
    """The choice for this run."""

    nats: Backend
    postgres: Backend

    @property
    def own_server(self) -> Backend:
        """What a test gets that needs a server of its own, even if a URL was given."""
        kinds = {self.nats, self.postgres}
        return Backend.CONTAINERS if Backend.CONTAINERS in kinds else Backend.EMBEDDED

    @override
    def __str__(self) -> str:
        return f"nats={self.nats}, postgres={self.postgres}, killed in tests={self.own_server}"


def chosen_backends(environment: Mapping[str, str] = os.environ) -> Backends:
    """Return what the environment asks for, else what this machine has."""
    urls = {name: f"CHATLANE_TEST_{name}_URL" in environment for name in ("NATS", "POSTGRES")}
    wanted = environment.get("CHATLANE_TEST_BACKEND", "auto")
    if wanted == "auto" and not all(urls.values()):
        wanted = Backend.CONTAINERS if containers.docker_answers() else Backend.EMBEDDED
    default = Backend.EMBEDDED if wanted == "auto" else Backend(wanted)
    return Backends(
        nats=Backend.URL if urls["NATS"] else default,
        postgres=Backend.URL if urls["POSTGRES"] else default,
    )


@contextlib.asynccontextmanager
async def open_test_nats(backend: Backend) -> AsyncIterator[RunningServer]:
    """Run a NATS server of the chosen kind, fresh unless it was given by URL."""
    if backend is Backend.URL:
        yield GivenServer(os.environ["CHATLANE_TEST_NATS_URL"])
    elif backend is Backend.CONTAINERS:
        async with _contained(containers.NatsContainer()) as server:
            yield server
    else:
        with open_memory_directory() as directory:
            async with open_nats(directory / "nats") as server:
                yield server


@contextlib.asynccontextmanager
async def open_test_postgres(backend: Backend) -> AsyncIterator[RunningPostgres]:
    """Run a Postgres server of the chosen kind, fresh unless it was given by URL."""
    if backend is Backend.URL:
        yield GivenPostgres(os.environ["CHATLANE_TEST_POSTGRES_URL"])
    elif backend is Backend.CONTAINERS:
        async with _contained(containers.PostgresContainer()) as server:
            yield server
    else:
        programs = os.environ.get("CHATLANE_TEST_POSTGRES_PROGRAMS")
        with open_memory_directory() as directory:
            path = directory / "postgres"
            async with open_postgres(path, programs=Path(programs) if programs else None) as server:
                yield server


async def delete_streams(url: str) -> None:
    """Delete every stream of a NATS server, so that the next test starts with none."""
    client = await nats.connect(url)
    try:
        jetstream = client.jetstream()
        for stream in await jetstream.streams_info():
            await jetstream.delete_stream(stream.config.name or "")
    finally:
        await client.close()


class GivenServer:
    """A server somebody else runs: its life is not ours to end."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def start(self) -> None:
        """Nothing to do: it runs."""

    async def stop(self) -> None:
        raise AssertionError("a test that stops its server takes one of its own")

    async def kill(self) -> None:
        raise AssertionError("a test that kills its server takes one of its own")


class GivenPostgres(GivenServer):
    """The same for Postgres."""

    def dsn(self, database: str) -> str:
        return with_database(self.url, database)


@contextlib.asynccontextmanager
async def _contained(server: ContainerT) -> AsyncIterator[ContainerT]:
    try:
        await server.start()
        yield server
    finally:
        await server.remove()
