"""Lets an agent write down what matters before a conversation is closed by time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias

from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client.connection import open_subscription, until_connected
from chatlane_client.errors import ChatlaneClientError, ConnectionClosedError
from chatlane_client.retry import CancellationGuard
from chatlane_client.session_life import SessionLifeApi
from chatlane_schemas import DecodeError, SessionEnding, decode, subjects

_log = logging.getLogger("chatlane_client")

WriteNote: TypeAlias = Callable[[SessionEnding], Awaitable[str | None]]
"""From an announced end to the note for the next session; None or `""` leaves none."""

# Sessions end by the thousand at one hour; who writes summaries slower than that skips some.
_WAITING: Final = 10_000
_LOOK_AGAIN: Final = timedelta(seconds=1)


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
        told: asyncio.Queue[SessionEnding] = asyncio.Queue(_WAITING)
        hear = partial(self._hear, told)
        subject, queue = subjects.ending(self._agent), f"{self._agent}-notes"
        guard = CancellationGuard()
        await until_connected(self._client)
        async with open_subscription(self._client, subject, hear, queue=queue):
            while True:
                guard.check()
                # Nothing is heard of a connection that was closed, so it is looked at.
                await until_connected(self._client)
                try:
                    async with asyncio.timeout(_LOOK_AGAIN.total_seconds()):
                        ending = await told.get()
                except TimeoutError:
                    continue
                await self._leave_note(ending)

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
        except ConnectionClosedError:
            raise
        except ChatlaneClientError as exc:
            _log.warning("note_not_left", extra={**about, "error": type(exc).__name__})
        except Exception:  # noqa: BLE001 - one that fails keeps none of the others from being written
            _log.exception("note_not_written", extra=about)
