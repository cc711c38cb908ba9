"""Show in chats that an answer is being written."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from typing import Final, NamedTuple
from uuid import UUID

from nats.aio.client import Client

from chatlane_client.delivery.rate_budget import RateBudget, chat_of
from chatlane_client.errors import RetryAfter
from chatlane_client.transport.retry import cancel_until_ended
from chatlane_client.turn_reader import TurnReader, TurnUpdate
from chatlane_schemas.content.questions import QuestionEnd, QuestionKind
from chatlane_schemas.live_turns import TurnAnswered, TurnAsked, TurnStarted
from chatlane_schemas.source import Source

_log = logging.getLogger("chatlane_client")

TYPING_INTERVAL: Final = timedelta(seconds=4)
# No event about the end of a turn comes if no router runs.
MAX_TYPING: Final = timedelta(minutes=15)
_MAX_RUNNING: Final = 10_000

ShowTyping = Callable[[Source], Awaitable[None]]
"""Shows in a chat that an answer is being written, for a few seconds; may raise `RetryAfter`."""


class _Typing(NamedTuple):
    session_id: UUID
    task: asyncio.Task[None]


class _Running(NamedTuple):
    session_id: UUID
    source: Source


class TypingIndicator:
    """Repeats the typing state of each chat while a turn that answers it runs.

    It needs the events of routers only: the state ends when the turn ends, when it waits for another
    attempt, and when the lease of a dead worker ends. Events are lost while the connection is down,
    so all states end with it. No state lasts longer than `MAX_TYPING`. A turn that waits for the
    answer to a question shows nothing.

    Args:
        budget: Rates of the account. Typing takes nothing of them; it is not shown in a chat that
            has to wait, and the chat waits after `RetryAfter`.
    """

    def __init__(
        self,
        client: Client,
        show: ShowTyping,
        *,
        interval: timedelta = TYPING_INTERVAL,
        budget: RateBudget | None = None,
    ) -> None:
        self._client = client
        self._show = show
        self._interval = interval.total_seconds()
        self._budget = budget or RateBudget()
        self._typing: dict[UUID, _Typing] = {}
        self._running: dict[UUID, _Running] = {}
        self._reconnects = client.stats["reconnects"]

    @property
    def turns(self) -> frozenset[UUID]:
        """Return the turns for which typing is shown."""
        return frozenset(self._typing)

    async def run(self, reader: TurnReader) -> None:
        """Follow the turns of an open reader until cancelled.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """
        try:
            while True:
                updates = await reader.take()
                if self._client.stats["reconnects"] != self._reconnects:
                    self._reconnects = self._client.stats["reconnects"]
                    self._end_all()
                for update in updates:
                    self._update(update)
        finally:
            await cancel_until_ended(*(typing.task for typing in self._typing.values()))

    def end(self, turn_id: UUID) -> None:
        """End the state of a turn, for example because its answer is delivered."""
        typing = self._typing.pop(turn_id, None)
        if typing is not None:
            typing.task.cancel()

    @asynccontextmanager
    async def shown(self, target: Source) -> AsyncIterator[None]:
        """Show typing in a chat for the length of the block."""
        task = asyncio.create_task(self._repeat(target))
        try:
            yield
        finally:
            await cancel_until_ended(task)

    def _end_all(self) -> None:
        self._running.clear()
        for turn_id in list(self._typing):
            self.end(turn_id)

    def _update(self, update: TurnUpdate) -> None:
        match update:
            case TurnStarted():
                self._forget_turns_of(update.session_id)
                self._running[update.turn_id] = _Running(update.session_id, update.source)
                self._begin(update.turn_id)
            case TurnAsked() if update.kind is QuestionKind.CALL:
                pass
            case TurnAnswered() if update.outcome is not QuestionEnd.WITHDRAWN:
                self._begin(update.turn_id)
            case TurnAsked() | TurnAnswered():
                self.end(update.turn_id)
            case _:
                self._running.pop(update.turn_id, None)
                self.end(update.turn_id)

    def _forget_turns_of(self, session_id: UUID) -> None:
        """End the earlier turns of a session: it runs one at a time, so their ends got lost."""
        for turn_id, running in list(self._running.items()):
            if running.session_id == session_id:
                del self._running[turn_id]
                self.end(turn_id)
        while len(self._running) >= _MAX_RUNNING:
            del self._running[next(iter(self._running))]

    def _begin(self, turn_id: UUID) -> None:
        running = self._running.get(turn_id)
        if running is None or turn_id in self._typing:
            return
        task = asyncio.create_task(self._repeat(running.source))
        self._typing[turn_id] = typing = _Typing(running.session_id, task)

        def forget(_: object) -> None:
            if self._typing.get(turn_id) is typing:
                del self._typing[turn_id]

        task.add_done_callback(forget)

    async def _repeat(self, source: Source) -> None:
        begun, chat = monotonic(), chat_of(source)
        while monotonic() - begun < MAX_TYPING.total_seconds():
            if (pause := self._budget.busy_for(chat)) > 0:
                await asyncio.sleep(pause)
                continue
            try:
                await self._show(source)
            except RetryAfter as exc:
                self._budget.pause_after(exc, chat)
            except Exception as exc:  # noqa: BLE001 - the state is shown again soon
                _log.info("typing_not_shown", extra={"error": type(exc).__name__})
            await asyncio.sleep(self._interval)
