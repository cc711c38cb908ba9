"""A judged program as a process."""

import os
import shlex
import signal
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from chatlane_servers.processes import ServerProcess, log_tail


class JudgedProcess:
    """A program that can be started, killed and started again.

    It ends with the process that started it.

    Args:
        command: A command line for the shell; it runs in the present directory.
        environment: Added to the environment of this process.
        log_path: All output of all its runs.
    """

    def __init__(self, command: str, environment: Mapping[str, str], log_path: Path) -> None:
        self._command = f"cd {shlex.quote(str(Path.cwd()))} && exec {command}"
        inherited = {it: os.environ[it] for it in os.environ if not it.startswith("CHATLANE_")}
        self._environment = inherited | dict(environment)
        self._log_path = log_path
        self._process: ServerProcess | None = None

    @property
    def is_running(self) -> bool:
        """Return whether the process is alive."""
        return self._process is not None and self._process.is_running

    def start(self) -> None:
        """Start the process; do nothing if it is running."""
        if not self.is_running:
            self._process = ServerProcess(
                ["/bin/sh", "-c", self._command],
                log_path=self._log_path,
                identity=None,
                parent_death_signal=signal.SIGKILL,
                environment=self._environment,
            )

    def freeze(self) -> None:
        """Stop the process where it is, as a machine that hangs does."""
        if self._process is not None:
            self._process.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        if self._process is not None:
            self._process.send(signal.SIGCONT)

    async def kill(self) -> None:
        """End the process with SIGKILL."""
        if self._process is not None:
            await self._process.kill()

    async def stop(self, patience: timedelta) -> bool:
        """Send SIGTERM, and return whether the process ended in time; kill it if not."""
        if self._process is None or not self._process.is_running:
            return True
        self._process.send(signal.SIGTERM)
        try:
            await self._process.wait(patience)
        except TimeoutError:
            await self._process.kill()
            return False
        return True

    def last_words(self) -> str:
        """Return the end of its output."""
        return log_tail(self._log_path)
