"""Our own programs as processes with names that people can follow: router 1, worker 2, ..."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from chatlane_devkit.servers.processes import ServerProcess, ServerStartError, log_tail

STOP_PATIENCE: Final = timedelta(seconds=15)
_LOOK_AGAIN: Final = timedelta(milliseconds=100)


class Program:
    """A program that can be started, killed and started again under the same name.

    It ends with the process that started it, however that ends.

    Attributes:
        log_path: Everything that it wrote, over all its lives.
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
            name: Shown to people.
            arguments: For the Python interpreter.
            directory: For its log.
            environment: On top of ours, from which our own settings are taken out.
        """
        self.name = name
        self.log_path = directory / f"{name.replace(' ', '-')}.log"
        self._arguments = [sys.executable, *arguments]
        self._environment = {**_neutral_environment(), **(environment or {})}
        self._process: ServerProcess | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.is_running

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process and self._process.is_running else None

    def start(self) -> None:
        """Start the process; does nothing when it runs."""
        if not self.is_running:
            self._process = ServerProcess(
                self._arguments,
                log_path=self.log_path,
                identity=None,
                parent_death_signal=signal.SIGKILL,
                environment=self._environment,
            )

    def require_running(self) -> None:
        """Fail when the process ended by itself.

        Raises:
            ServerStartError: With the end of its log.
        """
        if self._process and (code := self._process.exit_code) is not None:
            raise self.failure(f"exit code {code}")

    def failure(self, reason: str) -> ServerStartError:
        """Return an error that shows the end of the log."""
        return ServerStartError(self.name, reason, log_tail(self.log_path))

    def require_success(self) -> None:
        """Fail when the process did not end well.

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
        """Ask the process to end in good order; kill it when it does not."""
        if self._process:
            await self._process.stop(signal.SIGTERM, STOP_PATIENCE)


class LogTail:
    """Reads what is added to a log; the file need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""

    def new_lines(self) -> list[str]:
        """Return the lines that were finished since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            log.seek(self._position)
            *lines, self._rest = (self._rest + log.read()).split(b"\n")
            self._position = log.tell()
        return [line.decode(errors="replace") for line in lines]


async def follow(path: Path, tell: Callable[[str], None]) -> None:
    """Tell each line that is added to a log from now on, until cancelled."""
    tail = LogTail(path)
    tail.new_lines()
    while True:
        for line in tail.new_lines():
            tell(line)
        await asyncio.sleep(_LOOK_AGAIN.total_seconds())


def cancel_on_stop_signals() -> None:
    """Let SIGTERM and SIGHUP cancel this task as Ctrl-C does, so that everything is tidied up."""
    task = asyncio.current_task()
    if task is not None:
        for signal_number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(signal_number, task.cancel)


def _neutral_environment() -> dict[str, str]:
    """Return the environment without the variables of chatlane."""
    return {key: value for key, value in os.environ.items() if not key.startswith("CHATLANE_")}
