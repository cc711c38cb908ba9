"""Reads whole streams to find what is somebody's, and deletes single messages for good.

A deleted message is not read by anybody any more. Whether the server also overwrites it on disk is
asked for each time: that takes it some milliseconds, in which it answers no other request.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError

from chatlane.bus.jetstream import (
    REQUEST_TIMEOUT,
    ApiRefusedError,
    JetStream,
    StoredMessage,
    StreamState,
    nanoseconds,
    parse_delivery,
    parse_time,
)
from chatlane.errors import BusUnavailableError
from chatlane_schemas import subjects
from chatlane_schemas.streams import ERASING_CONSUMER, StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from nats.aio.client import Client
    from nats.aio.subscription import Subscription

# Of the largest messages these are still no more than some tens of megabytes.
_READ_AT_ONCE: Final = 64
# The server takes requests one after the other, those of routers among them.
_DELETED_AT_ONCE: Final = 16
_OVERWRITTEN_AT_ONCE: Final = 2
# It shares the server with everybody else, and is in no hurry.
_PATIENCE: Final = timedelta(seconds=15)
_INACTIVE: Final = 10 * REQUEST_TIMEOUT
_STORED_AS: Final = {
    StreamName.INBOUND: subjects.LOG,
    StreamName.ROUTED: subjects.ROUTED,
    StreamName.TURNS: subjects.TURN,
    StreamName.RESULTS: subjects.RLOG,
    StreamName.OUTBOUND: subjects.OUTBOUND,
    StreamName.EVENTS: subjects.EVENT,
    StreamName.DEAD: subjects.DEAD,
}
# What is left out, advisories of the server, has numbers only.
STREAMS: Final = tuple(_STORED_AS)
_NO_SUCH_SEQUENCE: Final = 10043


class StreamErasure:
    """The streams, for who erases.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jetstream = JetStream(client, _PATIENCE)

    async def clock(self) -> datetime:
        """Return the time now by the clock that messages get theirs from."""
        info = await self._jetstream.request(f"STREAM.INFO.{StreamName.INBOUND}")
        told = info.get("ts")
        return parse_time(told) if told else datetime.now(UTC)

    async def state(self, stream: StreamName) -> StreamState | None:
        """Return how far a stream goes, or None when there is no such stream."""
        return await self._jetstream.find_stream(stream)

    async def find_stored_at(self, stream: str, sequence: int) -> datetime | None:
        """Return when a message was stored, if it is there."""
        message = await self._jetstream.find_message(stream, sequence)
        return message.stored_at if message else None

    async def first_stored_at(self, stream: StreamName) -> datetime | None:
        """Return when the oldest message of a stream was stored; None when it is empty."""
        state = await self.state(stream)
        if state is None or state.first_sequence > state.last_sequence:
            return None
        return await self.find_stored_at(stream, state.first_sequence)

    async def read(
        self, stream: StreamName, account: tuple[str, str] | None = None
    ) -> AsyncIterator[list[StoredMessage]]:
        """Yield all messages that a stream holds now, some at a time.

        Args:
            stream: Of which stream.
            account: Of INBOUND: only what came to this account of a platform.
        """
        subject = subjects.wildcards(_STORED_AS[stream])
        if account is not None:
            platform, name = account
            subject = subjects.wildcards(subjects.LOG, platform=platform, account=name)
        config = {
            "name": ERASING_CONSUMER,
            "deliver_policy": "all",
            "ack_policy": "none",
            "filter_subject": subject,
            "inactive_threshold": nanoseconds(_INACTIVE),
            "num_replicas": 1,
            "mem_storage": True,
        }
        consumer = f"{stream}.{ERASING_CONSUMER}"
        # One that somebody left behind would go on where it was.
        await self._jetstream.find(f"CONSUMER.DELETE.{consumer}")
        async with self._inbox() as inbox:
            created = await self._jetstream.request(
                f"CONSUMER.CREATE.{consumer}.{subject}",
                {"stream_name": stream, "action": "create", "config": config},
            )
            wanted = int(created["num_pending"])
            while wanted > 0:
                got = await self._pull(consumer, inbox, min(wanted, _READ_AT_ONCE))
                if not got:
                    break
                wanted -= len(got)
                yield got
            await self._jetstream.find(f"CONSUMER.DELETE.{consumer}")

    @asynccontextmanager
    async def _inbox(self) -> AsyncIterator[Subscription]:
        try:
            inbox = await self._client.subscribe(
                self._client.new_inbox(), pending_msgs_limit=0, pending_bytes_limit=0
            )
        except NatsError as exc:
            raise BusUnavailableError(type(exc).__name__) from exc
        try:
            yield inbox
        finally:
            if self._client.is_connected:
                await inbox.unsubscribe()

    async def _pull(self, consumer: str, inbox: Subscription, batch: int) -> list[StoredMessage]:
        """Return the next messages; fewer, or none, where others went while they were read."""
        request = json.dumps({"batch": batch, "expires": nanoseconds(REQUEST_TIMEOUT)})
        got: list[StoredMessage] = []
        try:
            await self._client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{consumer}", request.encode(), reply=inbox.subject
            )
            for _ in range(batch):
                message = await inbox.next_msg(timeout=2 * REQUEST_TIMEOUT.total_seconds())
                delivery = parse_delivery(message.reply) if message.reply else None
                if delivery is None:
                    # The request has ended: there is no more.
                    return got
                sequence, _, stored_at = delivery
                got.append(StoredMessage(sequence, stored_at, message.subject, message.data))
        except (NatsError, OSError, TimeoutError) as exc:
            raise BusUnavailableError(f"reading {type(exc).__name__}") from exc
        return got

    async def delete(self, stream: str, sequences: Iterable[int], *, overwrite: bool) -> None:
        """Delete messages; those that are not there any more are no error.

        Args:
            stream: Of which stream.
            sequences: Which.
            overwrite: Whether their bytes on disk are overwritten before the server returns.
        """
        free = asyncio.Semaphore(_OVERWRITTEN_AT_ONCE if overwrite else _DELETED_AT_ONCE)

        async def one(sequence: int) -> None:
            async with free:
                await self._delete(stream, sequence, overwrite=overwrite)

        try:
            async with asyncio.TaskGroup() as tasks:
                for sequence in sequences:
                    tasks.create_task(one(sequence))
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
