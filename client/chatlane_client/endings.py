"""Leave notes for the next session before sessions reach a timed end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias

from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client.api.session_life import SessionLifeApi
from chatlane_client.errors import ChatlaneClientError, ConnectionClosedError
from chatlane_client.transport.connection import open_subscription, until_connected
from chatlane_client.transport.retry import CancellationGuard
from chatlane_schemas import DecodeError, SessionEnding, decode
from chatlane_schemas.topology import subjects

_log = logging.getLogger("chatlane_client")

WriteNote: TypeAlias = Callable[[SessionEnding], Awaitable[str | None]]
"""Returns the note for the next session after an announcement; None or `""` leaves none."""

# Thousands of sessions may end within one hour; a slow writer skips some.
_WAITING: Final = 10_000
_LOOK_AGAIN: Final = timedelta(seconds=1)


class NoteWriter:
    """Leaves notes for the sessions that follow sessions with an announced end.

    The announcement goes to one process of the agent, at most once. A note is optional: a
    conversation without one loses nothing of its transcript.
    """

    def __init__(self, client: Client, agent: str, write: WriteNote, *, principal: str) -> None:
        """Create the writer; `run` starts it.

        Args:
            client: An open connection.
            agent: The agent that owns the sessions.
            write: Writes a note; must return by the `deadline` of the announcement.
            principal: The name that the connection's permissions allow in requests.
        """
        self._client = client
        self._agent = agent
        self._write = write
        self._sessions = SessionLifeApi(client, principal=principal, agent=agent)

    async def run(self) -> None:
        """Write notes, one at a time, until cancelled.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """
        announcements: asyncio.Queue[SessionEnding] = asyncio.Queue(_WAITING)
        hear = partial(self._hear, announcements)
        subject, queue = subjects.ending(self._agent), f"{self._agent}-notes"
        guard = CancellationGuard()
        await until_connected(self._client)
        async with open_subscription(self._client, subject, hear, queue=queue):
            while True:
                guard.check()
                # A closed connection calls no callback, so its state is polled.
                await until_connected(self._client)
                try:
                    async with asyncio.timeout(_LOOK_AGAIN.total_seconds()):
                        ending = await announcements.get()
                except TimeoutError:
                    continue
                await self._leave_note(ending)

    async def _hear(self, announcements: asyncio.Queue[SessionEnding], message: Msg) -> None:
        try:
            ending = decode(SessionEnding, message.data)
        except DecodeError as exc:
            # The announcement may be of a newer release.
            _log.warning("ending_not_understood", extra={"error": str(exc)})
            return
        if ending.agent != self._agent:
            return
        try:
            announcements.put_nowait(ending)
        except asyncio.QueueFull:
            _log.warning("note_skipped", extra={"session_id": str(ending.session_id)})

    async def _leave_note(self, ending: SessionEnding) -> None:
        about = {"session_id": str(ending.session_id)}
        try:
            note = await self._write(ending)
            if note:
                await self._sessions.leave_note(ending.session_id, note)
        except ConnectionClosedError:
            raise
        except ChatlaneClientError as exc:
            _log.warning("note_not_left", extra={**about, "error": type(exc).__name__})
        except Exception:  # noqa: BLE001 - a failed note must not stop the others
            _log.exception("note_not_written", extra=about)
