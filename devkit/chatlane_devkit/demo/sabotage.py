"""Break one promise on purpose, between the service and a chat, so that the verdict must find it."""

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from chatlane_devkit.judge.history import Received

# A session that got as many answers is likely to get more, which show a gap.
_FROM_ANSWER: Final = 3


class Sabotage(StrEnum):
    """The fault that one answer suffers on its way to its chat."""

    DROP = "drop"
    REPEAT = "repeat"
    SWAP = "swap"


class Saboteur:
    """Drops or repeats one answer, or swaps it with the next one of its session.

    Args:
        kind: What to break.
        tell: Prints a line.
    """

    def __init__(self, kind: Sabotage, tell: Callable[[str], None]) -> None:
        self._kind = kind
        self._tell = tell
        self._seen: Counter[str] = Counter()
        self._held: dict[str, Received] = {}
        self._is_done = False

    def deliver(self, answer: Received) -> list[Received]:
        """Return the messages that the chat receives in place of an answer."""
        if self._is_done:
            return [answer]
        if self._kind is Sabotage.SWAP:
            return self._swap(answer)
        self._seen[answer.session_id] += 1
        if self._seen[answer.session_id] < _FROM_ANSWER or answer.kind != "answer":
            return [answer]
        self._is_done = True
        if self._kind is Sabotage.DROP:
            self._tell(f"sabotage: dropped answer {answer.out_seq} of a chat")
            return []
        self._tell(f"sabotage: repeated answer {answer.out_seq} of a chat")
        return [answer, answer]

    def _swap(self, answer: Received) -> list[Received]:
        """Hold back the answer of each session until one session gets another answer."""
        earlier = self._held.pop(answer.session_id, None)
        if earlier is None:
            self._held[answer.session_id] = answer
            return []
        self._is_done = True
        self._tell(f"sabotage: swapped answers {earlier.out_seq} and {answer.out_seq} of a chat")
        return [*self._held.values(), answer, earlier]
