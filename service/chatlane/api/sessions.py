"""Answers questions about sessions; changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from chatlane.api.pages import fitting, no_such_session
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.sessions import (
    ApiError,
    ApiErrorCode,
    SessionGet,
    SessionList,
    SessionListReply,
    SessionPeek,
    SessionReply,
    SessionView,
)

if TYPE_CHECKING:
    from typing import Protocol

    from chatlane.api.answering import Answering

    class Reads(Protocol):
        """What the handlers ask the store."""

        async def find(self, session_id: UUID) -> SessionView | None:
            """Return the session, if there is one."""

        async def find_by_key(self, session_key: str) -> SessionView | None:
            """Return the session a key leads to now."""

        async def list(
            self,
            *,
            platform: str | None = None,
            agent: str | None = None,
            older_than: UUID | None = None,
            limit: int,
        ) -> tuple[SessionView, ...]:
            """Return sessions, newest first."""


class SessionHandlers:
    """The handlers of `session.get`, `session.peek` and `session.list`."""

    def __init__(self, reads: Reads, answering: Answering) -> None:
        self._reads = reads
        self._answering = answering

    async def get(self, body: bytes) -> bytes:
        """Answer `session.get`."""
        return await self._answering.answer("session.get", SessionGet, body, self._get)

    async def peek(self, body: bytes) -> bytes:
        """Answer `session.peek`."""
        return await self._answering.answer("session.peek", SessionPeek, body, self._peek)

    async def list(self, body: bytes) -> bytes:
        """Answer `session.list`."""
        return await self._answering.answer("session.list", SessionList, body, self._list)

    async def _get(self, request: SessionGet) -> SessionReply:
        session = await self._reads.find(request.session_id)
        error = None if session else no_such_session()
        return SessionReply(id=new_envelope_id(), at=_now(), session=session, error=error)

    async def _peek(self, request: SessionPeek) -> SessionReply:
        # Nobody has written there yet: an answer, not an error.
        session = await self._reads.find_by_key(request.session_key)
        return SessionReply(id=new_envelope_id(), at=_now(), session=session)

    async def _list(self, request: SessionList) -> SessionListReply:
        try:
            older_than = UUID(request.cursor) if request.cursor else None
        except ValueError:
            error = ApiError(code=ApiErrorCode.INVALID, message="cursor: not one of ours")
            return SessionListReply(id=new_envelope_id(), at=_now(), error=error)
        found = await self._reads.list(
            platform=request.platform,
            agent=request.agent,
            older_than=older_than,
            limit=request.limit + 1,
        )
        page = fitting(found[: request.limit])
        return SessionListReply(
            id=new_envelope_id(),
            at=_now(),
            sessions=page,
            next_cursor=str(page[-1].id) if len(page) < len(found) else None,
        )


def _now() -> datetime:
    return datetime.now(UTC)
