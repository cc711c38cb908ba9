"""An event loop whose time passes when nobody has anything to do, and only then.

For code whose ports are all in memory: hours of leases and pauses take as long as the work in
between, and the same run happens again the same way.
"""

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

from typing_extensions import override


class StandstillError(Exception):
    """Nobody has anything to do, and nobody waits for a time: this would never end."""


class _Instant(selectors.SelectSelector):
    """Tells the loop at once that nothing came from outside."""

    loop: "VirtualTimeLoop"

    @override
    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found:
            if timeout is None:
                raise StandstillError
            self.loop.pass_time(timeout)
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that starts at 0 and jumps to the next thing that is due."""

    def __init__(self) -> None:
        selector = _Instant()
        selector.loop = self
        self._virtual_now = 0.0
        super().__init__(selector)

    @override
    def time(self) -> float:
        return self._virtual_now

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self._virtual_now += max(0.0, seconds)


def report(loop: asyncio.AbstractEventLoop) -> list[Mapping[str, Any]]:
    """Collect what the loop is told about errors that nobody caught, instead of logging it."""
    told: list[Mapping[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    return told
