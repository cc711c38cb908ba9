"""Answer read-only requests about transcripts, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from operator import is_not
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.api.endpoint import ITEM_BYTES, fits, fitting
from chatlane.domain.sessions.refusals import invalid, no_session
from chatlane.domain.sessions.transcripts import (
    clean_start,
    reading_order,
    repaired,
    without_open_calls,
)
from chatlane.store.history.transcripts import MAX_ROW_BYTES
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.fields import MAX_INT64
from chatlane_schemas.session_api.transcripts import (
    TranscriptLoad,
    TranscriptRemoved,
    TranscriptRemovedReply,
    TranscriptReply,
    TranscriptRevisions,
    TranscriptRevisionsReply,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane.api.endpoint import ApiRequest, CallerReads
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.sessions.transcripts import Version
    from chatlane.store.history.transcripts import RowsBefore, TranscriptReads
    from chatlane_schemas.session_api.sessions import ApiError
    from chatlane_schemas.session_api.transcripts import TranscriptEntry

# Sizes to which rows are shortened if a page or a call and its results do not fit otherwise.
_SHORT_ROWS: Final = (32 * 1024, 1024)
# Rows read beyond a page, so that a call is not separated from its results; the result of a turn
# has at most a thousand rows.
_WIDER: Final = 1000


@dataclass(frozen=True, slots=True)
class _Place:
    """The end of a page: just below a row of a session."""

    session_id: UUID
    seq: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The rows that a request wants: those below a place, and what of them."""

    start: _Place
    content_from: int | None
    with_reasoning: bool
    with_session_id: bool
    for_member: bool = False


@dataclass(frozen=True, slots=True)
class _Page:
    """Rows, oldest first, and the end of the page before them."""

    rows: tuple[TranscriptEntry, ...]
    before: _Place | None


class TranscriptQueries:
    """Answers read-only requests about transcripts."""

    def __init__(self, reads: TranscriptReads, catalog: Catalog | None = None) -> None:
        """Create the queries.

        Args:
            reads: Reads rows.
            catalog: Says which agents get reasoning; None for none of them.
        """
        self._reads = reads
        self._catalog = catalog

    def table(self) -> CallerReads:
        """Return the model of each request and the method that answers it to a caller."""
        return {
            "transcript.load": (TranscriptLoad, self._load),
            "transcript.revisions": (TranscriptRevisions, self._revisions),
            "transcript.removed": (TranscriptRemoved, self._removed),
        }

    async def _removed(
        self, request: TranscriptRemoved, _asked: ApiRequest
    ) -> TranscriptRemovedReply:
        now = _now()
        version = await self._reads.version(request.session_id, request.acting_for)
        if version is None:
            return TranscriptRemovedReply(id=new_envelope_id(), at=now, error=no_session())
        # One more than is shown, to learn whether there are more.
        found = await self._reads.removed(
            request.session_id,
            request.removal,
            below=_archive_place(request.cursor),
            limit=request.limit + 1,
        )
        shown = fitting(found[: request.limit])
        has_more = len(shown) < len(found)
        return TranscriptRemovedReply(
            id=new_envelope_id(),
            at=now,
            rows=shown,
            next_cursor=f"{shown[-1].removal}.{shown[-1].seq}" if has_more else None,
            version=version.text,
        )

    async def _revisions(
        self, request: TranscriptRevisions, _asked: ApiRequest
    ) -> TranscriptRevisionsReply:
        now = _now()
        if await self._reads.version(request.session_id, request.acting_for) is None:
            return TranscriptRevisionsReply(id=new_envelope_id(), at=now, error=no_session())
        before = MAX_INT64 if request.before is None else request.before
        # One more than is shown, to learn whether there are more.
        found = await self._reads.revisions(
            request.session_id, request.seq, before=before, limit=request.limit + 1
        )
        shown = fitting(found[: request.limit])
        return TranscriptRevisionsReply(
            id=new_envelope_id(),
            at=now,
            revisions=shown,
            next_before=shown[-1].number if len(shown) < len(found) else None,
        )

    async def _load(self, request: TranscriptLoad, asked: ApiRequest) -> TranscriptReply:
        # Read the version before the rows: a row that arrives in between then makes the version too
        # old, and a change based on this page is refused.
        found = await self._version_and_order(request)
        is_member = found is None and request.with_rooms
        if is_member:
            found = await self._as_member(request)
        if found is None:
            return _refused(no_session())
        version, order = found
        start = _start(request)
        if request.cursor is not None and not request.whole_chain:
            return _refused(invalid("cursor: goes with whole_chain only; use before_seq"))
        if start.session_id not in order:
            return _refused(
                invalid("cursor: must be the next_cursor of an answer about this conversation")
            )
        if is_member:
            wanted = _Wanted(
                start,
                request.content_from,
                with_reasoning=False,
                with_session_id=request.whole_chain,
                for_member=True,
            )
            page = await self._read(wanted, request.limit)
        else:
            page = await self._page(
                request, start, with_reasoning=self._shows_reasoning(request, asked)
            )
        after = order[order.index(start.session_id) + 1 :]
        before = page.before
        if before is None and after:
            before = _Place(after[0], MAX_INT64)
        rows = page.rows
        if asked.agent is not None:
            rows = tuple(row if _is_own(row, asked.agent) else _thoughtless(row) for row in rows)
        return _reply(request, version, rows, before)

    def _shows_reasoning(self, request: TranscriptLoad, asked: ApiRequest) -> bool:
        """Return whether the caller gets reasoning; of a worker, the settings decide."""
        if asked.agent is None:
            return request.reasoning
        agent = self._catalog.agents.get(asked.agent) if self._catalog else None
        return agent is not None and agent.reasoning

    async def _version_and_order(
        self, request: TranscriptLoad
    ) -> tuple[Version, tuple[UUID, ...]] | None:
        """Return the version, and the sessions in the order in which they are read."""
        if not request.whole_chain:
            version = await self._reads.version(request.session_id, request.acting_for)
            return None if version is None else (version, (request.session_id,))
        found = await self._reads.version_and_links(request.session_id, request.acting_for)
        return found and (found[0], reading_order(found[1], request.session_id))

    async def _as_member(self, request: TranscriptLoad) -> tuple[Version, tuple[UUID, ...]] | None:
        """Return the same for a member of the room, who reads no session but the named one."""
        version = await self._reads.version_for_member(request.session_id, request.acting_for)
        return None if version is None else (version, (request.session_id,))

    async def _page(self, request: TranscriptLoad, start: _Place, *, with_reasoning: bool) -> _Page:
        """Return a page that separates no call from its results, unless they exceed a reply."""
        wanted = _Wanted(start, request.content_from, with_reasoning, request.whole_chain)
        page = await self._read(wanted, request.limit)
        if request.as_stored or request.content_from is not None:
            return page
        whole = _cut_clean(page)
        for row_bytes in (MAX_ROW_BYTES, *_SHORT_ROWS):
            if whole.rows or not page.rows:
                break
            page = await self._read(wanted, request.limit + _WIDER, row_bytes)
            whole = _cut_clean(page)
        whole = whole if whole.rows else page
        rows = repaired(whole.rows)
        # What was read fits already, and to measure it again costs as much as to send it.
        is_changed = len(rows) != len(whole.rows) or any(map(is_not, rows, whole.rows))
        if is_changed and len(fitting(rows)) < len(rows):
            rows = without_open_calls(whole.rows)
        return _Page(rows, whole.before)

    async def _read(self, wanted: _Wanted, limit: int, row_bytes: int = MAX_ROW_BYTES) -> _Page:
        found = await self._rows(wanted, limit, row_bytes)
        for shorter in _SHORT_ROWS:
            # A single row can be larger in JSON, where a control character takes six bytes.
            if not found.rows or fits(found.rows[0]):
                break
            found = await self._rows(wanted, limit, min(row_bytes, shorter))
        newest_first = fitting(found.rows)
        has_more = found.has_more or len(newest_first) < len(found.rows)
        session_id = wanted.start.session_id
        before = _Place(session_id, newest_first[-1].seq) if has_more else None
        return _Page(newest_first[::-1], before)

    async def _rows(self, wanted: _Wanted, limit: int, row_bytes: int) -> RowsBefore:
        return await self._reads.rows(
            wanted.start.session_id,
            below_seq=wanted.start.seq,
            limit=limit,
            max_bytes=ITEM_BYTES,
            row_bytes=row_bytes,
            content_from=wanted.content_from,
            with_reasoning=wanted.with_reasoning,
            with_session_id=wanted.with_session_id,
            for_member=wanted.for_member,
        )


