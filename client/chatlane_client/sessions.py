"""The read-only session API, typed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar
from uuid import UUID

from nats.aio.client import Client

from chatlane_client.errors import (
    SessionNotFoundError,
    TransientError,
    UnansweredRequestError,
)
from chatlane_client.retry import Backoff, CancellationGuard
from chatlane_client.wire import ask
from chatlane_schemas import Envelope, new_envelope_id, subjects
from chatlane_schemas.sessions import (
    ApiReply,
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

ReplyT = TypeVar("ReplyT", bound=ApiReply)

MAX_PAGE_ROWS: Final = 500


class SessionClient:
    """Reads sessions and transcripts; every request is repeated until it is answered."""

    def __init__(
        self, client: Client, *, principal: str, patience: timedelta = timedelta(seconds=10)
    ) -> None:
        """Make a client.

        Args:
            client: An open connection.
            principal: The name the connection's permissions allow it to ask under.
            patience: When to give up on a request.
        """
        self._client = client
        self._principal = principal
        self._patience = patience

    async def get(self, session_id: UUID) -> SessionView:
        """Return a session.

        Raises:
            SessionNotFoundError: There is none of this id.
        """
        request = SessionGet(id=new_envelope_id(), at=datetime.now(UTC), session_id=session_id)
        reply = await self._read("session", "get", request, SessionReply)
        if reply.session is None:
            raise SessionNotFoundError(self._subject("session", "get"), f"no session {session_id}")
        return reply.session

    async def peek(self, session_key: str) -> SessionView | None:
        """Return the session a key leads to now, if it leads to one."""
        request = SessionPeek(id=new_envelope_id(), at=datetime.now(UTC), session_key=session_key)
        try:
            return (await self._read("session", "peek", request, SessionReply)).session
        except SessionNotFoundError:
            return None

    async def list_all(
        self, *, platform: str | None = None, agent: str | None = None, page_size: int = 50
    ) -> AsyncIterator[SessionView]:
        """Yield all sessions, the newest first."""
        cursor = None
        while True:
            request = SessionList(
                id=new_envelope_id(),
                at=datetime.now(UTC),
                platform=platform,
                agent=agent,
                limit=page_size,
                cursor=cursor,
            )
            reply = await self._read("session", "list", request, SessionListReply)
            for session in reply.sessions:
                yield session
            if (cursor := reply.next_cursor) is None:
                return

    async def transcript_pages(
        self, session_id: UUID, *, before_seq: int | None = None, page_size: int = 100
    ) -> AsyncIterator[tuple[TranscriptEntry, ...]]:
        """Yield the transcript in pages, the newest page first, each oldest row first.

        Raises:
            SessionNotFoundError: There is none of this id.
        """
        while True:
            request = TranscriptLoad(
                id=new_envelope_id(),
                at=datetime.now(UTC),
                session_id=session_id,
                limit=page_size,
                before_seq=before_seq,
            )
            reply = await self._read("transcript", "load", request, TranscriptReply)
            yield reply.rows
            if (before_seq := reply.next_before_seq) is None:
                return

    async def transcript(
        self, session_id: UUID, *, limit: int = 100, before_seq: int | None = None
    ) -> tuple[TranscriptEntry, ...]:
        """Return the newest rows of a transcript, oldest first.

        Args:
            session_id: Session to read.
            limit: How many rows at most, over as many pages as it takes.
            before_seq: Only rows below this one.
        """
        rows: tuple[TranscriptEntry, ...] = ()
        size = min(limit, MAX_PAGE_ROWS)
        async for page in self.transcript_pages(session_id, before_seq=before_seq, page_size=size):
            rows = (*page, *rows)
            if len(rows) >= limit:
                break
        return rows[-limit:]

    def _subject(self, noun: str, verb: str) -> str:
        return subjects.api(self._principal, noun, verb)

    async def _read(self, noun: str, verb: str, request: Envelope, model: type[ReplyT]) -> ReplyT:
        """Ask until there is an answer; reading twice changes nothing."""
        subject = self._subject(noun, verb)
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                guard = CancellationGuard()
                for pause in Backoff().pauses():
                    if reply := await self._try_read(subject, request, model):
                        return reply
                    guard.check()
                    await asyncio.sleep(pause)
        except TimeoutError as exc:
            raise UnansweredRequestError(subject, reached_nobody=False) from exc
        raise AssertionError("pauses never end")

    async def _try_read(
        self, subject: str, request: Envelope, model: type[ReplyT]
    ) -> ReplyT | None:
        try:
            return await ask(self._client, subject, request, model)
        except TransientError:
            return None
