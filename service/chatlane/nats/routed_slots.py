"""Read and pause the durables of stream agents, one per slot."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import ApiRefusedError, JetStream, answered_at
from chatlane.observability.logs import get_logger
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from nats.aio.client import Client

    from chatlane.nats.jetstream import StoredMessage

_STREAM: Final = StreamName.ROUTED
# If this process dies, the slot stays paused for so long.
_PAUSE: Final = timedelta(seconds=5)
_RECHECK_INTERVAL: Final = timedelta(milliseconds=10)
_RECHECKS: Final = 100

_log = get_logger("routed_slots")


class RoutedSlots:
    """Reads the state of stream agents' durables and their pending messages in ROUTED.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._jetstream = JetStream(client)

    async def newest(self, session_id: UUID) -> StoredMessage | None:
        """Return the newest message of a session, for any agent and slot."""
        return await self._jetstream.find_last_message(_STREAM, f"chat.v1.routed.*.*.{session_id}")

    async def delivered(self, durable: str) -> int | None:
        """Return the sequence of the newest message that was delivered to workers.

        Return 0 if none was delivered, None if there is no such durable.
        """
        info = await self._jetstream.find(f"CONSUMER.INFO.{_STREAM}.{durable}")
        return None if info is None else int(info["delivered"]["stream_seq"])

    async def stored(self, subject: str, first: int, limit: int) -> list[StoredMessage]:
        """Return up to `limit` messages of a subject from a sequence on, in order."""
        found: list[StoredMessage] = []
        while len(found) < limit:
            message = await self._jetstream.find_next_message(_STREAM, first, subject)
            if message is None:
                break
            found.append(message)
            first = message.sequence + 1
        return found

    @asynccontextmanager
    async def paused(self, durable: str) -> AsyncIterator[None]:
        """Pause delivery through a durable for the length of the block.

        The deadline uses the server's clock, which may differ from ours. If this process dies, the
        server resumes delivery at the deadline.
        """
        verb = f"CONSUMER.PAUSE.{_STREAM}.{durable}"
        info = await self._jetstream.request(f"CONSUMER.INFO.{_STREAM}.{durable}")
        until = answered_at(info) + _PAUSE
        try:
            await self._jetstream.request(verb, {"pause_until": until.isoformat()})
            await self._until_paused(durable)
            yield
        finally:
            await self._resume(verb)

    async def _until_paused(self, durable: str) -> None:
        """Wait until the leader of the durable has applied the pause."""
        for _ in range(_RECHECKS):
            info = await self._jetstream.request(f"CONSUMER.INFO.{_STREAM}.{durable}")
            if info.get("paused"):
                return
            await asyncio.sleep(_RECHECK_INTERVAL.total_seconds())
        raise BusUnavailableError("the durable was not paused")

    async def _resume(self, verb: str) -> None:
        try:
            await self._jetstream.request(verb, {})
        except (ApiRefusedError, BusUnavailableError) as error:
            # The server resumes delivery when the pause ends.
            _log.warning("slot_not_resumed", reason=str(error))
