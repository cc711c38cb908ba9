"""A directory with a chatlane.toml, and commands run in it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx

from tests.support.service.forked_command import CommandProcess, start_forked

CONFIG = """
[router]
partitions = 4
slots = 2

[streams.max_bytes]
inbound = "16MiB"
routed = "16MiB"
turns = "16MiB"
results = "16MiB"
outbound = "16MiB"
events = "16MiB"
dead = "16MiB"
advisories = "16MiB"

[platforms.terminal.accounts.local]
"""
STOPS_WITHIN = timedelta(seconds=15)


@dataclass(frozen=True)
class Ended:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


class Installation:
    """A directory with a chatlane.toml, and commands run in it.

    Args:
        database_url: As whom most commands connect.
        environment: More of their environment.
        owner_url: As whom those do that change tables and rights; else as the others.
        retention_url: As whom those do that delete on request or by age; else as the others.
    """

    def __init__(
        self,
        directory: Path,
        nats_url: str,
        database_url: str,
        port: int,
        environment: Mapping[str, str] | None = None,
        *,
        owner_url: str | None = None,
        retention_url: str | None = None,
    ) -> None:
        self.owner_url = owner_url or database_url
        self._retention_url = retention_url or database_url
        self.directory = directory
        self.nats_url = nats_url
        self.port = port
        self._environment = {
            **{name: value for name, value in os.environ.items() if "CHATLANE" not in name},
            "CHATLANE_NATS__URL": nats_url,
            "CHATLANE_POSTGRES__DSN": database_url,
            "CHATLANE_HTTP__PORT": str(port),
            "CHATLANE_LOG__FORMAT": "json",
            "NO_COLOR": "1",
            **(environment or {}),
        }

    async def start(self, *arguments: str, terminal: int | None = None) -> CommandProcess:
        """Start a command, as a copy with pipes or as a process of its own on a terminal."""
        environment = self._environment
        if arguments[:2] in {("admin", "migrate"), ("admin", "grants")}:
            environment = {**environment, "CHATLANE_POSTGRES__DSN": self.owner_url}
        elif arguments[0] == "people" or arguments[:2] == ("admin", "retain"):
            environment = {**environment, "CHATLANE_POSTGRES__DSN": self._retention_url}
        if terminal is None:
            return await start_forked(arguments, directory=self.directory, environment=environment)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "chatlane",
            *arguments,
            cwd=self.directory,
            env=environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )

    async def run(self, *arguments: str, typed: str = "") -> Ended:
        process = await self.start(*arguments)
        out, err = await process.communicate(typed.encode())
        return Ended(process.returncode or 0, out.decode(), err.decode())

    async def done(self, *arguments: str, typed: str = "") -> str:
        ended = await self.run(*arguments, typed=typed)
        assert ended.code == 0, ended
        return ended.out

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator[CommandProcess]:
        """Run a command in the background, and end it with SIGTERM."""
        process = await self.start(*arguments)
        said = asyncio.create_task(process.communicate())
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOPS_WITHIN.total_seconds()):
                    _, err = await said
            except TimeoutError:
                process.kill()
                raise
        assert process.returncode == 0, err.decode()

    async def is_alive(self) -> bool:
        return await self._is_answered("/livez")

    async def is_ready(self) -> bool:
        return await self._is_answered("/readyz")

    async def _is_answered(self, path: str) -> bool:
        async with httpx.AsyncClient(trust_env=False) as client:
            try:
                answer = await client.get(f"http://127.0.0.1:{self.port}{path}", timeout=5)
            except httpx.HTTPError:
                return False
        return answer.is_success
