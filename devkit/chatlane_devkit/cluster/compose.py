"""Run `docker compose` and `docker`, and remove everything that a project created."""

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from chatlane.errors import ChatlaneError
from chatlane_servers.conditions import until

_PROJECT_LABEL: Final = "com.docker.compose.project"
_SERVICE_LABEL: Final = "com.docker.compose.service"
# Default time limit of a command.
_PATIENCE: Final = timedelta(minutes=2)
_LAST_WORDS: Final = 2000


class EngineError(ChatlaneError):
    """A command of the container engine failed or timed out; with the end of its output."""


async def ran(
    *command: str,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    stdin: str = "",
    patience: timedelta = _PATIENCE,
) -> str:
    """Run a command and return its standard output.

    Raises:
        EngineError: It failed, did not end in time, or does not exist.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise EngineError(f"{command[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(patience.total_seconds()):
            output, errors = await process.communicate(stdin.encode())
    except TimeoutError as error:
        raise EngineError(f"{' '.join(command)}: took longer than {patience}") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        words = (output + errors).decode(errors="replace")[-_LAST_WORDS:]
        raise EngineError(f"{' '.join(command)}: exit {process.returncode}\n{words}".rstrip())
    return output.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Container:
    """A container by its id."""

    id: str

    async def state(self) -> dict[str, Any]:
        """Return the state that the engine reports."""
        (found,) = json.loads(await ran("docker", "inspect", self.id))
        return dict(found)

    async def executed(self, *command: str, stdin: str = "") -> str:
        """Run a command in the container and return its output."""
        return await ran("docker", "exec", "--interactive", self.id, *command, stdin=stdin)

    async def kill(self) -> None:
        """Kill the container with SIGKILL, as the loss of a machine would."""
        await ran("docker", "kill", self.id)

    async def start(self) -> None:
        """Start the container again, with its data."""
        await ran("docker", "start", self.id)

    async def until_healthy(self, patience: timedelta) -> float:
        """Wait until its health check succeeds; return the seconds that passed.

        Raises:
            EngineError: It ended, or was not healthy in time; with the end of its log.
        """

        async def is_healthy() -> bool:
            state = (await self.state())["State"]
            if not state["Running"]:
                raise EngineError(f"{self.id} has ended\n{await self.log()}")
            return bool(state["Health"]["Status"] == "healthy")

        try:
            return await until(is_healthy, patience)
        except TimeoutError as error:
            raise EngineError(f"{self.id} is not healthy\n{await self.log()}") from error

    async def log(self, lines: int = 30) -> str:
        """Return the end of its output."""
        return await ran("sh", "-c", f"docker logs --tail {lines} {self.id} 2>&1")


class Compose:
    """One Compose project.

    Attributes:
        project: Its name, which everything it creates carries.
        environment: Variables of its file; may be changed between two commands.
    """

    def __init__(self, file: Path, project: str, environment: Mapping[str, str]) -> None:
        self.project = project
        self.environment = dict(environment)
        self._file = file
        self._program: tuple[str, ...] = ()

    async def run(self, *arguments: str, patience: timedelta = _PATIENCE) -> str:
        """Run a Compose command and return its output.

        Raises:
            EngineError: It failed, or Compose is missing.
        """
        if not self._program:
            self._program = await _compose_program()
        names = ("--project-name", self.project, "--file", str(self._file))
        return await ran(
            *self._program, *names, *arguments, environment=self.environment, patience=patience
        )

    async def up(self, *services: str) -> None:
        """Start services, and recreate only those whose description has changed."""
        await self.run("up", "--detach", "--no-deps", "--no-build", *services)

    async def job(self, service: str) -> None:
        """Run a service until it exits.

        Raises:
            EngineError: It failed.
        """
        await self.run("run", "--rm", "--no-deps", "-T", service)

    async def container(self, service: str) -> Container:
        """Return the only container of a service.

        Raises:
            EngineError: There is none, or more than one.
        """
        found = await self._listed("ps", "--all", f"{_SERVICE_LABEL}={service}")
        if len(found) != 1:
            raise EngineError(f"{service} has {len(found)} containers")
        return Container(found[0])

    async def leftovers(self) -> list[str]:
        """Return the existing containers, volumes and networks of the project."""
        listed = [await self._listed(*kind) for kind in (("ps", "--all"), *_KEPT_KINDS)]
        return [its_id for found in listed for its_id in found]

    async def remove(self) -> None:
        """Remove everything the project created, in any state."""
        if found := await self._listed("ps", "--all"):
            await ran("docker", "rm", "--force", "--volumes", *found)
        for kind, _ in _KEPT_KINDS:
            if found := await self._listed(kind, "ls"):
                await ran("docker", kind, "rm", *found)

    async def _listed(self, *command: str) -> list[str]:
        *kind, label = command if "=" in command[-1] else (*command, "")
        labels = [f"{_PROJECT_LABEL}={self.project}", *([label] if label else [])]
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        return (await ran("docker", *kind, "--quiet", *filters)).split()


_KEPT_KINDS: Final[Sequence[tuple[str, str]]] = (("network", "ls"), ("volume", "ls"))


async def _compose_program() -> tuple[str, ...]:
    """Return the Compose plugin, else the older `docker-compose`.

    Raises:
        EngineError: There is neither.
    """
    try:
        await ran("docker", "compose", "version")
    except EngineError:
        if shutil.which("docker-compose") is None:
            raise EngineError("there is neither `docker compose` nor docker-compose") from None
        return ("docker-compose",)
    return ("docker", "compose")
