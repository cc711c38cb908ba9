"""The command line: `chatlane --help`."""

import os
import signal
import sys

__all__ = ["main"]

# Services that a supervisor stops with SIGTERM and expects to end with 0.
_SERVICES = frozenset({"router", "echo-worker"})


def main() -> None:
    """Run the command line and exit."""
    if _SERVICES.intersection(sys.argv[1:2]):
        exit_on_signals()
    # Imported here: it takes up to a second, in which a signal may come.
    from chatlane.cli.commands import app

    app()


def exit_on_signals() -> None:
    """Let SIGTERM and SIGINT end the process with 0 until the event loop handles them.

    Without this a service that is stopped while it imports its modules ends as if it was killed.
    It has nothing open by then, so it exits at once: an exception could be lost in an import.
    """
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: os._exit(0))
