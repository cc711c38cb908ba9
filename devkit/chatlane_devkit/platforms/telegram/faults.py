"""Faults on demand: refused calls, flood waits, answers that get lost."""

import asyncio
from dataclasses import dataclass, field
from fnmatch import fnmatch
from math import ceil
from time import monotonic

from chatlane_devkit.platforms.telegram.wire import RefusalError

_BAD_GATEWAY = "Bad Gateway"
_LOOK_AGAIN = 0.02


@dataclass(slots=True)
class _Planned:
    method: str
    chat_id: int | None
    times: int
    refusal: RefusalError | None = None

    def meets(self, method: str, chat_id: int | None) -> bool:
        """Return whether a call is meant, and count it."""
        is_met = (
            self.times > 0
            and fnmatch(method, self.method.lower())
            and self.chat_id in {None, chat_id}
        )
        self.times -= is_met
        return is_met


@dataclass(slots=True)
class Faults:
    """The faults from now on. Methods are named as in the Bot API, `*` stands for any letters.

    Attributes:
        is_revoked: Whether the token is not valid any more.
        answers: Set while calls are answered; they take effect before.
        unanswered: Chats whose calls take effect and are not answered meanwhile.
    """

    is_revoked: bool = False
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    unanswered: set[int | None] = field(default_factory=set)
    _limits: dict[int | None, float] = field(default_factory=dict)
    _refused: list[_Planned] = field(default_factory=list)
    _lost: list[_Planned] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers.set()

    def limit(self, seconds: float, *, chat_id: int | None = None) -> None:
        """Refuse what is sent to a chat, or to all, for so long, with 429 and `retry_after`."""
        self._limits[chat_id] = monotonic() + seconds

    def refuse(
        self,
        method: str,
        code: int = 502,
        description: str = _BAD_GATEWAY,
        *,
        times: int = 1,
        chat_id: int | None = None,
    ) -> None:
        """Refuse the next calls of a method."""
        refusal = RefusalError(code, description)
        self._refused.append(_Planned(method, chat_id, times, refusal))

    def lose_answers(
        self, method: str = "*", *, times: int = 1, chat_id: int | None = None
    ) -> None:
        """Let the next calls of a method take effect, and cut their connections."""
        self._lost.append(_Planned(method, chat_id, times))

    def check(self, method: str, chat_id: int | None) -> None:
        """Raise what a call meets.

        Raises:
            RefusalError: It is refused.
        """
        if self.is_revoked:
            raise RefusalError(401, "Unauthorized")
        for planned in self._refused:
            if planned.refusal is not None and planned.meets(method, chat_id):
                raise planned.refusal
        if chat_id is None:
            return
        until = max(self._limits.get(None, 0.0), self._limits.get(chat_id, 0.0))
        if (wait := until - monotonic()) > 0:
            seconds = max(1, ceil(wait))
            raise RefusalError(
                429, f"Too Many Requests: retry after {seconds}", retry_after=seconds
            )

    async def until_answered(self, chat_id: int | None) -> None:
        """Wait while calls for a chat are not answered."""
        await self.answers.wait()
        while chat_id in self.unanswered:  # noqa: ASYNC110 - a test ends it
            await asyncio.sleep(_LOOK_AGAIN)

    def loses_answer(self, method: str, chat_id: int | None) -> bool:
        """Return whether the answer to a call that took effect gets lost."""
        return any(planned.meets(method, chat_id) for planned in self._lost)
