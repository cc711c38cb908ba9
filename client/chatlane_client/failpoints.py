"""Named steps of a turn worker at which a test kills or freezes the process.

A step does nothing until a program enables a failpoint. This package enables none.
"""

import logging
import os
import signal
from enum import StrEnum

_log = logging.getLogger("chatlane_client")


class WorkerPoint(StrEnum):
    """Steps of a turn worker. A crash after each leaves a different state."""

    NOTIFIED = "worker.notified"
    """The worker has fetched a notification and has not claimed its turn."""
    CLAIMED = "worker.claimed"
    """The worker has the turn and has not acknowledged the notification."""
    ACKNOWLEDGED = "worker.acknowledged"
    """The worker has acknowledged the notification. Only the lease protects the turn."""
    ANSWERED = "worker.answered"
    """The handler has returned, and the result is not published."""
    PUBLISHED = "worker.published"
    """The result is stored, and the worker has not continued."""


class _Failpoint:
    """The enabled failpoint, and how many passes are left until it fires."""

    def __init__(self, point: str, passes: int, signal_number: signal.Signals) -> None:
        self.point = point
        self.passes_left = passes
        self.signal_number = signal_number


_enabled: _Failpoint | None = None


def enable(point: str, nth: int, signal_number: signal.Signals = signal.SIGKILL) -> None:
    """Send this process a signal when it passes `point` for the nth time.

    SIGKILL ends the process there. SIGSTOP freezes it until it receives SIGCONT.
    """
    global _enabled  # noqa: PLW0603 - one per process, as the signal ends or freezes all of it
    _enabled = _Failpoint(point, nth, signal_number)


def hit(point: str) -> None:
    """Pass a point, and send the signal if a failpoint is enabled for this pass.

    SIGKILL instead of an exit, so that no handler, `finally` or flush runs.
    """
    if _enabled is None or _enabled.point != point:
        return
    _enabled.passes_left -= 1
    if _enabled.passes_left == 0:
        _log.critical("failpoint_hit", extra={"point": str(point)})
        os.kill(os.getpid(), _enabled.signal_number)
