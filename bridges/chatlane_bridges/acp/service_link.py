"""The connection to chatlane, opened when an editor first needs it."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from nats.aio.client import Client

from chatlane_bridges.acp.errors import failed, no_entry
from chatlane_bridges.acp.settings import ORIGIN, EditorSettings
from chatlane_client import (
    Refusal,
    SessionApi,
    SessionLifeApi,
    TranscriptApi,
)
from chatlane_client.api.requests import Api
from chatlane_schemas.session_api.sessions import (
    SessionList,
    SessionListReply,
    SessionOrder,
    SessionView,
)
from chatlane_schemas.session_api.transcripts import TranscriptEntry

_CONNECTED_WITHIN: Final = timedelta(seconds=10)
# Longer than a router takes to start again.
_PATIENCE: Final = timedelta(seconds=60)
_LISTED_AT_ONCE: Final = 50

_ApiT = TypeVar("_ApiT", bound=Api)


class SessionLists(Api):
    """Lists the sessions of editors page by page."""

    async def page(
        self, cwd: str | None, cursor: str | None
    ) -> tuple[tuple[SessionView, ...], str | None]:
        """Return the sessions of a page, those with the newest message first, and the next page.

        A router of an earlier release does not know the filters, so the caller checks again.
        """
        request = SessionList(
            **self._stamp(),
            origin=ORIGIN,
            archived=False,
            cwd=cwd,
            tips_only=True,
            order=SessionOrder.ACTIVITY,
            limit=_LISTED_AT_ONCE,
            cursor=cursor,
        )
        reply = await self._ask("session", "list", request, SessionListReply)
        return reply.sessions, reply.next_cursor


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of the client library that speak for one person."""

    sessions: SessionApi
    lists: SessionLists
    life: SessionLifeApi
    transcripts: TranscriptApi

    async def rows_after(self, session_id: UUID, seq: int) -> list[TranscriptEntry]:
        """Return the rows of a transcript behind a row, oldest first."""
        found: list[TranscriptEntry] = []
        pages = self.transcripts.pages(session_id, as_stored=True, reasoning=True)
        async for page in pages:
            newer = [row for row in page if row.seq > seq]
            found = [*newer, *found]
            if len(newer) < len(page):
                break
        return [await self.whole(session_id, row) for row in found]

    async def last_seq(self, session_id: UUID) -> int:
        """Return the place of the newest row of a transcript; 0 if it is empty."""
        async for page in self.transcripts.pages(session_id, page_size=1, as_stored=True):
            return page[-1].seq if page else 0
        return 0

    async def whole(self, session_id: UUID, row: TranscriptEntry) -> TranscriptEntry:
        """Return a row with its whole content."""
        if row.content_bytes is None:
            return row
        text = await self.transcripts.content(row.session_id or session_id, row.seq)
        return row.model_copy(update={"content": text})


class ServiceLink:
    """Opens one connection and keeps it until the editor is gone."""

    def __init__(self, settings: EditorSettings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._service: Service | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> Service:
        """Return the service.

        Raises:
            RequestError: NATS refuses the connection, or does not answer.
        """
        async with self._opening:
            if self._service is None:
                self._service = self._speaking(await self._connected())
            return self._service

    async def close(self) -> None:
        """Close the connection, if there is one."""
        await self._stack.aclose()

    async def _connected(self) -> Client:
        refused: asyncio.Future[Refusal] = asyncio.get_running_loop().create_future()

        def note(refusal: Refusal) -> None:
            if refusal.what == "connect" and not refused.done():
                refused.set_result(refusal)

        opening = asyncio.create_task(
            self._stack.enter_async_context(self._settings.connection("editor bridge", note))
        )
        waiting: set[asyncio.Future[Any]] = {opening, refused}
        patience = _CONNECTED_WITHIN.total_seconds()
        await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            try:
                return opening.result()
            except (OSError, ValueError) as exc:
                raise no_entry(f"The settings of NATS cannot be used: {exc}") from exc
        opening.cancel()
        await asyncio.wait({opening})
        if refused.done():
            raise no_entry("NATS refuses the key or password of this program.")
        raise failed("NATS does not answer.")

    def _speaking(self, client: Client) -> Service:
        principal, person = self._settings.principal, self._settings.acting_for

        def speaking(api: type[_ApiT]) -> _ApiT:
            return api(client, principal=principal, acting_for=person, patience=_PATIENCE)

        return Service(
            speaking(SessionApi),
            speaking(SessionLists),
            speaking(SessionLifeApi),
            speaking(TranscriptApi),
        )
