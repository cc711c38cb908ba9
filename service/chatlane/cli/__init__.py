"""The command line: `chatlane --help`."""

import os
import signal
import sys

__all__ = ["main"]

# A supervisor stops these services with SIGTERM and expects exit code 0.
_SERVICES = frozenset({"router", "echo-worker"})


def main() -> None:
    """Run the command line and exit."""
    before = signal.getsignal(signal.SIGINT)
    if _SERVICES.intersection(sys.argv[1:2]):
        exit_on_signals()
    elif before is signal.default_int_handler:
        # 130 is what a shell reports after Ctrl-C. A process in the background ignores SIGINT.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    # These imports take up to a second, in which a signal may arrive.
    from chatlane.garbage import collect_rarely_from_the_start

    collect_rarely_from_the_start()
    from chatlane.cli.commands import app

    if not _SERVICES.intersection(sys.argv[1:2]):
        signal.signal(signal.SIGINT, before)
    app()


def exit_on_signals() -> None:
    """Let SIGTERM and SIGINT end the process with 0 until the event loop handles them.

    Without it, a service that a supervisor stops during its imports ends as if it was killed.
    Nothing is open by then, so the process exits at once: an import could swallow an exception.
    """
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: os._exit(0))
