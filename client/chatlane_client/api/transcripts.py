"""Typed client of the transcript API."""

from collections.abc import AsyncIterator, Sequence
from typing import Final
from uuid import UUID

from chatlane_client.api.requests import Api
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import (
    AppendedRow,
    RemovedEntry,
    Revision,
    TranscriptAppend,
    TranscriptChanged,
    TranscriptCompact,
    TranscriptEntry,
    TranscriptHit,
    TranscriptHits,
    TranscriptLoad,
    TranscriptRemoved,
    TranscriptRemovedReply,
    TranscriptReplace,
    TranscriptReply,
    TranscriptRestore,
    TranscriptRetry,
    TranscriptRevisions,
    TranscriptRevisionsReply,
    TranscriptRewind,
    TranscriptSearch,
)

MAX_PAGE_ROWS: Final = 500


class TranscriptApi(Api):
    """Reads and changes transcripts; repeats every request until there is a reply.

    A change keeps its id over repetitions, so the service makes it once. A caller that may restart
    in between passes its `request_id` and keeps it.

    Raises (from every method):
        SessionNotFoundError: There is no session with the given id, or it belongs to another
            person.
        ConflictingRequestError: Another request used the given request id.
        UnansweredRequestError: The service did not reply in time; it may have made the change.
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
        reasoning: bool = False,
        with_rooms: bool = False,
    ) -> AsyncIterator[tuple[TranscriptEntry, ...]]:
        """Yield the transcript in pages, newest page first, each page oldest row first.

        Args:
            session_id: Session to read.
            before_seq: Only rows below this seq.
            page_size: Rows of a page; the number differs where a call and its results stay
                together.
            whole_chain: Whether to continue with the sessions that this one continues.
            as_stored: Whether to show the stored rows, without placeholders for the
                results of calls that have none.
            reasoning: Whether rows have what the model thought. For a worker, the settings of
                its agent decide.
            with_rooms: Whether a person may also read what was said in a room that the person is a
                member of.
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
                reasoning=reasoning,
                with_rooms=with_rooms,
            )
            reply = await self._ask("transcript", "load", request, TranscriptReply)
            yield reply.rows
            before_seq, cursor = reply.next_before_seq, reply.next_cursor
            if before_seq is None and cursor is None:
                return

    async def newest(
        self, session_id: UUID, *, limit: int = 100, before_seq: int | None = None
    ) -> tuple[TranscriptEntry, ...]:
        """Return the newest rows of a transcript, oldest first, as valid input for a model.

        Args:
            session_id: Session to read.
            limit: Maximum number of rows, over as many pages as needed; fewer if the first
                rows are results of a call that is left out.
            before_seq: Only rows below this seq.
        """
        rows: tuple[TranscriptEntry, ...] = ()
        size = min(limit, MAX_PAGE_ROWS)
        async for page in self.pages(session_id, before_seq=before_seq, page_size=size):
            rows = (*page, *rows)
            if len(rows) >= limit:
                break
        return _without_parted_results(rows, len(rows) - limit)

    async def content(self, session_id: UUID, seq: int, *, with_rooms: bool = False) -> str:
        """Return the whole content of a row, also of one that pages give shortened.

        Args:
            session_id: Session of the row.
            seq: Its place.
            with_rooms: As of `pages`.

        Raises:
            LookupError: There is no such row.
        """
        text, start = "", 0
        while True:
            request = TranscriptLoad(
                **self._stamp(),
                session_id=session_id,
                limit=1,
                before_seq=seq + 1,
                as_stored=True,
                content_from=start,
                with_rooms=with_rooms,
            )
            reply = await self._ask("transcript", "load", request, TranscriptReply)
            if not reply.rows or reply.rows[0].seq != seq:
                raise LookupError(f"session {session_id} has no row {seq}")
            text += reply.rows[0].content or ""
            if reply.rows[0].content_next is None:
                return text
            start = reply.rows[0].content_next

    async def revisions(self, session_id: UUID, seq: int) -> AsyncIterator[Revision]:
        """Yield the earlier texts of a row that was edited or deleted, newest first."""
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
        with_rooms: bool = False,
        page_size: int = 20,
    ) -> AsyncIterator[TranscriptHit]:
        """Yield the rows that match a query, best first.

        The search may not find very recent rows yet. If more than a thousand rows match, it finds
        the newest.

        Args:
            query: Words that must all be in a row, in at most 512 characters. `"Words in
                quotes"` must follow each other, `word*` matches a prefix, `-word` excludes rows.
            session_id: Only rows of this session.
            agent: Only rows of this agent's sessions.
            with_rooms: As of `pages`.
            page_size: Rows per request, at most 50.

        Raises:
            RefusedRequestError: The query has no word that rows must contain.
        """
        cursor = None
        while True:
            request = TranscriptSearch(
                **self._stamp(),
                query=query,
                session_id=session_id,
                agent=agent,
                with_rooms=with_rooms,
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
        """Append rows; skips rows whose id the transcript already has.

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
        """Replace a transcript, all or nothing.

        Args:
            session_id: Session to write to.
            rows: All rows, in order.
            expected_version: `version` of the transcript that the rows are based on.
            allow_empty: Whether to allow an empty transcript.
            request_id: Id under which to repeat the request after a restart.

        Raises:
            StaleRequestError: The transcript has changed since that version.
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
        """Replace the oldest rows with a summary; later rows follow it.

        Args:
            session_id: Session to write to.
            summary: The summary, in fewer rows than it replaces.
            through_seq: The last summarised row.
            expected_version: `version` of the transcript that the summary is based on.
            in_child: Whether to end the session and continue in another session that begins with
                the summary; the reply names it.
            request_id: Id under which to repeat the request after a restart.

        Raises:
            StaleRequestError: Rows were removed since that version; added rows are allowed.
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
        """Rewind the last turns completely; more turns than there are rewinds all.

        Raises:
            StaleRequestError: The transcript has changed since that version.
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
        """Rewind the last turn and queue its messages to be answered again.

        Raises:
            StaleRequestError: The transcript has changed since that version.
            ConflictingRequestError: A turn is running, there is no message, or the session has
                ended.
        """
        request = TranscriptRetry(
            **self._stamp(request_id),
            session_id=session_id,
            expected_version=expected_version,
        )
        return await self._ask("transcript", "retry", request, TranscriptChanged)

    async def removed(
        self, session_id: UUID, *, removal: int | None = None, page_size: int = 100
    ) -> AsyncIterator[RemovedEntry]:
        """Yield the rows that were taken out of a transcript, the last change and row first.

        Args:
            session_id: Session to read.
            removal: Only rows that this change took out.
            page_size: Rows per request, at most 500.
        """
        cursor = None
        while True:
            request = TranscriptRemoved(
                **self._stamp(),
                session_id=session_id,
                removal=removal,
                limit=page_size,
                cursor=cursor,
            )
            reply = await self._ask("transcript", "removed", request, TranscriptRemovedReply)
            for row in reply.rows:
                yield row
            cursor = reply.next_cursor
            if cursor is None:
                return

    async def restore(
        self,
        session_id: UUID,
        removal: int,
        *,
        expected_version: str,
        request_id: str | None = None,
    ) -> TranscriptChanged:
        """Put the rows that one change took out back, in place of the rows that replaced them.

        Args:
            session_id: Session to write to.
            removal: `removal` of the rows.
            expected_version: `version` of the transcript that the decision is based on.
            request_id: Id under which to repeat the request after a restart.

        Raises:
            StaleRequestError: The transcript has changed since that version.
            ConflictingRequestError: A turn is running, the session has ended, there are no such
                rows, or a later change replaced rows at their places.
        """
        request = TranscriptRestore(
            **self._stamp(request_id),
            session_id=session_id,
            removal=removal,
            expected_version=expected_version,
        )
        return await self._ask("transcript", "restore", request, TranscriptChanged)

    async def version(self, session_id: UUID) -> str:
        """Return the version of a transcript, to base a change on it."""
        request = TranscriptLoad(**self._stamp(), session_id=session_id, limit=1)
        reply = await self._ask("transcript", "load", request, TranscriptReply)
        return reply.version or ""


def _without_parted_results(
    rows: tuple[TranscriptEntry, ...], left_out: int
) -> tuple[TranscriptEntry, ...]:
    """Return the rows after the first ones, without results of calls that are left out."""
    start = max(left_out, 0)
    for place in range(start, len(rows) if start else 0):
        if rows[place].tool_calls:
            break
        if rows[place].role is Role.TOOL:
            start = place + 1
    return rows[start:]
