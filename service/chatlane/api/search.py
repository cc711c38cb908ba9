"""Answer searches in transcripts, page by page."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from chatlane.api.pages import fitting
from chatlane.search.search_sql import Place
from chatlane.search.tokens import MAX_CHARACTERS, search_of, snippet
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.fields import MAX_INT64
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode
from chatlane_schemas.session_api.transcripts import TranscriptHit, TranscriptHits, TranscriptSearch

if TYPE_CHECKING:
    from typing import Protocol
    from uuid import UUID

    from chatlane.api.api_request import ApiRequest, Handle
    from chatlane.api.endpoint import RequestHandler
    from chatlane.search.search_sql import Hit
    from chatlane.search.tokens import Search
    from chatlane_schemas.session_api.people import Person

    class Reads(Protocol):
        """The store functions that the handlers use."""

        async def search(
            self,
            search: Search,
            *,
            person: Person | None,
            session_id: UUID | None,
            agent: str | None,
            behind: Place,
            limit: int,
            max_length: int,
        ) -> tuple[Hit, ...]:
            """Return matching rows, best first."""


_START: Final = Place(math.inf, MAX_INT64)
# Four bytes, as in the database, so that a cursor holds the exact rank.
_RANK: Final = struct.Struct(">f")


class SearchHandlers:
    """The handler of `transcript.search`."""

    def __init__(self, reads: Reads, request_handler: RequestHandler) -> None:
        self._reads = reads
        self._request_handler = request_handler

    def requests(self) -> dict[str, Handle]:
        """Return the handler of each request."""
        return {"transcript.search": self.search}

    async def search(self, asked: ApiRequest) -> bytes:
        """Answer `transcript.search`."""
        return await self._request_handler.answer_read(
            "transcript.search", TranscriptSearch, asked, self._search
        )

    async def _search(self, request: TranscriptSearch) -> TranscriptHits:
        search = search_of(request.query)
        if search is None:
            return _refused("query: needs a word that has to be found")
        found = await self._reads.search(
            search,
            person=request.acting_for,
            session_id=request.session_id,
            agent=request.agent,
            behind=_START if request.cursor is None else _parsed(request.cursor),
            limit=request.limit + 1,
            max_length=MAX_CHARACTERS,
        )
        page = fitting(_shown(hit, search) for hit in found[: request.limit])
        has_more = len(page) < len(found)
        return TranscriptHits(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            hits=page,
            next_cursor=_cursor(found[len(page) - 1].place) if has_more else None,
        )


def _shown(hit: Hit, search: Search) -> TranscriptHit:
    return TranscriptHit(
        session_id=hit.session_id,
        seq=hit.seq,
        is_summed_up=hit.removal > 0,
        role=Role(hit.role),
        author=hit.author,
        snippet=snippet(hit.content, search),
        created_at=hit.created_at,
        title=hit.title,
    )


def _cursor(place: Place) -> str:
    return f"{_RANK.pack(place.rank).hex()}.{place.id}"


def _parsed(cursor: str) -> Place:
    rank, _, identity = cursor.partition(".")
    return Place(_RANK.unpack(bytes.fromhex(rank))[0], min(int(identity), MAX_INT64))


def _refused(message: str) -> TranscriptHits:
    error = ApiError(code=ApiErrorCode.INVALID, message=message)
    return TranscriptHits(id=new_envelope_id(), at=datetime.now(UTC), error=error)
