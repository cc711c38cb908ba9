"""Answer read-only requests about sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.api.endpoint import fitting
from chatlane.domain.sessions.refusals import invalid, no_session
from chatlane.store.conversations.session_lists import Activity
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.session_changes import SessionFind
from chatlane_schemas.session_api.session_life import SessionRounds, SessionRoundsReply
from chatlane_schemas.session_api.sessions import (
    SessionCount,
    SessionCountReply,
    SessionGet,
    SessionList,
    SessionListReply,
    SessionOrder,
    SessionPeek,
    SessionReply,
)

if TYPE_CHECKING:
    from chatlane.api.endpoint import Reads
    from chatlane.store.conversations.session_lists import SessionLists
    from chatlane.store.conversations.session_reads import SessionReads

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Begins the cursor of a place among the pinned sessions.
_PINNED: Final = "p"
# One owner has a title only once, so more matches belong to other owners.
_MAX_SAME_TITLE: Final = 50


class SessionQueries:
    """Answers read-only requests about sessions."""

    def __init__(self, reads: SessionReads, lists: SessionLists) -> None:
        self._reads = reads
        self._lists = lists

    def table(self) -> Reads:
        """Return the model of each request and the method that answers it."""
        return {
            "session.get": (SessionGet, self._get),
            "session.peek": (SessionPeek, self._peek),
            "session.find": (SessionFind, self._find),
            "session.rounds": (SessionRounds, self._rounds),
            "session.list": (SessionList, self._list),
            "session.count": (SessionCount, self._count),
        }

    async def _get(self, request: SessionGet) -> SessionReply:
        session = await self._reads.find(
            request.session_id,
            request.acting_for,
            with_chain=request.whole_chain,
            with_rooms=request.with_rooms,
        )
        error = None if session else no_session()
        return SessionReply(id=new_envelope_id(), at=_now(), session=session, error=error)

    async def _peek(self, request: SessionPeek) -> SessionReply:
        # No message has arrived for this key yet: an answer, not an error.
        session = await self._reads.find_by_key(request.session_key, request.acting_for)
        return SessionReply(id=new_envelope_id(), at=_now(), session=session)

    async def _find(self, request: SessionFind) -> SessionListReply:
        found = await self._reads.find_by_title(
            request.title, request.acting_for, limit=_MAX_SAME_TITLE
        )
        return SessionListReply(id=new_envelope_id(), at=_now(), sessions=fitting(found))

    async def _rounds(self, request: SessionRounds) -> SessionRoundsReply:
        rounds = await self._reads.count_rounds(
            request.session_id, request.since, request.acting_for
        )
        error = no_session() if rounds is None else None
        return SessionRoundsReply(id=new_envelope_id(), at=_now(), rounds=rounds, error=error)

    async def _list(self, request: SessionList) -> SessionListReply:
        if request.order is SessionOrder.ACTIVITY:
            return await self._list_by_activity(request)
        try:
            below = UUID(request.cursor) if request.cursor else None
        except ValueError:
            error = invalid("cursor: must be the next_cursor of an earlier answer")
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

    async def _list_by_activity(self, request: SessionList) -> SessionListReply:
        try:
            before = _activity(request.cursor) if request.cursor else None
        except (ValueError, OverflowError):
            error = invalid("cursor: must be the next_cursor of an earlier answer in this order")
            return SessionListReply(id=new_envelope_id(), at=_now(), error=error)
        found = await self._lists.active_page(
            request, before=before, limit=request.limit, pinned_first=request.pinned_first
        )
        page = fitting(tuple(view for view, _ in found.sessions))
        is_cut = len(page) < len(found.sessions)
        end = found.sessions[len(page) - 1][1] if is_cut else found.end
        return SessionListReply(
            id=new_envelope_id(),
            at=_now(),
            sessions=page,
            next_cursor=None if end is None else _activity_cursor(end),
        )

    async def _count(self, request: SessionCount) -> SessionCountReply:
        counts = await self._lists.count(request)
        return SessionCountReply(id=new_envelope_id(), at=_now(), counts=counts)


def _activity_cursor(place: Activity) -> str:
    micros = (place.at - _EPOCH) // timedelta(microseconds=1)
    return f"{_PINNED if place.is_pinned else ''}{micros}.{place.session_id}"


def _activity(cursor: str) -> Activity:
    """Return the place in a cursor.

    Raises:
        ValueError: It is no such cursor.
        OverflowError: Its time is out of range.
    """
    micros, _, session_id = cursor.removeprefix(_PINNED).partition(".")
    at = _EPOCH + timedelta(microseconds=int(micros))
    return Activity(at, UUID(session_id), is_pinned=cursor.startswith(_PINNED))


def _now() -> datetime:
    return datetime.now(UTC)
