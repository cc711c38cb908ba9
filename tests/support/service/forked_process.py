"""Run our programs as copies of one process that has imported them, so they start at once.

To import everything takes a processor longer than anything that such a process then does. Who tries
hundreds of ends of processes has no time for it.
"""

import contextlib
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from chatlane_servers.child_guard import die_with_parent
from chatlane_servers.processes import ServerProcess

CONTEXT: Final = multiprocessing.get_context("forkserver")
# What routers and workers import, where they do so only when they run.
_PRELOADED: Final = (
    "__main__",
    "chatlane.app.lifecycle",
    "chatlane.cli.commands",
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
        preload(arguments[2:] if arguments[0] == "-m" else ())
        process = CONTEXT.Process(
            target=_become, args=(list(arguments), str(log_path), dict(environment))
        )
        # Who started it may look before it has come so far.
        log_path.touch()
        process.start()
        self._process = _Handle(process)


def preload(arguments: Sequence[str]) -> None:
    """Choose what the process imports that all are copies of; the first call decides.

    Args:
        arguments: Of the command `chatlane`, if it is one.
    """
    modules = list(_PRELOADED)
    if arguments[:1] == ["adapter"]:
        # Its library takes seconds.
        modules.append(f"chatlane_adapters.{arguments[1]}.adapter")
    CONTEXT.set_forkserver_preload([*modules, "tests.support.service.settled_memory"])


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
    os.chdir("/")
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    become(arguments, environment)


def become(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Run a program in this process, in a session of its own.

    Args:
        arguments: As for the Python interpreter: `-m MODULE ...` or `FILE ...`.
        environment: All of it.
    """
    die_with_parent(os.getppid(), signal.SIGKILL)
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
