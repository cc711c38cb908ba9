"""Keep the parts of a bot running: start again what ends, with growing pauses."""

import asyncio
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final

from typing_extensions import override

from chatlane_servers.embedded import EmbeddedServer
from chatlane_servers.processes import ServerStartError
from chatlane_servers.programs import LogTail, Program

_LOOK_EVERY: Final = timedelta(milliseconds=200)
_START_PATIENCE: Final = timedelta(seconds=60)
_TAIL: Final = 2000
_FIRST_PAUSE: Final = timedelta(milliseconds=200)
_LONGEST_PAUSE: Final = timedelta(seconds=30)
# A part that ran for so long is not in a loop of failures.
_STEADY_AFTER: Final = timedelta(seconds=60)
_TRIM_EVERY: Final = timedelta(minutes=1)
_MAX_LOG_BYTES: Final = 20 * 1024 * 1024

Tell = Callable[[str], None]


class Part(ABC):
    """One process of a bot."""

    name: str
    log_path: Path

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Process id while it runs."""

    @abstractmethod
    async def start(self) -> None:
        """Start the process.

        Raises:
            ServerStartError: It did not start.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Stop the process in order."""


class ProgramPart(Part):
    """A program of chatlane."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.name = program.name
        self.log_path = program.log_path
        self._logged_before = 0

    @property
    @override
    def pid(self) -> int | None:
        return self._program.pid

    @override
    async def start(self) -> None:
        self._logged_before = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._program.start()

    async def until_logged(self, text: str) -> None:
        """Wait until the log of this run has a text.

        Raises:
            ServerStartError: The program ended before; with what it logged.
            TimeoutError: It did neither in a minute.
        """
        async with asyncio.timeout(_START_PATIENCE.total_seconds()):
            while text not in self._logged():
                if self.pid is None:
                    raise ServerStartError(self.name, "it has ended", self._logged()[-_TAIL:])
                await asyncio.sleep(_LOOK_EVERY.total_seconds())

    def _logged(self) -> str:
        with self.log_path.open("rb") as log:
            log.seek(self._logged_before)
            return log.read().decode(errors="replace")

    @override
    async def stop(self) -> None:
        await self._program.stop()


class ServerPart(Part):
    """NATS or Postgres."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self.name = server.name
        self.log_path = server.log_path

    @property
    @override
    def pid(self) -> int | None:
        return self._server.pid

    @override
    async def start(self) -> None:
        await self._server.start()

    @override
    async def stop(self) -> None:
        await self._server.stop()


class Supervisor:
    """Keeps parts running until it is cancelled."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    async def keep(self, parts: list[Part]) -> None:
        """Start again what ends, and report warnings of the logs."""
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                _ = tasks.create_task(self._keep(part))
                _ = tasks.create_task(self._report(part))
            _ = tasks.create_task(_trim_logs([part.log_path for part in parts]))

    async def _keep(self, part: Part) -> None:
        pause, started_at = _FIRST_PAUSE, monotonic()
        while True:
            while part.pid is not None:  # noqa: ASYNC110 - a process sends no event
                await asyncio.sleep(_LOOK_EVERY.total_seconds())
            if monotonic() - started_at > _STEADY_AFTER.total_seconds():
                pause = _FIRST_PAUSE
            self._tell(
                f"{part.name} has ended and starts again in {pause.total_seconds():g} s; "
                f"its log is {part.log_path}"
            )
            await asyncio.sleep(pause.total_seconds())
            pause, started_at = min(2 * pause, _LONGEST_PAUSE), monotonic()
            try:
                await part.start()
            except ServerStartError as exc:
                self._tell(str(exc))

    async def _report(self, part: Part) -> None:
        tail = LogTail(part.log_path)
        tail.new_lines()
        while True:
            await asyncio.sleep(_LOOK_EVERY.total_seconds())
            for line in tail.new_lines():
                if (warning := warning_of(line)) is not None:
                    self._tell(f"{part.name}: {warning}")


def warning_of(line: str) -> str | None:
    """Return a line of a log for people if it is a warning or an error, else None."""
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if record.get("level") not in {"warning", "error", "critical"}:
        return None
    shown = {"error", "reason", "platform", "account"}
    facts = " ".join(f"{key}={value}" for key, value in record.items() if key in shown)
    return f"{record.get('event')} {facts}".strip()


async def _trim_logs(paths: list[Path]) -> None:
    while True:
        await asyncio.sleep(_TRIM_EVERY.total_seconds())
        for path in paths:
            trim_log(path)


def trim_log(path: Path, max_bytes: int = _MAX_LOG_BYTES) -> None:
    """Move the content of a large log to a second file; its writers append, so they may go on."""
    if path.exists() and path.stat().st_size > max_bytes:
        shutil.copyfile(path, path.with_suffix(".old.log"))
        with path.open("r+b") as log:
            log.truncate(0)
