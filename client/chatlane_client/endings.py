"""Lets an agent write down what matters before a conversation is closed by time."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client.connection import closed_error_first
from chatlane_client.errors import ChatlaneClientError
from chatlane_client.session_life import SessionLifeApi
from chatlane_schemas import DecodeError, SessionEnding, decode, subjects

_log = logging.getLogger("chatlane_client")

WriteNote: TypeAlias = Callable[[SessionEnding], Awaitable[str | None]]
"""From an announced end to the note for the next session; None or `""` leaves none."""

# Sessions end by the thousand at one hour; who writes summaries slower than that skips some.
_WAITING: Final = 10_000


class NoteWriter:
    """Leaves notes for the sessions that follow those which are about to end by time.

    The announcement goes to one process of the agent, at most once: a note is a courtesy, and
    a conversation that gets none loses nothing of its transcript.
    """

    def __init__(self, client: Client, agent: str, write: WriteNote, *, principal: str) -> None:
        """Make a writer; `run` starts it.

        Args:
            client: An open connection.
            agent: The agent whose sessions it looks after.
            write: Makes a note; has until the `deadline` of the announcement.
            principal: The name the connection's permissions allow it to ask under.
        """
        self._client = client
        self._agent = agent
        self._write = write
        self._sessions = SessionLifeApi(client, principal=principal, agent=agent)

    async def run(self) -> None:
        """Write notes, one after the other, until cancelled.

        Raises:
            ConnectionClosedError: The connection is gone for good.
        """
        with closed_error_first():
            told: asyncio.Queue[SessionEnding] = asyncio.Queue(_WAITING)
            hearing = await self._client.subscribe(
                subjects.event("session", "ending"),
                queue=f"{self._agent}-notes",
                cb=partial(self._hear, told),
            )
            try:
                while True:
                    await self._leave_note(await told.get())
            finally:
                with contextlib.suppress(nats.errors.Error):
                    await hearing.unsubscribe()

    async def _hear(self, told: asyncio.Queue[SessionEnding], message: Msg) -> None:
        try:
            ending = decode(SessionEnding, message.data)
        except DecodeError as exc:
            # Perhaps of a newer release.
            _log.warning("ending_not_understood", extra={"error": str(exc)})
            return
        if ending.agent != self._agent:
            return
        try:
            told.put_nowait(ending)
        except asyncio.QueueFull:
            _log.warning("note_skipped", extra={"session_id": str(ending.session_id)})

    async def _leave_note(self, ending: SessionEnding) -> None:
        about = {"session_id": str(ending.session_id)}
        try:
            note = await self._write(ending)
            if note:
                await self._sessions.leave_note(ending.session_id, note)
        except ChatlaneClientError as exc:
            _log.warning("note_not_left", extra={**about, "error": type(exc).__name__})
        except Exception:  # noqa: BLE001 - one that fails keeps none of the others from being written
            _log.exception("note_not_written", extra=about)
