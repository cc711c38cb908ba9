"""The events of one session as one browser sees them, kept for a while so that it can resume."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from secrets import token_hex
from time import monotonic
from typing import Final
from uuid import UUID

from chatlane_client import ChatlaneClientError, SessionNotFoundError, TurnUpdate
from chatlane_console.conversations import Conversations
from chatlane_schemas.live_turns import (
    TurnAnswered,
    TurnAsked,
    TurnEnded,
    TurnPiece,
    TurnRecap,
    TurnStarted,
    TurnWaiting,
)

_NAMES: Final[dict[type[TurnUpdate], str]] = {
    TurnStarted: "turn.started",
    TurnPiece: "turn.piece",
    TurnRecap: "turn.recap",
    TurnAsked: "turn.asked",
    TurnAnswered: "turn.answered",
    TurnWaiting: "turn.waiting",
    TurnEnded: "turn.ended",
}
# A browser that is further behind begins again.
_KEPT_EVENTS: Final = 2000
# A session may go to another person, or be erased, while somebody looks at it.
_CHECK_AGAIN: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """An event of the stream.

    Attributes:
        id: Value for `Last-Event-ID`.
        name: Name of the event.
        data: A JSON object.
    """

    id: str
    name: str
    data: str


class EventFeed:
    """Collects the events of one session for one browser, also while it is away for a moment."""

    def __init__(self, conversations: Conversations, session_id: UUID) -> None:
        """Create a feed; `run` fills it."""
        self.id = token_hex(8)
        self.caller = conversations.caller
        self.session_id = session_id
        self.left_at: float | None = None
        self._conversations = conversations
        self._events: deque[tuple[int, str, str]] = deque(maxlen=_KEPT_EVENTS)
        self._next = 1
        self._changed = asyncio.Condition()
        self._is_over = False
        self._reader = 0

    async def run(self, is_open: asyncio.Event) -> None:
        """Collect events until cancelled, or until the session is not the caller's any more."""
        try:
            async with self._conversations.sessions.watch(self.session_id) as updates:
                is_open.set()
                async with asyncio.TaskGroup() as tasks:
                    _ = tasks.create_task(self._collect(updates))
                    _ = tasks.create_task(self._check())
        except* ChatlaneClientError:
            # The browser connects again and learns what is wrong.
            pass
        finally:
            self._is_over = True
            is_open.set()
            await self._wake()

    async def _collect(self, updates: AsyncIterator[TurnUpdate]) -> None:
        async for update in updates:
            data = update.model_dump_json(exclude_none=True, exclude={"v", "id"})
            await self.add(_NAMES[type(update)], data)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_AGAIN.total_seconds())
            try:
                _ = await self._conversations.sessions.get(self.session_id)
            except SessionNotFoundError:
                await self.add("gone", "{}")
                raise
            except ChatlaneClientError:
                continue

    async def add(self, name: str, data: str = "{}") -> None:
        """Add an event."""
        self._events.append((self._next, name, data))
        self._next += 1
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """Return whether nothing will be added."""
        return self._is_over

    def has_all_after(self, number: int) -> bool:
        """Return whether all events after one are here."""
        oldest = self._events[0][0] if self._events else self._next
        return oldest - 1 <= number < self._next

    async def events(self, after: int) -> AsyncIterator[SessionEvent]:
        """Yield the events after one, until the feed is over or another browser takes it over.

        Ends as well if the caller is so slow that events are lost.
        """
        self._reader += 1
        reader, self.left_at = self._reader, None
        try:
            while True:
                if self._reader != reader or not self.has_all_after(after):
                    return
                for number, name, data in [kept for kept in self._events if kept[0] > after]:
                    after = number
                    yield SessionEvent(f"{self.id}-{number}", name, data)
                async with self._changed:
                    if self._next - 1 > after:
                        continue
                    if self._is_over:
                        return
                    await self._changed.wait()
        finally:
            if self._reader == reader:
                self.left_at = monotonic()
