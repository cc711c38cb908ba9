"""Measure how long all waiting users went without an answer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

# Seconds. A shorter gap is the thinking time of an agent.
_SHORTEST: Final = 0.25


@dataclass(frozen=True, slots=True)
class Gap:
    """A period in which a user waited and no answer arrived; monotonic times."""

    began_at: float
    ended_at: float

    @property
    def seconds(self) -> float:
        """Length of the gap."""
        return self.ended_at - self.began_at


@dataclass(slots=True)
class AnswerGaps:
    """Records the waiting users, and every gap between two answers while a user waits.

    Attributes:
        gaps: In their order.
    """

    clock: Callable[[], float] = monotonic
    gaps: list[Gap] = field(default_factory=list)
    _waiting: int = 0
    _since: float = 0.0

    def begin(self) -> None:
        """Record a message that needs an answer."""
        if not self._waiting:
            self._since = self.clock()
        self._waiting += 1

    def end(self, count: int) -> None:
        """Record answers to this many messages."""
        if not count:
            return
        now = self.clock()
        if self._waiting and now - self._since >= _SHORTEST:
            self.gaps.append(Gap(self._since, now))
        self._waiting = max(0, self._waiting - count)
        self._since = now

    def longest(self, began_at: float = float("-inf"), ended_at: float = float("inf")) -> Gap:
        """Return the longest gap that overlaps a span, or one of zero length."""
        touching = (gap for gap in self.gaps if gap.ended_at > began_at and gap.began_at < ended_at)
        return max(touching, key=lambda gap: gap.seconds, default=Gap(0.0, 0.0))
