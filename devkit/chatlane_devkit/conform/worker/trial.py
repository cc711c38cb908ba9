"""Give a check its people and the processes of the worker."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from time import monotonic
from typing import Final
from uuid import UUID

from typing_extensions import override

from chatlane_devkit.conform.check import FaultFoundError, Judged
from chatlane_devkit.conform.judged_process import JudgedProcess
from chatlane_devkit.conform.worker.people import People

STOPS_WITHIN: Final = timedelta(seconds=25)
_LOOK_AGAIN: Final = 0.03
_numbers: Final = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTrial(Judged):
    """A judged worker and what is around it.

    Attributes:
        worker: Its process, which runs when a check begins.
        second: Another process of the same agent, which does not run.
        lease: How long a turn is held without a renewal.
        patience: How long a check waits for something that should happen, in seconds.
    """

    people: People
    worker: JudgedProcess
    second: JudgedProcess
    lease: timedelta
    patience: float

    @property
    @override
    def lacks(self) -> Mapping[str, str]:
        return {}

    @override
    async def begin(self) -> None:
        self.worker.start()

    @override
    async def recover(self) -> None:
        for process in (self.worker, self.second):
            process.thaw()
            await process.kill()

    def new_token(self) -> str:
        """Return a word that appears in no other message."""
        return f"word{next(_numbers):05}"

    async def until(
        self, holds: Callable[[], object], problem: str, *, longer: float = 0.0
    ) -> None:
        """Wait for something that should happen.

        Args:
            holds: Whether it has happened.
            problem: What to say if it does not.
            longer: Seconds that the worker may take besides.

        Raises:
            FaultFoundError: It did not happen in time, or the worker ended.
        """
        end = monotonic() + self.patience + longer
        while not holds():
            if not (self.worker.is_running or self.second.is_running):
                words = self.worker.last_words().splitlines()[-3:]
                raise FaultFoundError("the worker ended by itself: " + " / ".join(words))
            if monotonic() > end:
                raise FaultFoundError(f"{problem} within {self.patience + longer:.0f} s")
            await asyncio.sleep(_LOOK_AGAIN)

    async def until_shown(self, chat: str, wanted: list[str], *, longer: float = 0.0) -> None:
        """Wait until the chat shows exactly these lines.

        Raises:
            FaultFoundError: It does not.
        """
        problem = f"the chat did not show {wanted}"
        try:
            await self.until(lambda: self.people.shown(chat) == wanted, problem, longer=longer)
        except FaultFoundError as error:
            raise FaultFoundError(f"{error}; it shows {self.people.shown(chat)}") from error

    async def ask(self, chat: str, text: str, answer: str, *, longer: float = 0.0) -> UUID:
        """Write a message, wait for its answer, and return its turn.

        Raises:
            FaultFoundError: The answer is another one, or none.
        """
        await self.people.write(chat, text)
        await self.until_said(chat, answer, longer=longer)
        return self.people.turns[chat]

    async def until_said(self, chat: str, answer: str, *, longer: float = 0.0) -> None:
        """Wait until the last line of a chat is this one.

        Raises:
            FaultFoundError: It is not.
        """
        problem = f"the chat did not show {answer!r}"
        try:
            await self.until(
                lambda: self.people.shown(chat)[-1:] == [answer], problem, longer=longer
            )
        except FaultFoundError as error:
            raise FaultFoundError(f"{error}; it shows {self.people.shown(chat)}") from error

    async def begun(self, chat: str, text: str) -> UUID:
        """Write a message, wait until a worker has its turn, and return the turn.

        Raises:
            FaultFoundError: No worker claimed it.
        """
        before = self.people.turns.get(chat)
        await self.people.write(chat, text)
        await self.until(
            lambda: self.people.turns.get(chat) != before, "no worker claimed the turn"
        )
        return self.people.turns[chat]

    def attempts(self, turn_id: UUID) -> list[int]:
        """Return the attempts at a turn that began, in order."""
        return [attempt for turn, attempt in self.people.started if turn == turn_id]
