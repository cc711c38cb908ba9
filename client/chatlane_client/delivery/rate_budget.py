"""Keep the messages of an account within the rates that its platform allows."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

# Chats whose time is over are forgotten once there are so many.
_MOST_CHATS: Final = 10_000


@dataclass(slots=True)
class RateBudget:
    """The rates of one account, for all its chats together and for each chat.

    One process delivers for an account, so the budget is kept in that process.

    Attributes:
        per_second: Messages of the account in a second; None for no limit.
        per_chat_per_second: Messages to one chat in a second; None for no limit.
    """

    per_second: float | None = None
    per_chat_per_second: float | None = None
    _free_at: float = 0.0
    _paused_until: float = 0.0
    _chats: dict[str, float] = field(default_factory=dict)

    def pause(self, seconds: float) -> None:
        """Send nothing for so long: the platform refuses the whole account."""
        self._paused_until = max(self._paused_until, monotonic() + seconds)

    async def wait(self, chat: str) -> None:
        """Return when the next message to a chat may be sent."""
        if self.per_second is None and self.per_chat_per_second is None:
            await self._wait_for_pause()
            return
        now = monotonic()
        at = max(now, self._free_at, self._chats.get(chat, 0.0))
        if self.per_second is not None:
            # Not `at`: a chat that has to wait takes no time from the others.
            self._free_at = max(now, self._free_at) + 1 / self.per_second
        if self.per_chat_per_second is not None:
            self._forget_old(now)
            self._chats[chat] = at + 1 / self.per_chat_per_second
        await asyncio.sleep(at - now)
        await self._wait_for_pause()

    async def _wait_for_pause(self) -> None:
        # The pause may be extended meanwhile.
        pause = self._paused_until - monotonic()
        while pause > 0:
            await asyncio.sleep(pause)
            pause = self._paused_until - monotonic()

    def _forget_old(self, now: float) -> None:
        if len(self._chats) >= _MOST_CHATS:
            self._chats = {chat: at for chat, at in self._chats.items() if at > now}
