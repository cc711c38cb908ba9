"""List and count sessions, page by page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from chatlane.api.pages import fitting
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.sessions import (
    ApiError,
    ApiErrorCode,
    SessionCount,
    SessionCountReply,
    SessionList,
    SessionListReply,
)

if TYPE_CHECKING:
    from typing import Protocol

    from chatlane.api.api_request import ApiRequest, Handle
    from chatlane.api.endpoint import RequestHandler
    from chatlane.store.conversations.session_lists import SessionPage
    from chatlane_schemas.session_api.sessions import SessionCounts, SessionFilter

    class Lists(Protocol):
        """The store functions that the handlers use."""

        async def page(
            self, wanted: SessionFilter, *, below: UUID | None, limit: int
        ) -> SessionPage:
            """Return matching sessions, newest first."""

        async def count(self, wanted: SessionFilter) -> SessionCounts:
            """Return the number of matching sessions."""


class SessionListHandlers:
    """The handlers of `session.list` and `session.count`."""

    def __init__(self, lists: Lists, request_handler: RequestHandler) -> None:
        self._lists = lists
        self._request_handler = request_handler

    def requests(self) -> dict[str, Handle]:
        """Return the handler of each request."""
        return {"session.list": self.list, "session.count": self.count}

    async def list(self, asked: ApiRequest) -> bytes:
        """Answer `session.list`."""
        return await self._request_handler.answer_read(
            "session.list", SessionList, asked, self._list
        )

    async def count(self, asked: ApiRequest) -> bytes:
        """Answer `session.count`."""
        return await self._request_handler.answer_read(
            "session.count", SessionCount, asked, self._count
        )

    async def _list(self, request: SessionList) -> SessionListReply:
        try:
            below = UUID(request.cursor) if request.cursor else None
        except ValueError:
            error = ApiError(
                code=ApiErrorCode.INVALID,
                message="cursor: must be the next_cursor of an earlier answer",
            )
            return SessionListReply(id=new_envelope_id(), at=_now(), error=error)
        found = await self._lists.page(request, below=below, limit=request.limit)
        page = fitting(found.sessions)
        is_cut = len(page) < len(found.sessions)
        next_below = page[-1].id if is_cut else found.next_below
        return SessionListReply(
            id=new_envelope_id(),
            at=_now(),
            sessions=page,
            next_cursor=None if next_below is None else str(next_below),
        )

    async def _count(self, request: SessionCount) -> SessionCountReply:
        counts = await self._lists.count(request)
        return SessionCountReply(id=new_envelope_id(), at=_now(), counts=counts)


def _now() -> datetime:
    return datetime.now(UTC)
