"""Hands requests that change a session to the desk that decides them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from chatlane_schemas.session_changes import (
    SessionChange,
    SessionEnd,
    SessionFork,
    SessionReopen,
    SessionReset,
    SessionSwitch,
    SessionTitle,
    SessionUpdate,
)
from chatlane_schemas.session_life import (
    SessionHold,
    SessionMark,
    SessionNote,
    SessionOverride,
    SessionRelease,
    SessionSuspend,
    SessionUnmark,
)

if TYPE_CHECKING:
    from typing import Protocol

    from chatlane.api.answering import Answering
    from chatlane.api.asked import Asked
    from chatlane_schemas.sessions import SessionReply

    class Desk(Protocol):
        """Decides changes, each with its answer in one transaction."""

        async def change(
            self, principal: str, request: SessionChange, digest: bytes
        ) -> SessionReply:
            """Make a change once; a repeated request gets the first answer."""


ChangeT = TypeVar("ChangeT", bound=SessionChange)


class SessionChangeHandlers:
    """The handlers of requests that change one session."""

    def __init__(self, desk: Desk, answering: Answering) -> None:
        self._desk = desk
        self._answering = answering

    async def update(self, asked: Asked) -> bytes:
        """Answer `session.update`."""
        return await self._answer("session.update", SessionUpdate, asked)

    async def title(self, asked: Asked) -> bytes:
        """Answer `session.title`."""
        return await self._answer("session.title", SessionTitle, asked)

    async def end(self, asked: Asked) -> bytes:
        """Answer `session.end`."""
        return await self._answer("session.end", SessionEnd, asked)

    async def reopen(self, asked: Asked) -> bytes:
        """Answer `session.reopen`."""
        return await self._answer("session.reopen", SessionReopen, asked)

    async def reset(self, asked: Asked) -> bytes:
        """Answer `session.reset`."""
        return await self._answer("session.reset", SessionReset, asked)

    async def switch(self, asked: Asked) -> bytes:
        """Answer `session.switch`."""
        return await self._answer("session.switch", SessionSwitch, asked)

    async def fork(self, asked: Asked) -> bytes:
        """Answer `session.fork`."""
        return await self._answer("session.fork", SessionFork, asked)

    async def suspend(self, asked: Asked) -> bytes:
        """Answer `session.suspend`."""
        return await self._answer("session.suspend", SessionSuspend, asked)

    async def mark(self, asked: Asked) -> bytes:
        """Answer `session.mark`."""
        return await self._answer("session.mark", SessionMark, asked)

    async def unmark(self, asked: Asked) -> bytes:
        """Answer `session.unmark`."""
        return await self._answer("session.unmark", SessionUnmark, asked)

    async def hold(self, asked: Asked) -> bytes:
        """Answer `session.hold`."""
        return await self._answer("session.hold", SessionHold, asked)

    async def release(self, asked: Asked) -> bytes:
        """Answer `session.release`."""
        return await self._answer("session.release", SessionRelease, asked)

    async def override(self, asked: Asked) -> bytes:
        """Answer `session.override`."""
        return await self._answer("session.override", SessionOverride, asked)

    async def note(self, asked: Asked) -> bytes:
        """Answer `session.note`."""
        return await self._answer("session.note", SessionNote, asked)

    async def _answer(self, method: str, model: type[ChangeT], asked: Asked) -> bytes:
        async def act(request: ChangeT) -> SessionReply:
            # One id for two kinds of request is as wrong as for two bodies; when it was sent
            # may differ, so that a caller can repeat it after a restart.
            said = request.model_dump_json(exclude={"at"}).encode()
            digest = sha256(method.encode() + b"\0" + said).digest()
            return await self._desk.change(asked.principal, request, digest)

        return await self._answering.answer(method, model, asked, act)
