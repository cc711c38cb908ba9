"""Hands requests that end or delete many sessions to the desk that decides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from chatlane_schemas.session_sweeps import SessionCleanup, SessionPrune

if TYPE_CHECKING:
    from typing import Protocol

    from chatlane.api.answering import Answering
    from chatlane.api.asked import Asked, Handle
    from chatlane_schemas.session_sweeps import SessionSweepReply

    class Desk(Protocol):
        """Ends and deletes sessions, each request with its answer in one transaction."""

        async def sweep(
            self, principal: str, request: SessionPrune | SessionCleanup, digest: bytes
        ) -> SessionSweepReply:
            """Do it once; a repeated request gets the first answer."""


SweepT = TypeVar("SweepT", SessionPrune, SessionCleanup)


class SessionSweepHandlers:
    """The handlers of `session.prune` and `session.cleanup`."""

    def __init__(self, desk: Desk, answering: Answering) -> None:
        self._desk = desk
        self._answering = answering

    def requests(self) -> dict[str, Handle]:
        """Return what answers each request."""
        return {"session.prune": self.prune, "session.cleanup": self.cleanup}

    async def prune(self, asked: Asked) -> bytes:
        """Answer `session.prune`."""
        return await self._answer("session.prune", SessionPrune, asked)

    async def cleanup(self, asked: Asked) -> bytes:
        """Answer `session.cleanup`."""
        return await self._answer("session.cleanup", SessionCleanup, asked)

    async def _answer(self, method: str, model: type[SweepT], asked: Asked) -> bytes:
        return await self._answering.answer_once(method, model, asked, self._desk.sweep)
