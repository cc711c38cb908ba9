"""Answer read-only requests about sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from chatlane.api.pages import fitting, no_such_session
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.session_changes import SessionFind
from chatlane_schemas.session_api.session_life import SessionRounds, SessionRoundsReply
from chatlane_schemas.session_api.sessions import (
    SessionGet,
    SessionListReply,
    SessionPeek,
    SessionReply,
    SessionView,
)

if TYPE_CHECKING:
    from typing import Protocol
    from uuid import UUID

    from chatlane.api.api_request import ApiRequest, Handle
    from chatlane.api.endpoint import RequestHandler
    from chatlane_schemas.session_api.people import Person

    class Reads(Protocol):
        """The store functions that the handlers use."""

        async def find(self, session_id: UUID, person: Person | None = None) -> SessionView | None:
            """Return the session, if it exists and belongs to the person."""

        async def count_rounds(
            self, session_id: UUID, since: datetime | None, person: Person | None = None
        ) -> int | None:
            """Return the rounds of a session, if it exists and belongs to the person."""

        async def find_by_key(
            self, session_key: str, person: Person | None = None
        ) -> SessionView | None:
            """Return the session that a key points to now, if it belongs to the person."""

        async def find_by_title(
            self, title: str, person: Person | None = None, *, limit: int
        ) -> tuple[SessionView, ...]:
            """Return sessions with a title, newest first."""


# One owner has a title only once, so more matches belong to other owners.
_MOST_OF_A_TITLE: Final = 50


class SessionHandlers:
    """The handlers of `session.get`, `peek`, `find` and `rounds`."""

    def __init__(self, reads: Reads, request_handler: RequestHandler) -> None:
        self._reads = reads
        self._request_handler = request_handler

    def requests(self) -> dict[str, Handle]:
        """Return the handler of each request."""
        return {
            "session.get": self.get,
            "session.peek": self.peek,
            "session.find": self.find,
            "session.rounds": self.rounds,
        }

    async def get(self, asked: ApiRequest) -> bytes:
        """Answer `session.get`."""
        return await self._request_handler.answer_read("session.get", SessionGet, asked, self._get)

    async def peek(self, asked: ApiRequest) -> bytes:
        """Answer `session.peek`."""
        return await self._request_handler.answer_read(
            "session.peek", SessionPeek, asked, self._peek
        )

    async def rounds(self, asked: ApiRequest) -> bytes:
        """Answer `session.rounds`."""
        return await self._request_handler.answer_read(
            "session.rounds", SessionRounds, asked, self._rounds
        )

    async def find(self, asked: ApiRequest) -> bytes:
        """Answer `session.find`."""
        return await self._request_handler.answer_read(
            "session.find", SessionFind, asked, self._find
        )

    async def _get(self, request: SessionGet) -> SessionReply:
        session = await self._reads.find(request.session_id, request.acting_for)
        error = None if session else no_such_session()
        return SessionReply(id=new_envelope_id(), at=_now(), session=session, error=error)

    async def _peek(self, request: SessionPeek) -> SessionReply:
        # No message has arrived for this key yet: an answer, not an error.
        session = await self._reads.find_by_key(request.session_key, request.acting_for)
        return SessionReply(id=new_envelope_id(), at=_now(), session=session)

    async def _rounds(self, request: SessionRounds) -> SessionRoundsReply:
        rounds = await self._reads.count_rounds(
            request.session_id, request.since, request.acting_for
        )
        error = no_such_session() if rounds is None else None
        return SessionRoundsReply(id=new_envelope_id(), at=_now(), rounds=rounds, error=error)

    async def _find(self, request: SessionFind) -> SessionListReply:
        found = await self._reads.find_by_title(
            request.title, request.acting_for, limit=_MOST_OF_A_TITLE
        )
        return SessionListReply(id=new_envelope_id(), at=_now(), sessions=fitting(found))


def _now() -> datetime:
    return datetime.now(UTC)