def _is_own(row: TranscriptEntry, agent: str) -> bool:
    """Return whether a row has no reasoning of another agent."""
    return row.reasoning is None or row.reasoning.agent == agent


def _thoughtless(row: TranscriptEntry) -> TranscriptEntry:
    return row.model_copy(update={"reasoning": None})


def _archive_place(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return MAX_INT64, MAX_INT64
    removal, _, seq = cursor.partition(".")
    return min(int(removal), MAX_INT64), min(int(seq), MAX_INT64)


def _cut_clean(page: _Page) -> _Page:
    """Leave rows whose call is on the previous page to that page."""
    if page.before is None:
        return page
    rows = page.rows[clean_start(page.rows) :]
    before = _Place(page.before.session_id, rows[0].seq) if rows else page.before
    return _Page(rows, before)


def _start(request: TranscriptLoad) -> _Place:
    if request.cursor is None:
        seq = MAX_INT64 if request.before_seq is None else request.before_seq
        return _Place(request.session_id, seq)
    session, _, seq_text = request.cursor.partition(".")
    return _Place(UUID(session), min(int(seq_text), MAX_INT64))


def _reply(
    request: TranscriptLoad,
    version: Version,
    rows: Sequence[TranscriptEntry],
    before: _Place | None,
) -> TranscriptReply:
    in_chain = before is not None and request.whole_chain
    return TranscriptReply(
        id=new_envelope_id(),
        at=_now(),
        session_id=request.session_id,
        rows=tuple(rows),
        version=version.text,
        next_before_seq=before.seq if before and not in_chain else None,
        next_cursor=f"{before.session_id.hex}.{before.seq}" if before and in_chain else None,
    )


def _refused(error: ApiError) -> TranscriptReply:
    return TranscriptReply(id=new_envelope_id(), at=_now(), error=error)


def _now() -> datetime:
    return datetime.now(UTC)
