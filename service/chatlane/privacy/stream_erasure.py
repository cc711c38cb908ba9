"""Read whole streams to find the messages of a person, and delete single messages permanently.

No consumer can read a deleted message. The caller decides for each deletion whether the server also
overwrites the message on disk. That takes some milliseconds, in which the server answers no other
request.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import (
    REQUEST_TIMEOUT,
    ApiRefusedError,
    JetStream,
    StoredMessage,
    StreamState,
    answered_at,
)
from chatlane.nats.stream_scan import open_pass
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import ERASING_CONSUMER, StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from nats.aio.client import Client

# Even with messages of the maximum size, this is at most some tens of megabytes.
_READ_AT_ONCE: Final = 64
# The server handles requests one after the other, including those of routers.
_DELETED_AT_ONCE: Final = 16
_OVERWRITTEN_AT_ONCE: Final = 2
# An erasure shares the server with all clients and is not urgent, so it waits longer for answers.
_PATIENCE: Final = timedelta(seconds=15)
_INACTIVE: Final = 10 * REQUEST_TIMEOUT
# Stored subject of each stream in `STREAMS_OF_PEOPLE`.
_STORED_AS: Final = {
    StreamName.INBOUND: subjects.LOG,
    StreamName.ROUTED: subjects.ROUTED,
    StreamName.TURNS: subjects.TURN,
    StreamName.RESULTS: subjects.RLOG,
    StreamName.OUTBOUND: subjects.OUTBOUND,
    # Session and turn events have subjects of different lengths.
    StreamName.EVENTS: f"{subjects.ROOT}.event.>",
    StreamName.DEAD: subjects.DEAD,
}
_NO_SUCH_SEQUENCE: Final = 10043


class StreamErasure:
    """Access to the streams for exports and erasures.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jetstream = JetStream(client, _PATIENCE)

    async def clock(self) -> datetime:
        """Return the current time by the clock that sets the times of messages."""
        info = await self._jetstream.request(f"STREAM.INFO.{StreamName.INBOUND}")
        return answered_at(info)

    async def state(self, stream: StreamName) -> StreamState | None:
        """Return the state of a stream, or None if there is no such stream."""
        return await self._jetstream.find_stream(stream)

    async def find_stored_at(self, stream: str, sequence: int) -> datetime | None:
        """Return the stored time of a message, or None if it is not there."""
        message = await self._jetstream.find_message(stream, sequence)
        return message.stored_at if message else None

    async def first_stored_at(self, stream: StreamName) -> datetime | None:
        """Return the stored time of the oldest message of a stream, or None if it is empty."""
        state = await self.state(stream)
        if state is None or state.first_sequence > state.last_sequence:
            return None
        return await self.find_stored_at(stream, state.first_sequence)

    async def read(
        self,
        stream: StreamName,
        account: tuple[str, str] | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[list[StoredMessage]]:
        """Yield all messages that a stream holds now, in batches.

        Args:
            stream: The stream to read.
            account: For INBOUND: only events of this (platform, account).
            until: Approximate stored time of the last message to read; None for all.
        """
        subject = subjects.wildcards(_STORED_AS[stream])
        if account is not None:
            platform, name = account
            subject = subjects.wildcards(subjects.LOG, platform=platform, account=name)
        # Delete a consumer that an interrupted run left: it would continue at its old position.
        await self._jetstream.find(f"CONSUMER.DELETE.{stream}.{ERASING_CONSUMER}")
        config = {"name": ERASING_CONSUMER, "deliver_policy": "all", "filter_subject": subject}
        async with open_pass(
            self._client, self._jetstream, stream, config, inactive=_INACTIVE
        ) as reading:
            pieces = reading.read(
                reading.pending, at_once=_READ_AT_ONCE, within=2 * REQUEST_TIMEOUT
            )
            async for got in pieces:
                yield [
                    StoredMessage(
                        delivery.stream_sequence, delivery.stored_at, message.subject, message.data
                    )
                    for message, delivery in got
                ]
                if until is not None and got[-1][1].stored_at > until:
                    return

    async def delete(self, stream: str, sequences: Iterable[int], *, overwrite: bool) -> None:
        """Delete messages; a message that is already gone is not an error.

        Args:
            stream: The stream that holds them.
            sequences: Sequences of the messages.
            overwrite: True if the server overwrites their bytes on disk before it answers.
        """
        free = asyncio.Semaphore(_OVERWRITTEN_AT_ONCE if overwrite else _DELETED_AT_ONCE)

        async def delete_one(sequence: int) -> None:
            async with free:
                await self._delete(stream, sequence, overwrite=overwrite)

        try:
            async with asyncio.TaskGroup() as tasks:
                for sequence in sequences:
                    tasks.create_task(delete_one(sequence))
        except ExceptionGroup as group:
            if group.split(BusUnavailableError)[1] is not None:
                raise
            raise BusUnavailableError("deleting failed") from group

    async def _delete(self, stream: str, sequence: int, *, overwrite: bool) -> None:
        try:
            await self._jetstream.request(
                f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": not overwrite}
            )
        except ApiRefusedError as error:
            is_there = "no message found" not in str(error).lower()
            if is_there and error.err_code != _NO_SUCH_SEQUENCE:
                raise
