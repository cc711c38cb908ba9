"""Answers questions about sessions and their transcripts; changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from chatlane.api.answering import MAX_REPLY_BYTES
from chatlane_schemas.envelope import Record, new_envelope_id
from chatlane_schemas.fields import MAX_INT64
from chatlane_schemas.sessions import (
    ApiError,
    ApiErrorCode,
    SessionGet,
    SessionList,
    SessionListReply,
    SessionPeek,
    SessionReply,
    SessionView,
    TranscriptEntry,
    TranscriptLoad,
    TranscriptReply,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
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

        async def transcript(
            self, session_id: UUID, *, below_seq: int, limit: int, max_bytes: int
        ) -> tuple[TranscriptEntry, ...]:
            """Return rows, newest first."""


ItemT = TypeVar("ItemT", bound=Record)

# Left for the envelope around the items.
_ITEM_BYTES: Final = MAX_REPLY_BYTES - 1024


class SessionHandlers:
    """The handlers of `session.get`, `session.peek`, `session.list` and `transcript.load`."""

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

    async def load(self, body: bytes) -> bytes:
        """Answer `transcript.load`."""
        return await self._answering.answer("transcript.load", TranscriptLoad, body, self._load)

    async def _get(self, request: SessionGet) -> SessionReply:
        session = await self._reads.find(request.session_id)
        error = None if session else _no_such_session()
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
        page = _fitting(found[: request.limit])
        return SessionListReply(
            id=new_envelope_id(),
            at=_now(),
            sessions=page,
            next_cursor=str(page[-1].id) if len(page) < len(found) else None,
        )

    async def _load(self, request: TranscriptLoad) -> TranscriptReply:
        newest_first = await self._reads.transcript(
            request.session_id,
            below_seq=MAX_INT64 if request.before_seq is None else request.before_seq,
            limit=request.limit,
            max_bytes=_ITEM_BYTES,
        )
        if not newest_first and await self._reads.find(request.session_id) is None:
            return TranscriptReply(id=new_envelope_id(), at=_now(), error=_no_such_session())
        page = _fitting(newest_first)
        return TranscriptReply(
            id=new_envelope_id(),
            at=_now(),
            session_id=request.session_id,
            rows=tuple(reversed(page)),
            next_before_seq=page[-1].seq if page and page[-1].seq > 1 else None,
        )


def _fitting(items: Iterable[ItemT]) -> tuple[ItemT, ...]:
    """Return the first items that fit into a reply together; at least one if there is one.

    One alone always fits: it came in a body of at most 256 kB.
    """
    page: list[ItemT] = []
    left = _ITEM_BYTES
    for item in items:
        left -= len(item.model_dump_json(exclude_none=True).encode()) + 1
        if left < 0 and page:
            break
        page.append(item)
    return tuple(page)


def _no_such_session() -> ApiError:
    return ApiError(code=ApiErrorCode.NOT_FOUND, message="there is no session with this id")


def _now() -> datetime:
    return datetime.now(UTC)
