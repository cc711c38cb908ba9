"""Give a check its platform, its agent, and the processes of the adapter."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from time import monotonic
from typing import Final

from typing_extensions import override

from chatlane_devkit.conform.agent import ConformAgent, Heard
from chatlane_devkit.conform.check import FaultFoundError, Judged
from chatlane_devkit.conform.judged_process import JudgedProcess
from chatlane_devkit.conform.nats_gate import NatsGate
from chatlane_devkit.conform.scenes.scene import ChatHandle, Scene, ThreadHandle

STOPS_WITHIN: Final = timedelta(seconds=6)
_LOOK_AGAIN: Final = 0.03
_HEARD: Final = "heard "
_numbers: Final = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(Judged):
    """A judged adapter and what is around it.

    Attributes:
        adapter: Its process, which runs when a check begins.
        second: Another process of the same account, which does not run.
        patience: How long a check waits for something that should happen, in seconds.
    """

    scene: Scene
    agent: ConformAgent
    gate: NatsGate
    adapter: JudgedProcess
    second: JudgedProcess
    patience: float

    @property
    @override
    def lacks(self) -> Mapping[str, str]:
        return {str(ability): reason for ability, reason in self.scene.lacks.items()}

    @override
    async def begin(self) -> None:
        self.gate.open()
        self.adapter.start()
        await self.until(lambda: self.scene.has_adapter, "the adapter did not connect")

    @override
    async def recover(self) -> None:
        await self.crash()

    def new_token(self) -> str:
        """Return a word that appears in no other message."""
        return f"word{next(_numbers):05}"

    def lines(self, chat: ChatHandle, thread: ThreadHandle = None) -> list[str]:
        """Return the inputs of the agent as its answers in the chat repeat them, in order."""
        shown = "\n".join(self.scene.shown(chat, thread)).splitlines()
        return [line.strip().removeprefix(_HEARD) for line in shown if line.strip()]

    async def until(self, holds: Callable[[], object], problem: str) -> None:
        """Wait for something that should happen.

        Raises:
            FaultFoundError: It did not happen in time, or the adapter ended.
        """
        end = monotonic() + self.patience
        while not holds():
            if not (self.adapter.is_running or self.second.is_running):
                words = self.adapter.last_words().splitlines()[-3:]
                raise FaultFoundError("the adapter ended by itself: " + " / ".join(words))
            if monotonic() > end:
                raise FaultFoundError(f"{problem} within {self.patience:.0f} s")
            await asyncio.sleep(_LOOK_AGAIN)

    async def until_shown(
        self, chat: ChatHandle, wanted: list[str], thread: ThreadHandle = None
    ) -> None:
        """Wait until the chat shows exactly these messages as heard, in order.

        Raises:
            FaultFoundError: It does not.
        """
        try:
            await self.until(
                lambda: self.lines(chat, thread) == wanted, "the chat did not show the answers"
            )
        except FaultFoundError as error:
            shown = self.lines(chat, thread)
            raise FaultFoundError(f"{error}: wanted {wanted}, shown {shown}") from error

    async def ask(self, chat: ChatHandle, text: str, thread: ThreadHandle = None) -> Heard:
        """Write a message, wait for its answer, and return what the agent was given with it.

        Raises:
            FaultFoundError: It was not answered.
        """
        await self.scene.write(chat, text, thread)
        await self.until(
            lambda: text in "\n".join(self.scene.shown(chat, thread)), f"{text!r} was not answered"
        )
        return self.agent.turns_of(text)[-1]

    async def crash(self) -> None:
        """Kill the adapter, drop what waits in its connections, and start it again."""
        await self.adapter.kill()
        self.gate.drop()
        self.gate.open()
        self.adapter.start()
