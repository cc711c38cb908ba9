"""Show in chats that an answer is being written."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import Final, NamedTuple
from uuid import UUID

from nats.aio.client import Client

from chatlane_client.transport.retry import cancel_until_ended
from chatlane_client.turn_reader import TurnReader, TurnUpdate
from chatlane_schemas.live_turns import TurnStarted
from chatlane_schemas.source import Source

_log = logging.getLogger("chatlane_client")

TYPING_INTERVAL: Final = timedelta(seconds=4)
# No event about the end of a turn comes if no router runs.
MAX_TYPING: Final = timedelta(minutes=15)

ShowTyping = Callable[[Source], Awaitable[None]]
"""Shows in a chat that an answer is being written, for a few seconds."""


class _Typing(NamedTuple):
    session_id: UUID
    task: asyncio.Task[None]


class TypingIndicator:
    """Repeats the typing state of each chat while a turn that answers it runs.

    It needs the events of routers only: the state ends when the turn ends, when it waits for another
    attempt, and when the lease of a dead worker ends. Events are lost while the connection is down,
    so all states end with it. No state lasts longer than `MAX_TYPING`.
    """

    def __init__(
        self, client: Client, show: ShowTyping, *, interval: timedelta = TYPING_INTERVAL
    ) -> None:
        self._client = client
        self._show = show
        self._interval = interval.total_seconds()
        self._typing: dict[UUID, _Typing] = {}
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

    def _end_all(self) -> None:
        for turn_id in list(self._typing):
            self.end(turn_id)

    def _update(self, update: TurnUpdate) -> None:
        if not isinstance(update, TurnStarted):
            self.end(update.turn_id)
            return
        # A session runs one turn at a time, so the end of an earlier one got lost.
        for turn_id, typing in list(self._typing.items()):
            if typing.session_id == update.session_id:
                self.end(turn_id)
        task = asyncio.create_task(self._repeat(update.turn_id, update.source))
        self._typing[update.turn_id] = _Typing(update.session_id, task)

    async def _repeat(self, turn_id: UUID, source: Source) -> None:
        begun = monotonic()
        while monotonic() - begun < MAX_TYPING.total_seconds():
            try:
                await self._show(source)
            except Exception as exc:  # noqa: BLE001 - the state is shown again soon
                _log.info("typing_not_shown", extra={"error": type(exc).__name__})
            await asyncio.sleep(self._interval)
        self._typing.pop(turn_id, None)
