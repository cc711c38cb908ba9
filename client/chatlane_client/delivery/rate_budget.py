"""Keep the messages of an account within the rates that its platform allows."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from chatlane_client.errors import RetryAfter
from chatlane_schemas import Source

# Chats whose time is over are forgotten once there are so many.
_MOST_CHATS: Final = 10_000


def chat_of(target: Source) -> str:
    """Return the id of the chat of an address, by which its rate is counted."""
    chat, sender = target.chat, target.sender
    return (chat.id if chat else None) or (sender.id if sender else None) or ""


@dataclass(slots=True)
class RateBudget:
    """The rates of one account, for all its chats together and for each chat.

    Only the process that delivers for an account sends, so the budget is kept in that process
    (ADR 0046). Messages and drafts share it.

    Attributes:
        per_second: Calls of the account in a second; None for no limit.
        per_chat_per_second: Calls for one chat in a second; None for no limit.
    """

    per_second: float | None = None
    per_chat_per_second: float | None = None
    _free_at: float = 0.0
    _paused_until: float = 0.0
    _chats: dict[str, float] = field(default_factory=dict)

    def pause(self, seconds: float, chat: str | None = None) -> None:
        """Send nothing for so long: the platform refuses a chat, or the whole account."""
        until = monotonic() + seconds
        if chat is None:
            self._paused_until = max(self._paused_until, until)
        else:
            self._chats[chat] = max(self._chats.get(chat, 0.0), until)

    def pause_after(self, refusal: RetryAfter, chat: str) -> None:
        """Send nothing for as long as the platform asks, to the chat or to all."""
        self.pause(refusal.after.total_seconds(), None if refusal.whole_account else chat)

    async def wait(self, chat: str) -> None:
        """Return when the next message to a chat may be sent; its place is reserved at once."""
        now = monotonic()
        at = max(now, self._free_at, self._chats.get(chat, 0.0))
        self._take(chat, now, at)
        await asyncio.sleep(at - now)
        pause = self._paused_until - monotonic()
        while pause > 0:
            await asyncio.sleep(pause)
            # The pause may be extended meanwhile.
            pause = self._paused_until - monotonic()

    def try_take(self, chat: str) -> float:
        """Take what a call for a chat needs if it is free now; it reserves nothing.

        Returns:
            Seconds to wait before the next try; 0 if the call may be made.
        """
        pause = self.busy_for(chat)
        if not pause:
            now = monotonic()
            self._take(chat, now, now)
        return pause

    def busy_for(self, chat: str) -> float:
        """Return in how many seconds a call for a chat is free; 0 if it is now."""
        at = max(self._free_at, self._paused_until, self._chats.get(chat, 0.0))
        return max(0.0, at - monotonic())

    def _take(self, chat: str, now: float, at: float) -> None:
        if self.per_second is not None:
            # Not `at`: a chat that has to wait takes no time from the others.
            self._free_at = max(now, self._free_at) + 1 / self.per_second
        if self.per_chat_per_second is not None:
            self._forget_old(now)
            self._chats[chat] = at + 1 / self.per_chat_per_second

    def _forget_old(self, now: float) -> None:
        if len(self._chats) >= _MOST_CHATS:
            self._chats = {chat: at for chat, at in self._chats.items() if at > now}
