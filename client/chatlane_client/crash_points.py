"""Named places in the code at which a process can be told to end or freeze itself, to try the recovery.

Nothing is armed unless a program arms it: a worker built on this package never ends so by itself.
"""

import logging
import os
import signal
from enum import StrEnum

_log = logging.getLogger("chatlane_client")


class WorkerPoint(StrEnum):
    """The steps of a turn worker after which a death leaves different things behind."""

    NOTIFIED = "worker.notified"
    """A notification was fetched; nobody was asked for its turn."""
    CLAIMED = "worker.claimed"
    """The claim is answered, its notification is not acknowledged."""
    ACKNOWLEDGED = "worker.acknowledged"
    """The notification is gone; nothing but the lease tells of the turn."""
    ANSWERED = "worker.answered"
    """The handler has answered, and nobody has heard it."""
    PUBLISHED = "worker.published"
    """The result is stored; the worker has not gone on."""


class _Fuse:
    """What ends or freezes the process: so many more passes of one point."""

    def __init__(self, point: str, passes: int, signal_number: signal.Signals) -> None:
        self.point = point
        self.passes_left = passes
        self.signal_number = signal_number


_fuse: _Fuse | None = None


def arm(point: str, nth: int, signal_number: signal.Signals = signal.SIGKILL) -> None:
    """Send this process a signal as soon as it passes a point for the nth time.

    SIGKILL ends it there; SIGSTOP freezes it until somebody sends SIGCONT.
    """
    global _fuse  # noqa: PLW0603 - of the process, as its end is
    _fuse = _Fuse(point, nth, signal_number)


def reach(point: str) -> None:
    """Pass a point; it is the end of the process that was armed for it.

    A kill and no exit, so that nothing is tidied up: no handler, no `finally`, no flush.
    """
    if _fuse is None or _fuse.point != point:
        return
    _fuse.passes_left -= 1
    if _fuse.passes_left == 0:
        _log.critical("crash_point_reached", extra={"point": str(point)})
        os.kill(os.getpid(), _fuse.signal_number)
