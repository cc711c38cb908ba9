"""Run server processes that end with this process."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from chatlane.errors import ChatlaneError

_CHILD_GUARD: Final = Path(__file__).with_name("child_guard.py")
_POLL: Final = timedelta(milliseconds=10)
_LOG_TAIL_BYTES: Final = 4096


class ServerStartError(ChatlaneError):
    """An embedded server did not start.

    Attributes:
        server: Name of the server.
        log_tail: The last lines of its log.
    """

    def __init__(self, server: str, reason: str, log_tail: str = "") -> None:
        self.server = server
        self.log_tail = log_tail
        super().__init__(f"{server} did not start: {reason}\n{log_tail}".rstrip())


@dataclass(frozen=True, slots=True)
class Identity:
    """The user a server runs as."""

    name: str
    uid: int
    gid: int


class _Handle(Protocol):
    """The part of `subprocess.Popen` that this module uses."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class ServerProcess:
    """One run of a server program.

    The kernel ends it when the *thread* that started it ends, so start servers from a thread that
    stays alive: the thread of the event loop.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        log_path: Path,
        identity: Identity | None,
        parent_death_signal: signal.Signals,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the program at once; its output goes to the end of `log_path`."""
        user = identity or Identity("", -1, -1)
        launch = [sys.executable, "-I", "-S", str(_CHILD_GUARD), str(os.getpid())]
        launch += [str(int(parent_death_signal)), str(user.uid), str(user.gid)]
        with log_path.open("ab") as log:
            self._process: _Handle = subprocess.Popen(
                [*launch, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id, first of the child guard, then of the program it becomes."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """The process has not ended yet."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal, or None while it runs."""
        return self._process.poll()

    def send(self, signal_number: signal.Signals) -> None:
        """Send a signal; do nothing if the process has ended."""
        self._process.send_signal(signal_number)

    async def kill(self) -> None:
        """Send SIGKILL to the process and its children together, as the loss of a machine would."""
        children = _children_of(self.pid) if self.is_running else []
        self._process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        await self.wait(timedelta(seconds=10))

    async def stop(self, signal_number: signal.Signals, patience: timedelta) -> None:
        """Ask the process to stop, and kill it after `patience`."""
        if not self.is_running:
            return
        self.send(signal_number)
        self.send(signal.SIGCONT)
        try:
            await self.wait(patience)
        except TimeoutError:
            await self.kill()

    async def wait(self, timeout: timedelta) -> int:  # noqa: ASYNC109 # a deadline per call
        """Return the exit code.

        Raises:
            TimeoutError: It is still running.
        """
        async with asyncio.timeout(timeout.total_seconds()):
            while (code := self._process.poll()) is None:  # noqa: ASYNC110 # a process sends no event
                await asyncio.sleep(_POLL.total_seconds())
        return code


def _children_of(pid: int) -> list[int]:
    """Return the direct children of a process; none if the kernel does not list them."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(child) for child in text.split()]


def log_tail(path: Path) -> str:
    """Return the end of a server's log, for an error message."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
