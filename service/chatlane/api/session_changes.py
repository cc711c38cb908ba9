"""Hands requests that change a session to the desk that decides them."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from chatlane_schemas.session_changes import (
    SessionArchive,
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
from chatlane_schemas.session_openings import SessionCreate, SessionSubmit
from chatlane_schemas.session_sweeps import SessionRemove

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from chatlane.api.answering import Answering
    from chatlane.api.asked import Asked, Handle
    from chatlane_schemas.sessions import SessionReply

    class Desk(Protocol):
        """Decides changes, each with its answer in one transaction."""

        async def change(
            self, principal: str, request: SessionChange | SessionCreate, digest: bytes
        ) -> SessionReply:
            """Make a change once; a repeated request gets the first answer."""


ChangeT = TypeVar("ChangeT", bound=SessionChange | SessionCreate)


REQUESTS: Final[Mapping[str, type[SessionChange | SessionCreate]]] = MappingProxyType(
    {
        "session.create": SessionCreate,
        "session.submit": SessionSubmit,
        "session.remove": SessionRemove,
        "session.update": SessionUpdate,
        "session.title": SessionTitle,
        "session.archive": SessionArchive,
        "session.end": SessionEnd,
        "session.reopen": SessionReopen,
        "session.reset": SessionReset,
        "session.switch": SessionSwitch,
        "session.fork": SessionFork,
        "session.suspend": SessionSuspend,
        "session.mark": SessionMark,
        "session.unmark": SessionUnmark,
        "session.hold": SessionHold,
        "session.release": SessionRelease,
        "session.override": SessionOverride,
        "session.note": SessionNote,
    }
)


class SessionChangeHandlers:
    """The handlers of requests that change one session."""

    def __init__(self, desk: Desk, answering: Answering) -> None:
        self._desk = desk
        self._answering = answering

    def requests(self) -> dict[str, Handle]:
        """Return what answers each request."""
        return {method: partial(self._answer, method, model) for method, model in REQUESTS.items()}

    async def _answer(self, method: str, model: type[ChangeT], asked: Asked) -> bytes:
        return await self._answering.answer_once(method, model, asked, self._desk.change)
