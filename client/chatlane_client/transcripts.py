"""The transcript API, typed."""

from collections.abc import AsyncIterator, Sequence
from typing import Final
from uuid import UUID

from chatlane_client.requests import Api
from chatlane_schemas.results import Role
from chatlane_schemas.transcripts import (
    AppendedRow,
    Revision,
    TranscriptAppend,
    TranscriptChanged,
    TranscriptCompact,
    TranscriptEntry,
    TranscriptHit,
    TranscriptHits,
    TranscriptLoad,
    TranscriptReplace,
    TranscriptReply,
    TranscriptRetry,
    TranscriptRevisions,
    TranscriptRevisionsReply,
    TranscriptRewind,
    TranscriptSearch,
)

MAX_PAGE_ROWS: Final = 500


class TranscriptApi(Api):
    """Reads and changes transcripts; every request is repeated until it is answered.

    A change is repeated under one id, so it happens once. A caller that may be restarted in
    between gives an id of its own (`request_id`) and keeps it.

    Raises (from every method):
        SessionNotFoundError: There is no session of the id that is given, or it is somebody
            else's.
        ConflictingRequestError: Another request had the request id that is given.
        UnansweredRequestError: Nobody answered in time; a change may have been made.
        InvalidAnswerError: The answer does not follow the contract.
    """

    async def pages(
        self,
        session_id: UUID,
        *,
        before_seq: int | None = None,
        page_size: int = 100,
        whole_chain: bool = False,
        as_stored: bool = False,
    ) -> AsyncIterator[tuple[TranscriptEntry, ...]]:
        """Yield the transcript in pages, the newest page first, each oldest row first.

        Args:
            session_id: Session to read.
            before_seq: Only rows below this one.
            page_size: Rows of a page; one more or less where a call and its results stay
                together.
            whole_chain: Whether to go on with the sessions that this one continues.
            as_stored: Whether to show the rows that are stored, without placeholders for the
                results of calls that have none.
        """
        cursor = None
        while True:
            request = TranscriptLoad(
                **self._stamp(),
                session_id=session_id,
                limit=page_size,
                before_seq=before_seq,
                whole_chain=whole_chain,
                cursor=cursor,
                as_stored=as_stored,
            )
            reply = await self._ask("transcript", "load", request, TranscriptReply)
            yield reply.rows
            before_seq, cursor = reply.next_before_seq, reply.next_cursor
            if before_seq is None and cursor is None:
                return

    async def newest(
        self, session_id: UUID, *, limit: int = 100, before_seq: int | None = None
    ) -> tuple[TranscriptEntry, ...]:
        """Return the newest rows of a transcript, oldest first, as a model may be given them.

        Args:
            session_id: Session to read.
            limit: How many rows at most, over as many pages as it takes; fewer where the first
                ones are results of a call that is left out.
            before_seq: Only rows below this one.
        """
        rows: tuple[TranscriptEntry, ...] = ()
        size = min(limit, MAX_PAGE_ROWS)
        async for page in self.pages(session_id, before_seq=before_seq, page_size=size):
            rows = (*page, *rows)
            if len(rows) >= limit:
                break
        return _without_parted_results(rows, len(rows) - limit)

    async def revisions(self, session_id: UUID, seq: int) -> AsyncIterator[Revision]:
        """Yield what a row said before it was edited or deleted, the newest first."""
        before = None
        while True:
            request = TranscriptRevisions(
                **self._stamp(), session_id=session_id, seq=seq, before=before
            )
            reply = await self._ask("transcript", "revisions", request, TranscriptRevisionsReply)
            for revision in reply.revisions:
                yield revision
            before = reply.next_before
            if before is None:
                return

    async def search(
        self,
        query: str,
        *,
        session_id: UUID | None = None,
        agent: str | None = None,
        page_size: int = 20,
    ) -> AsyncIterator[TranscriptHit]:
        """Yield the rows that match a query, the best first.

        What was said a moment ago may not be found yet. Of more than a thousand rows that
        match, the newest are found.

        Args:
            query: Words that all have to be there, in at most 512 characters. `"Words in
                quotes"` follow each other, `word*` may go on, `-word` must not be there.
            session_id: Only rows of this session.
            agent: Only rows of this agent's sessions.
            page_size: Rows to ask for at once, at most 50.

        Raises:
            RefusedRequestError: No word of the query says what has to be there.
        """
        cursor = None
        while True:
            request = TranscriptSearch(
                **self._stamp(),
                query=query,
                session_id=session_id,
                agent=agent,
                limit=page_size,
                cursor=cursor,
            )
            reply = await self._ask("transcript", "search", request, TranscriptHits)
            for hit in reply.hits:
                yield hit
            cursor = reply.next_cursor
            if cursor is None:
                return

    async def append(
        self, session_id: UUID, rows: Sequence[AppendedRow], *, request_id: str | None = None
    ) -> TranscriptChanged:
        """Add rows at the end; one that is known by an id is not added again.

        Raises:
            ConflictingRequestError: The session has ended.
        """
        request = TranscriptAppend(
            **self._stamp(request_id),
            session_id=session_id,
            rows=tuple(rows),
        )
        return await self._ask("transcript", "append", request, TranscriptChanged)

    async def replace(
        self,
        session_id: UUID,
        rows: Sequence[AppendedRow],
        *,
        expected_version: str,
        allow_empty: bool = False,
        request_id: str | None = None,
    ) -> TranscriptChanged:
        """Write a transcript anew, all or nothing.

        Args:
            session_id: Session to write to.
            rows: All rows, in order.
            expected_version: `version` of the transcript the rows were made from.
            allow_empty: Whether no rows are meant.
            request_id: Id to repeat it under after a restart.

        Raises:
            StaleRequestError: It has changed since that version.
            ConflictingRequestError: A turn is running, or the session has ended.
        """
        request = TranscriptReplace(
            **self._stamp(request_id),
            session_id=session_id,
            expected_version=expected_version,
            rows=tuple(rows),
            allow_empty=allow_empty,
        )
        return await self._ask("transcript", "replace", request, TranscriptChanged)

    async def compact(
        self,
        session_id: UUID,
        summary: Sequence[AppendedRow],
        *,
        through_seq: int,
        expected_version: str,
        in_child: bool = False,
        request_id: str | None = None,
    ) -> TranscriptChanged:
        """Put a summary in the place of the oldest rows; later rows stay behind it.

        Args:
            session_id: Session to write to.
            summary: Fewer rows than they stand for.
            through_seq: The last row that is summed up.
            expected_version: `version` of the transcript the summary was made from.
            in_child: Whether to end the session and go on in another one, which begins with the
                summary; the answer names it.
            request_id: Id to repeat it under after a restart.

        Raises:
            StaleRequestError: Rows were taken out since that version; new ones do no harm.
            ConflictingRequestError: A turn is running on these rows, or for a child on any, or
                the session has ended.
        """
        request = TranscriptCompact(
            **self._stamp(request_id),
            session_id=session_id,
            expected_version=expected_version,
            through_seq=through_seq,
            in_child=in_child,
            rows=tuple(summary),
        )
        return await self._ask("transcript", "compact", request, TranscriptChanged)

    async def rewind(
        self,
        session_id: UUID,
        *,
        turns: int = 1,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> TranscriptChanged:
        """Take back the last turns, whole; more than there are takes back all.

        Raises:
            StaleRequestError: It has changed since that version.
            ConflictingRequestError: A turn is running, or the session has ended.
        """
        request = TranscriptRewind(
            **self._stamp(request_id),
            session_id=session_id,
            turns=turns,
            expected_version=expected_version,
        )
        return await self._ask("transcript", "rewind", request, TranscriptChanged)

    async def retry(
        self,
        session_id: UUID,
        *,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> TranscriptChanged:
        """Take the last turn back and let what was said in it be answered once more.

        Raises:
            StaleRequestError: It has changed since that version.
            ConflictingRequestError: A turn is running, nobody has said anything, or the session
                has ended.
        """
        request = TranscriptRetry(
            **self._stamp(request_id),
            session_id=session_id,
            expected_version=expected_version,
        )
        return await self._ask("transcript", "retry", request, TranscriptChanged)

    async def version(self, session_id: UUID) -> str:
        """Return the version of a transcript, for a change that is made from it."""
        request = TranscriptLoad(**self._stamp(), session_id=session_id, limit=1)
        reply = await self._ask("transcript", "load", request, TranscriptReply)
        return reply.version or ""


def _without_parted_results(
    rows: tuple[TranscriptEntry, ...], left_out: int
) -> tuple[TranscriptEntry, ...]:
    """Return what comes after the first rows, without results of calls among these."""
    start = max(left_out, 0)
    for place in range(start, len(rows) if start else 0):
        if rows[place].tool_calls:
            break
        if rows[place].role is Role.TOOL:
            start = place + 1
    return rows[start:]
