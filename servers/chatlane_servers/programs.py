"""Run our own programs as processes with readable names: router 1, worker 2, ..."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from chatlane_servers.processes import ServerProcess, ServerStartError, log_tail

STOP_PATIENCE: Final = timedelta(seconds=15)
_LOOK_AGAIN: Final = timedelta(milliseconds=100)


class Program:
    """A program that can be started, killed and started again under the same name.

    It ends with the process that started it, in every case.

    Attributes:
        log_path: All output of all its runs.
    """

    def __init__(
        self,
        name: str,
        arguments: list[str],
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a program.

        Args:
            name: Shown to users.
            arguments: Arguments for the Python interpreter.
            directory: Directory of its log.
            environment: Added to the environment of this process, without chatlane's variables.
        """
        self.name = name
        self.log_path = directory / f"{name.replace(' ', '-')}.log"
        self._arguments = [sys.executable, *arguments]
        self._environment = {**_neutral_environment(), **(environment or {})}
        self._process: ServerProcess | None = None

    @property
    def is_running(self) -> bool:
        """The process is alive."""
        return self._process is not None and self._process.is_running

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process and self._process.is_running else None

    def start(self) -> None:
        """Start the process; do nothing if it is running."""
        if not self.is_running:
            self._process = ServerProcess(
                self._arguments,
                log_path=self.log_path,
                identity=None,
                parent_death_signal=signal.SIGKILL,
                environment=self._environment,
            )

    def require_running(self) -> None:
        """Fail if the process ended by itself.

        Raises:
            ServerStartError: With the end of its log.
        """
        if self._process and (code := self._process.exit_code) is not None:
            raise self.failure(f"exit code {code}")

    def failure(self, reason: str) -> ServerStartError:
        """Return an error that shows the end of the log."""
        return ServerStartError(self.name, reason, log_tail(self.log_path))

    def require_success(self) -> None:
        """Fail if the process ended with an error.

        Raises:
            ServerStartError: With the end of its log.
        """
        if self._process and self._process.exit_code != 0:
            self.require_running()

    async def kill(self) -> None:
        """End the process with SIGKILL."""
        if self._process:
            await self._process.kill()

    async def stop(self) -> None:
        """Ask the process to stop; kill it if it does not."""
        if self._process:
            await self._process.stop(signal.SIGTERM, STOP_PATIENCE)


class LogTail:
    """Reads new lines of a log; the file need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""

    def new_lines(self) -> list[str]:
        """Return the lines that were completed since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            if log.seek(0, os.SEEK_END) < self._position:
                # It was cut off.
                self._position = 0
            log.seek(self._position)
            *lines, self._rest = (self._rest + log.read()).split(b"\n")
            self._position = log.tell()
        return [line.decode(errors="replace") for line in lines]


async def follow(path: Path, tell: Callable[[str], None]) -> None:
    """Pass on each new line of a log, until cancelled."""
    tail = LogTail(path)
    tail.new_lines()
    while True:
        for line in tail.new_lines():
            tell(line)
        await asyncio.sleep(_LOOK_AGAIN.total_seconds())


def cancel_on_stop_signals() -> None:
    """Let SIGTERM and SIGHUP cancel this task as Ctrl-C does, so that all cleanup runs."""
    task = asyncio.current_task()
    if task is not None:
        for signal_number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(signal_number, task.cancel)


def _neutral_environment() -> dict[str, str]:
    """Return the environment without the variables of chatlane."""
    return {key: value for key, value in os.environ.items() if not key.startswith("CHATLANE_")}
