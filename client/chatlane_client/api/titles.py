"""Give sessions the titles that a model makes, after their answers and beside them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final
from uuid import UUID

from chatlane_client.api.session_api import SessionApi
from chatlane_client.errors import ConflictingRequestError
from chatlane_schemas.content.visible_text import shown_title
from chatlane_schemas.session_api.session_changes import MAX_TITLE_CHARACTERS

_log = logging.getLogger("chatlane_client")

TitleMaker = Callable[[str, str], Awaitable[str | None]]
"""Returns a title for a conversation, from a message of a person and its answer; None for none yet."""

_PATIENCE: Final = timedelta(minutes=1)
_AT_ONCE: Final = 32
_MOST_KNOWN: Final = 10_000


class SessionTitles:
    """Asks for a title of each session that has an answer and no title.

    The answer is stored before, so a title that cannot be made delays and loses nothing. A worker
    that dies meanwhile leaves the session without a title; the next answer in it asks again.

    Args:
        sessions: Reads the sessions of the agent, and sets their titles.
        make: Makes a title. Its errors are logged, and the next answer in the session asks again.
    """

    def __init__(self, sessions: SessionApi, make: TitleMaker) -> None:
        self._sessions = sessions
        self._make = make
        self._running: dict[UUID, asyncio.Task[None]] = {}
        # Sessions that need no title any more, oldest first.
        self._known: dict[UUID, None] = {}

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Drop the open requests at the end of the block."""
        try:
            yield
        finally:
            running = [*self._running.values()]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def note_answer(self, session_id: UUID, question: str, answer: str) -> None:
        """Ask for a title in the background, unless the session has one or is being asked about."""
        if session_id in self._known or session_id in self._running:
            return
        if len(self._running) >= _AT_ONCE or not (question.strip() and answer.strip()):
            return
        task = asyncio.create_task(self._give(session_id, question, answer))
        self._running[session_id] = task
        task.add_done_callback(lambda _: self._running.pop(session_id, None))

    async def _give(self, session_id: UUID, question: str, answer: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                session = await self._sessions.get(session_id)
                if session.title is not None:
                    self._remember(session_id)
                    return
                title = shown_title(await self._make(question, answer) or "")
                if not title:
                    return
                await self._sessions.set_title(
                    session_id,
                    title[:MAX_TITLE_CHARACTERS].rstrip(),
                    by_model=True,
                    # Somebody may give the session a title meanwhile.
                    expected_version=session.version,
                )
                self._remember(session_id)
        except ConflictingRequestError:
            # Another session of the person has this title: the first words stand for one.
            self._remember(session_id)
        except Exception as exc:  # noqa: BLE001 - a title is worth no failure
            # Without the error text, which may quote messages.
            about = {"session_id": str(session_id), "reason": type(exc).__name__}
            _log.warning("title_failed", extra=about)

    def _remember(self, session_id: UUID) -> None:
        self._known[session_id] = None
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
