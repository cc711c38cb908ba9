"""Keep the messages of an account within the rates that its platform allows."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from chatlane_client.errors import RetryAfter
from chatlane_schemas import Source

# Chats whose time is over are forgotten once there are so many.
_MOST_CHATS: Final = 10_000
_MINUTE: Final = 60.0


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
        in_minute: Returns for the id of a chat how many calls any minute may have; None, and a
            function that returns None, for no limit.
    """

    per_second: float | None = None
    per_chat_per_second: float | None = None
    in_minute: Callable[[str], int | None] | None = None
    _free_at: float = 0.0
    _paused_until: float = 0.0
    _chats: dict[str, float] = field(default_factory=dict)
    # The times of the last calls of chats that have a limit in a minute.
    _minutes: dict[str, deque[float]] = field(default_factory=dict)
    _forget_at: int = _MOST_CHATS

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
        at = max(now, self._free_at, self._free_for(chat))
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

    def paused_for(self, chat: str) -> float:
        """Return for how many seconds the platform takes no call for a chat; 0 if it does now."""
        return max(0.0, max(self._paused_until, self._free_for(chat)) - monotonic())

    def busy_for(self, chat: str) -> float:
        """Return in how many seconds a call for a chat is free; 0 if it is now."""
        at = max(self._free_at, self._paused_until, self._free_for(chat))
        return max(0.0, at - monotonic())

    def _free_for(self, chat: str) -> float:
        """Return from when on a chat takes a call."""
        at = self._chats.get(chat, 0.0)
        times = self._minutes.get(chat)
        if times is not None and len(times) == times.maxlen:
            at = max(at, times[0] + _MINUTE)
        return at

    def _take(self, chat: str, now: float, at: float) -> None:
        if self.per_second is not None:
            # Not `at`: a chat that has to wait takes no time from the others.
            self._free_at = max(now, self._free_at) + 1 / self.per_second
        if self.per_chat_per_second is not None:
            self._forget_old(now)
            self._chats[chat] = at + 1 / self.per_chat_per_second
        most = None if self.in_minute is None else self.in_minute(chat)
        if most is not None:
            self._forget_old_minutes(now)
            self._minutes.setdefault(chat, deque(maxlen=most)).append(at)

    def _forget_old(self, now: float) -> None:
        if len(self._chats) >= _MOST_CHATS:
            self._chats = {chat: at for chat, at in self._chats.items() if at > now}

    def _forget_old_minutes(self, now: float) -> None:
        if len(self._minutes) >= self._forget_at:
            kept = {it: times for it, times in self._minutes.items() if times[-1] > now - _MINUTE}
            self._minutes = kept
            # Else each call would look at all of them while there are so many.
            self._forget_at = max(_MOST_CHATS, 2 * len(kept))
