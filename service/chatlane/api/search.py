"""Answer searches in transcripts, page by page."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from chatlane.api.endpoint import fitting
from chatlane.domain.sessions.refusals import invalid
from chatlane.search.search_sql import Place
from chatlane.search.tokens import search_of, snippet
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.fields import MAX_INT64
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import TranscriptHit, TranscriptHits, TranscriptSearch

if TYPE_CHECKING:
    from chatlane.api.endpoint import Reads
    from chatlane.search.search_sql import Hit, SearchReads
    from chatlane.search.tokens import Search

_START: Final = Place(math.inf, MAX_INT64)
# Four bytes, as in the database, so that a cursor holds the exact rank.
_RANK: Final = struct.Struct(">f")


class SearchQueries:
    """Answers `transcript.search`."""

    def __init__(self, reads: SearchReads) -> None:
        self._reads = reads

    def table(self) -> Reads:
        """Return the model of the request and the method that answers it."""
        return {"transcript.search": (TranscriptSearch, self._search)}

    async def _search(self, request: TranscriptSearch) -> TranscriptHits:
        now = datetime.now(UTC)
        search = search_of(request.query)
        if search is None:
            error = invalid("query: needs a word that has to be found")
            return TranscriptHits(id=new_envelope_id(), at=now, error=error)
        behind = _START if request.cursor is None else _parsed(request.cursor)
        # One more than is shown, to learn whether there are more.
        found = await self._reads.search(search, request, behind=behind, limit=request.limit + 1)
        page = fitting(_shown(hit, search) for hit in found[: request.limit])
        has_more = len(page) < len(found)
        return TranscriptHits(
            id=new_envelope_id(),
            at=now,
            hits=page,
            next_cursor=_cursor(found[len(page) - 1].place) if has_more else None,
        )


def _shown(hit: Hit, search: Search) -> TranscriptHit:
    return TranscriptHit(
        session_id=hit.session_id,
        row_id=hit.row_id,
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
