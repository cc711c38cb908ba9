"""Hands requests to stop something to the desk that decides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from chatlane_schemas.session_changes import SessionStop
from chatlane_schemas.turns import TurnCancel

if TYPE_CHECKING:
    from typing import Protocol

    from chatlane.api.answering import Answering
    from chatlane.api.asked import Asked, Handle
    from chatlane_schemas.turns import StopReply

    class Desk(Protocol):
        """Stops what it is asked to, each with its answer in one transaction."""

        async def stop(
            self, principal: str, request: SessionStop | TurnCancel, digest: bytes
        ) -> StopReply:
            """Stop something once; a repeated request gets the first answer."""


StopT = TypeVar("StopT", SessionStop, TurnCancel)


class StopHandlers:
    """The handlers of `session.stop` and `turn.cancel`."""

    def __init__(self, desk: Desk, answering: Answering) -> None:
        self._desk = desk
        self._answering = answering

    def requests(self) -> dict[str, Handle]:
        """Return what answers each request."""
        return {
            "session.stop": self.stop,
            "turn.cancel": self.cancel,
        }

    async def stop(self, asked: Asked) -> bytes:
        """Answer `session.stop`."""
        return await self._answer("session.stop", SessionStop, asked)

    async def cancel(self, asked: Asked) -> bytes:
        """Answer `turn.cancel`."""
        return await self._answer("turn.cancel", TurnCancel, asked)

    async def _answer(self, method: str, model: type[StopT], asked: Asked) -> bytes:
        return await self._answering.answer_once(method, model, asked, self._desk.stop)
