"""Programs of ours as copies of one process that has imported them: they start at once.

To import everything takes a processor longer than anything that such a process then does. Who tries
hundreds of ends of processes has no time for it.
"""

import contextlib
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from chatlane_servers.child_guard import die_with_parent
from chatlane_servers.processes import ServerProcess

_CONTEXT: Final = multiprocessing.get_context("forkserver")
# What routers and workers import, where they do so only when they run.
_PRELOADED: Final = (
    "__main__",
    "chatlane.app",
    "chatlane.cli.serve",
    "chatlane.cli.echo_worker",
    "faststream.nats",
    "chatlane_devkit.judge.event_log",
)


class ForkedProcess(ServerProcess):
    """One run of a program of ours.

    The kernel ends it when the process that it was copied from ends, as that does when we do.
    """

    def __init__(
        self, arguments: Sequence[str], *, log_path: Path, environment: Mapping[str, str]
    ) -> None:
        """Start the program at once; its output goes to the end of `log_path`.

        Args:
            arguments: As for the Python interpreter: `-m MODULE ...` or `FILE ...`.
            log_path: Where all output goes.
            environment: All of it.
        """
        _CONTEXT.set_forkserver_preload([*_PRELOADED, *_adapter_of(arguments)])
        process = _CONTEXT.Process(
            target=_become, args=(list(arguments), str(log_path), dict(environment))
        )
        # Who started it may look before it has come so far.
        log_path.touch()
        process.start()
        self._process = _Handle(process)


def _adapter_of(arguments: Sequence[str]) -> Iterator[str]:
    """Yield what the adapter of a platform imports: its library takes seconds."""
    if list(arguments[1:3]) == ["chatlane", "adapter"]:
        yield f"chatlane_adapters.{arguments[3]}.adapter"


class _Handle:
    """What of `subprocess.Popen` is asked for, of a process that is not our child."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, sig: int) -> None:
        # It is waited for by the process it was copied from, so its id may be free already.
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _become(arguments: list[str], log_path: str, environment: dict[str, str]) -> None:
    die_with_parent(os.getppid(), signal.SIGKILL)
    os.setsid()
    os.chdir("/")
    os.environ.clear()
    os.environ.update(environment)
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
