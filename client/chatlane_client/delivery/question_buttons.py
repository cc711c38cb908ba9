"""Take the buttons away from the messages of questions that are over."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias, TypeVar

from chatlane_client.delivery.rate_budget import RateBudget, chat_of
from chatlane_client.errors import RetryAfter
from chatlane_client.transport.connection import closed_error_first
from chatlane_client.turn_reader import TurnReader
from chatlane_schemas import OutboundMessage
from chatlane_schemas.live_turns import TurnAnswered
from chatlane_schemas.source import Source

_log = logging.getLogger("chatlane_client")

_MOST_QUESTIONS: Final = 2_000
_ATTEMPTS: Final = 3

CloseQuestion: TypeAlias = Callable[[Source, str, str], Awaitable[None]]
"""Edits a message so that it has this text and no buttons: `close(target, message_id, text)`.

It may raise `RetryAfter`.
"""
_ValueT = TypeVar("_ValueT")


class _Shown(NamedTuple):
    target: Source
    message_id: str
    text: str


class QuestionButtons:
    """The messages with buttons of running turns that this process has sent.

    A message that an earlier process sent keeps its buttons; a press of them starts nothing.

    Args:
        close: Takes the buttons away.
        budget: Rates of the account.
    """

    def __init__(self, close: CloseQuestion, budget: RateBudget) -> None:
        self._close = close
        self._budget = budget
        self._shown: dict[str, _Shown] = {}
        # Questions may be over before the platform has returned the id of their message.
        self._over: dict[str, None] = {}

    async def run(self, reader: TurnReader) -> None:
        """Follow the turns of an open reader until cancelled.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """
        with closed_error_first():
            async with asyncio.TaskGroup() as tasks:
                async for update in reader.updates():
                    if isinstance(update, TurnAnswered):
                        self._end(str(update.message_id), tasks)

    async def add(self, message: OutboundMessage, message_id: str, text: str | None) -> None:
        """Keep a message that was sent, or take its buttons away at once.

        Args:
            message: The whole message.
            message_id: The platform's id of the message with the buttons.
            text: What that message shows.
        """
        if not message.is_interim or not message.buttons:
            return
        shown = _Shown(message.target, message_id, text or "")
        if message.id in self._over:
            del self._over[message.id]
            await self._take_away(shown)
        else:
            _put(self._shown, message.id, shown)

    def _end(self, asked_by: str, tasks: asyncio.TaskGroup) -> None:
        shown = self._shown.pop(asked_by, None)
        if shown is None:
            _put(self._over, asked_by, None)
        else:
            # A chat that has to wait must not hold up the others.
            tasks.create_task(self._take_away(shown))

    async def _take_away(self, shown: _Shown) -> None:
        chat = chat_of(shown.target)
        for _ in range(_ATTEMPTS):
            await self._budget.wait(chat)
            try:
                await self._close(shown.target, shown.message_id, shown.text)
            except RetryAfter as exc:
                self._budget.pause_after(exc, chat)
            except Exception as exc:  # noqa: BLE001 - a press of these buttons starts nothing
                _log.info("buttons_not_taken_away", extra={"error": type(exc).__name__})
                return
            else:
                return


def _put(known: dict[str, _ValueT], key: str, value: _ValueT) -> None:
    known[key] = value
    while len(known) > _MOST_QUESTIONS:
        del known[next(iter(known))]
