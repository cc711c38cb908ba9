"""A router, an adapter as a process, and an agent in the test, on given servers."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from chatlane_client import Handler, TurnWorker, open_connection
from chatlane_servers.embedded import free_port
from tests.support.servers.nats_users import Keys
from tests.support.service.installation import CONFIG, Installation
from tests.support.service.processes import Process

ACCOUNT = "bot"


@dataclass
class AdapterStage:
    """What a test of an adapter acts with.

    Attributes:
        directory: Holds configuration and logs.
        nats_url: Where everybody connects.
        command: Command of the adapter below `chatlane adapter`.
        router: The router; started.
        adapter: The adapter; started.
    """

    directory: Path
    nats_url: str
    command: str
    variables: Mapping[str, str]
    router: Process
    adapter: Process

    def another_adapter(self, name: str, **more: str) -> Process:
        """Return a further process of the adapter, not started."""
        return _adapter(name, self.directory, self.command, {**self.variables, **more})


def _adapter(name: str, directory: Path, command: str, variables: Mapping[str, str]) -> Process:
    process = Process(name, ["-m", "chatlane", "adapter", command], directory, **variables)
    # Its library takes seconds to import.
    process.is_forked = True
    return process


@asynccontextmanager
async def open_adapter_stage(
    directory: Path,
    nats_url: str,
    dsn: str,
    *,
    platform: str,
    variables: Mapping[str, str],
    answer: Handler,
    command: str | None = None,
    settings: str = "",
    keys: Keys | None = None,
) -> AsyncIterator[AdapterStage]:
    """Run a router, the adapter of a platform, and an agent `main`.

    Args:
        directory: For configuration and logs.
        nats_url: A server without streams.
        dsn: A migrated database.
        platform: Name of the platform.
        command: Command of the adapter below `chatlane adapter`, if it has another name.
        variables: Settings of the adapter, without the prefix of their names.
        answer: Answers the turns of the agent.
        settings: More of chatlane.toml; the section of the account is the last one.
        keys: The router, the adapter and the worker connect as the users `router`, `adapter` and
            `main-worker`, unless `variables` name others; by default as nobody.
    """
    config = directory / "chatlane.toml"
    lease = '[agents.main]\nlease = "3s"\n'
    account = f"[platforms.{platform}.accounts.{ACCOUNT}]\n"
    config.write_text(f"{CONFIG}{lease}{account}{settings}")
    port = free_port()
    await Installation(directory, nats_url, dsn, port).done("admin", "apply")
    path = {"PATH": os.environ["PATH"]}
    router = Process(
        "router",
        ["-m", "chatlane", "router", "--config", str(config)],
        directory,
        CHATLANE_NATS__URL=nats_url,
        CHATLANE_POSTGRES__DSN=dsn,
        CHATLANE_HTTP__PORT=str(port),
        CHATLANE_LOG__FORMAT="json",
        **path,
        **({} if keys is None else keys.environment("router")),
    )
    values = {"nats_url": nats_url, "account": ACCOUNT}
    if keys is not None:
        values |= {"principal": "adapter", "nkey_seed_file": str(keys.seed_file("adapter"))}
    values |= variables
    prefixed = {f"CHATLANE_ADAPTER_{name.upper()}": value for name, value in values.items()} | path
    command = command or platform
    adapter = _adapter("adapter", directory, command, prefixed)
    stage = AdapterStage(directory, nats_url, command, prefixed, router, adapter)
    async with _working(nats_url, answer, keys):
        router.start()
        adapter.start()
        await adapter.until_logged("adapter_started")
        try:
            yield stage
        finally:
            for process in (adapter, router):
                await process.stop()


@asynccontextmanager
async def _working(nats_url: str, answer: Handler, keys: Keys | None) -> AsyncIterator[None]:
    name = "main-worker"
    seed = None if keys is None else str(keys.seed_file(name))
    principal = None if keys is None else name
    async with open_connection(
        nats_url, name=name, principal=principal, nkey_seed_file=seed
    ) as client:
        worker = TurnWorker(client, "main", answer, slots=16, principal="main-worker")
        serving = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await serving
