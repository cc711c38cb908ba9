"""Routes of transcripts: read, search, and take back; once for people, once for operators."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Response

from chatlane_console.conversations import Conversations
from chatlane_console.http.problems import ProblemError
from chatlane_console.routes.bodies import (
    ChangedTranscript,
    HitsPage,
    RemovedPage,
    RestoredChange,
    RevisionsPage,
    RewoundTurns,
    RowContent,
    RowsPage,
)
from chatlane_console.routes.callers import ExpectedVersion, RequestId, State
from chatlane_schemas.fields import MAX_INT64
from chatlane_schemas.session_api.transcripts import MAX_QUERY_CHARACTERS, TranscriptChanged

_Place = Annotated[int, Query(ge=0, le=MAX_INT64)]
# Reading a row asks for those below the next place, which must be a place as well.
_PathPlace = Annotated[int, Path(ge=0, lt=MAX_INT64)]


def transcript_routes(reach: Callable[..., Conversations]) -> APIRouter:
    """Return the routes of transcripts.

    Args:
        reach: Dependency that returns the requests of the caller.
    """
    router = APIRouter()
    _add_reads(router, reach)
    _add_changes(router, reach)
    return router


def _add_reads(router: APIRouter, reach: Callable[..., Conversations]) -> None:
    reached = Annotated[Conversations, Depends(reach)]

    @router.get("/sessions/{session_id}/rows", summary="Read a transcript")
    async def read_rows(
        conversations: reached,
        session_id: UUID,
        response: Response,
        *,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
        before: Annotated[int | None, Query(ge=0, le=MAX_INT64)] = None,
        cursor: Annotated[str | None, Query(pattern=r"^[0-9a-f]{32}\.[0-9]{1,19}$")] = None,
        whole_chain: bool = False,
        reasoning: bool = False,
    ) -> RowsPage:
        """Return the newest rows of a transcript, or those before one; its `ETag` is its version."""
        reply = await conversations.pages.rows(
            session_id,
            limit=limit,
            before_seq=before,
            cursor=cursor,
            whole_chain=whole_chain,
            reasoning=reasoning,
            as_stored=True,
            with_rooms=True,
        )
        if reply.version is not None:
            response.headers["ETag"] = f'"{reply.version}"'
        return RowsPage(
            rows=reply.rows,
            next_before=reply.next_before_seq,
            next_cursor=reply.next_cursor,
            version=reply.version,
        )

    @router.get("/sessions/{session_id}/rows/{seq}/content", summary="Read a whole row")
    async def read_content(conversations: reached, session_id: UUID, seq: _PathPlace) -> RowContent:
        """Return the whole content of a row, also of one that pages give shortened."""
        try:
            content = await conversations.transcripts.content(session_id, seq, with_rooms=True)
            return RowContent(content=content)
        except LookupError:
            raise ProblemError(HTTPStatus.NOT_FOUND, "not_found", "no such row") from None

    @router.get("/sessions/{session_id}/rows/{seq}/revisions", summary="Read earlier texts")
    async def list_revisions(
        conversations: reached,
        session_id: UUID,
        seq: _PathPlace,
        *,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        before: _Place | None = None,
    ) -> RevisionsPage:
        """Return the earlier texts of a row that was edited or deleted, newest first."""
        reply = await conversations.pages.revisions(session_id, seq, limit=limit, before=before)
        return RevisionsPage(revisions=reply.revisions, next_before=reply.next_before)

    @router.get("/sessions/{session_id}/removed", summary="Read removed rows")
    async def list_removed(
        conversations: reached,
        session_id: UUID,
        response: Response,
        *,
        removal: _Place | None = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
        cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,19}\.[0-9]{1,19}$")] = None,
    ) -> RemovedPage:
        """Return the rows that were taken out of a transcript, the last one first."""
        reply = await conversations.pages.removed(
            session_id, removal=removal, limit=limit, cursor=cursor
        )
        if reply.version is not None:
            response.headers["ETag"] = f'"{reply.version}"'
        return RemovedPage(rows=reply.rows, next_cursor=reply.next_cursor, version=reply.version)

    @router.get("/search", summary="Search transcripts")
    async def search_rows(
        conversations: reached,
        q: Annotated[str, Query(min_length=1, max_length=MAX_QUERY_CHARACTERS)],
        *,
        session_id: UUID | None = None,
        agent: Annotated[str | None, Query(pattern=r"^[a-z0-9_-]{1,64}$")] = None,
        limit: Annotated[int, Query(ge=1, le=50)] = 20,
        cursor: Annotated[str | None, Query(pattern=r"^[0-9a-f]{8}\.[0-9]{1,19}$")] = None,
    ) -> HitsPage:
        """Return rows with all words of a query, best first.

        `"Words in quotes"` follow each other, `word*` matches a prefix, `-word` excludes rows.
        """
        reply = await conversations.pages.hits(
            q, session_id=session_id, agent=agent, limit=limit, cursor=cursor, with_rooms=True
        )
        return HitsPage(hits=reply.hits, next_cursor=reply.next_cursor)


def _add_changes(router: APIRouter, reach: Callable[..., Conversations]) -> None:
    reached = Annotated[Conversations, Depends(reach)]

    @router.post("/sessions/{session_id}/rewind", summary="Take back the last turns")
    async def rewind(
        conversations: reached,
        session_id: UUID,
        *,
        body: RewoundTurns,
        request_id: RequestId,
        version: ExpectedVersion,
        state: State,
    ) -> ChangedTranscript:
        """Take back the last turns completely: their messages, tool calls and answers."""
        reply = await conversations.transcripts.rewind(
            session_id, turns=body.turns, expected_version=version, request_id=request_id
        )
        await state.feeds.tell(session_id, "session.changed")
        return _changed(reply)

    @router.post("/sessions/{session_id}/retry", summary="Answer the last messages again")
    async def retry(
        conversations: reached,
        session_id: UUID,
        request_id: RequestId,
        version: ExpectedVersion,
        state: State,
    ) -> ChangedTranscript:
        """Take back the last turn, and queue its messages to be answered again."""
        reply = await conversations.transcripts.retry(
            session_id, expected_version=version, request_id=request_id
        )
        await state.feeds.tell(session_id, "session.changed")
        return _changed(reply)

    @router.post("/sessions/{session_id}/restore", summary="Put removed rows back")
    async def restore(
        conversations: reached,
        session_id: UUID,
        *,
        body: RestoredChange,
        request_id: RequestId,
        version: ExpectedVersion,
        state: State,
    ) -> ChangedTranscript:
        """Put the rows that one change took out back at their places."""
        if version is None:
            raise ProblemError(
                HTTPStatus.PRECONDITION_REQUIRED, "no_version", "this change needs If-Match"
            )
        reply = await conversations.transcripts.restore(
            session_id, body.removal, expected_version=version, request_id=request_id
        )
        await state.feeds.tell(session_id, "session.changed")
        return _changed(reply)


def _changed(reply: TranscriptChanged) -> ChangedTranscript:
    return ChangedTranscript(
        version=reply.version,
        removed_rows=reply.removed_rows,
        restored_rows=reply.restored_rows,
        undone_text=reply.undone_text,
        turn_id=reply.turn_id,
    )
