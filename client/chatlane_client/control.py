"""Receive control messages for running turns: cancel the turn, or take in new messages."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client.transport.connection import open_subscription
from chatlane_client.transport.retry import cancel_until_ended
from chatlane_schemas import DecodeError, decode
from chatlane_schemas.topology import subjects
from chatlane_schemas.turns import CancelReason, TurnControl

_log = logging.getLogger("chatlane_client")

WIND_DOWN: Final = timedelta(seconds=20)

_AnswerT = TypeVar("_AnswerT")


class Signals:
    """Control state of one turn.

    Attributes:
        cancel_reason: Why the turn is to end before its answer; None while it may go on.
        has_news: Set when there may be messages to take in.
        has_answer: Set when a question may have its answer.
        is_stopping: Whether the turn is to be handed back, because the worker stops.
        calls: How often the attempt has made each call of the front end, by its digest.
        calling: Held during such a call: a turn has one open question at a time.
    """

    def __init__(self, wind_down: timedelta = WIND_DOWN) -> None:
        """Create the control state of one turn.

        Args:
            wind_down: How long a handler may take to end before it is cancelled again.
        """
        self._wind_down = wind_down
        self.cancel_reason: CancelReason | None = None
        self.is_stopping = False
        self.has_news = asyncio.Event()
        self.has_answer = asyncio.Event()
        self.calls: Counter[str] = Counter()
        self.calling = asyncio.Lock()
        self._working: asyncio.Future[Any] | None = None
        self._ending: asyncio.Task[None] | None = None

    def tell(self, cancel: CancelReason | None, *, steer: bool) -> None:
        """Record a control message; cancel the handler, repeatedly, if the turn is to end."""
        if steer:
            self.has_news.set()
        if cancel is not None:
            self.cancel_reason = cancel
            self._end()

    def hand_back(self) -> None:
        """Cancel the handler because the worker stops."""
        self.is_stopping = True
        self._end()

    async def obeyed_by(self, work: Awaitable[_AnswerT]) -> _AnswerT:
        """Return the answer of a handler, which is cancelled once the turn is to end."""
        self._working = working = asyncio.ensure_future(work)
        if self.cancel_reason is not None or self.is_stopping:
            self._end()
        try:
            return await working
        finally:
            if self._ending is not None:
                self._ending.cancel()

    def _end(self) -> None:
        if self._working is not None and self._ending is None:
            self._ending = asyncio.create_task(
                cancel_until_ended(self._working, again_after=self._wind_down)
            )


class Controls:
    """Receives the control messages of one agent and passes them to the turns of this process.

    Args:
        wind_down: How long a handler may take to end before it is cancelled again.
    """

    def __init__(self, wind_down: timedelta = WIND_DOWN) -> None:
        self._wind_down = wind_down
        self._watched: dict[UUID, list[Signals]] = {}

    @asynccontextmanager
    async def listening(self, client: Client, agent: str) -> AsyncIterator[None]:
        """Subscribe to control messages for the length of the block."""
        async with open_subscription(client, subjects.control_filter(agent), self._hear):
            yield

    @contextmanager
    def watching(self, turn_id: UUID) -> Iterator[Signals]:
        """Yield the control state of a turn, which is updated during the block."""
        signals = Signals(self._wind_down)
        self._watched.setdefault(turn_id, []).append(signals)
        try:
            yield signals
        finally:
            self._watched[turn_id].remove(signals)
            if not self._watched[turn_id]:
                del self._watched[turn_id]

    async def _hear(self, message: Msg) -> None:
        try:
            control = decode(TurnControl, message.data)
        except DecodeError as exc:
            # The message may be of a newer release; the reply to the next renewal decides.
            _log.warning("control_not_understood", extra={"error": str(exc)})
            return
        for signals in self._watched.get(control.turn_id, ()):
            if control.answered:
                signals.has_answer.set()
            signals.tell(control.cancel, steer=control.steer)
