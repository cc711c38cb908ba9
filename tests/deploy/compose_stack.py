"""The service as `make up` runs it: images, compose and a project name of its own."""

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chatlane_servers.embedded import free_port

_ROOT: Final = Path(__file__).parents[2]
_DEPLOY: Final = _ROOT / "deploy"


async def ran(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a command in the root of the repository and return what it printed.

    Raises:
        AssertionError: It failed; with its last words.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=_ROOT,
        env={**os.environ, **(environment or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    text = output.decode(errors="replace")
    if process.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit {process.returncode}\n{text[-4000:]}")
    return text


async def inspected(name: str) -> dict[str, Any]:
    """Return what the engine knows about an image or a container."""
    (found,) = json.loads(await ran("docker", "inspect", name))
    return dict(found)


@dataclass(frozen=True, slots=True)
class Stack:
    """A running `deploy/compose.yaml`."""

    project: str = field(default_factory=lambda: f"chatlane-test-{secrets.token_hex(4)}")
    nats_port: int = field(default_factory=free_port)
    postgres_port: int = field(default_factory=free_port)
    router_ports: tuple[int, int] = field(default_factory=lambda: (free_port(), free_port()))

    @property
    def nats_url(self) -> str:
        return f"nats://127.0.0.1:{self.nats_port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What `make up` reads instead of its defaults."""
        return {
            "COMPOSE_PROJECT_NAME": self.project,
            "CHATLANE_NATS_PORT": str(self.nats_port),
            "CHATLANE_POSTGRES_PORT": str(self.postgres_port),
            "CHATLANE_ROUTER_1_PORT": str(self.router_ports[0]),
            "CHATLANE_ROUTER_2_PORT": str(self.router_ports[1]),
        }

    async def container(self, service: str) -> str:
        """Return the id of the one container of a service."""
        label = "label=com.docker.compose"
        found = await ran(
            *("docker", "ps", "--all", "--quiet"),
            *("--filter", f"{label}.project={self.project}"),
            *("--filter", f"{label}.service={service}"),
        )
        (its_id,) = found.split()
        return its_id

    async def health(self, service: str) -> str:
        """Return what the health check of a service says."""
        found = await inspected(await self.container(service))
        return str(found["State"]["Health"]["Status"])

    async def leftovers(self) -> list[str]:
        """Return containers, volumes and networks of this project that are there."""
        label = f"label=com.docker.compose.project={self.project}"
        kinds = (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
        listed = [await ran("docker", *kind, "--quiet", "--filter", label) for kind in kinds]
        return [its_id for output in listed for its_id in output.split()]


@contextlib.asynccontextmanager
async def open_stack() -> AsyncIterator[Stack]:
    """Bring it up, wait until its routers are ready, and take everything away at the end."""
    stack = Stack()
    try:
        await ran("make", "up", environment=stack.environment)
        yield stack
    finally:
        await ran("make", "down", environment=stack.environment)
    assert await stack.leftovers() == []
