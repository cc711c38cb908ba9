"""Read the state of streams and durables, and the message ids of streams."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import (
    REQUEST_TIMEOUT,
    JetStream,
    StoredMessage,
    StreamState,
    answered_at,
    parse_time,
    stream_state,
)
from chatlane.nats.stream_scan import open_pass
from chatlane.reconciliation.stream_marks import StreamMark
from chatlane_schemas.topology.streams import COMPARING_CONSUMER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from nats.aio.client import Client

    from chatlane.nats.stream_scan import OnePass
    from chatlane_schemas.topology.streams import DurableSpec, StreamName

_AT_ONCE: Final = 500
_INACTIVE: Final = timedelta(seconds=10)
_MESSAGE_ID: Final = "Nats-Msg-Id"


class Look(NamedTuple):
    """State of a stream at the time of the server's answer.

    Attributes:
        max_age: How long the stream keeps messages; None without a limit.
        answered_at: Time of the answer, by the clock that sets the times of messages.
    """

    mark: StreamMark
    max_age: timedelta | None
    answered_at: datetime


class Held(NamedTuple):
    """Ids of messages that a stream holds.

    Attributes:
        is_all: True if the stream holds no further messages of the request.
        newest_at: When the newest of them was stored.
    """

    ids: set[str]
    is_all: bool
    newest_at: datetime | None


class Backlog(NamedTuple):
    """Messages of one durable that its readers have not acknowledged.

    Attributes:
        oldest_at: When the server stored the oldest of them; None if there is none.
        age: Age of the oldest message by the clock of the server.
        waiting: Number of open pull requests; a reader has one at a time.
        repeated: Number of these messages that were delivered more than once.
    """

    unread: int
    oldest_at: datetime | None
    age: timedelta = timedelta(0)
    waiting: int = 0
    repeated: int = 0


class StreamContents:
    """Reads streams and durables without affecting their consumers.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jetstream = JetStream(client)

    async def look(self, stream: StreamName) -> Look | None:
        """Return the state of a stream, or None if there is no such stream."""
        info = await self._jetstream.find(f"STREAM.INFO.{stream}")
        if info is None:
            return None
        state, shown = info["state"], stream_state(info)
        mark = StreamMark(
            generation=shown.generation,
            host=(info.get("cluster") or {}).get("leader") or self._server_id,
            holes=shown.deleted,
            first_seq=shown.first_sequence,
            first_at=parse_time(state["first_ts"]),
            last_seq=shown.last_sequence,
            last_at=shown.last_stored_at,
        )
        age = int(info["config"].get("max_age", 0)) // 1000
        return Look(mark, timedelta(microseconds=age) if age else None, shown.answered_at)

    @property
    def _server_id(self) -> str:
        return str(self._client._server_info.get("server_id", ""))  # noqa: SLF001 # not public

    async def find(self, stream: StreamName, sequence: int) -> StoredMessage | None:
        """Return a message, or None if the stream does not hold it."""
        return await self._jetstream.find_message(stream, sequence)

    async def count(self, stream: StreamName, subject: str) -> int:
        """Return the number of messages in a stream that match a subject filter."""
        return sum((await self.count_by_subject(stream, subject)).values())

    async def count_by_subject(self, stream: StreamName, subject: str) -> Mapping[str, int]:
        """Return the number of messages for each subject that matches a filter."""
        info = await self._jetstream.find(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
        found: dict[str, int] = (info or {}).get("state", {}).get("subjects") or {}
        return found

    async def find_backlog(self, durable: DurableSpec) -> Backlog | None:
        """Return the backlog of a durable, or None if there is no such durable."""
        info = await self._jetstream.find(f"CONSUMER.INFO.{durable.stream}.{durable.name}")
        if info is None:
            return None
        pending, in_work = int(info["num_pending"]), int(info["num_ack_pending"])
        waiting, repeated = int(info["num_waiting"]), int(info["num_redelivered"])
        if pending + in_work == 0:
            return Backlog(0, None, waiting=waiting)
        # Messages in work are above the ack floor. Without any, the next one follows the last
        # delivered.
        begin = info["ack_floor"] if in_work else info["delivered"]
        oldest = await self._jetstream.find_next_message(
            durable.stream, int(begin["stream_seq"]) + 1, durable.filter_subject
        )
        if oldest is None:
            return Backlog(pending + in_work, None, waiting=waiting, repeated=repeated)
        age = max(timedelta(0), answered_at(info) - oldest.stored_at)
        return Backlog(pending + in_work, oldest.stored_at, age, waiting, repeated)

    async def is_ahead(self, durable: DurableSpec) -> bool:
        """Return whether a durable passes over messages that its stream holds.

        If a stream lost everything, nats-server 2.15.1 leaves its durables where they were. It counts
        the messages below that place as pending and delivers none of them until it starts again.
        """
        info = await self._jetstream.find(f"CONSUMER.INFO.{durable.stream}.{durable.name}")
        if info is None or not int(info["num_pending"]):
            return False
        # Asked after the durable: a stream never ends before a message that is pending.
        state = await self._jetstream.find_stream(durable.stream)
        delivered = int(info["delivered"]["stream_seq"])
        return state is not None and delivered >= state.last_sequence

    async def find_state(self, stream: StreamName) -> StreamState | None:
        """Return the state of a stream, or None if there is no such stream."""
        return await self._jetstream.find_stream(stream)

    async def find_size(self, stream: StreamName) -> int | None:
        """Return the size of a stream in bytes, or None if there is no such stream."""
        info = await self._jetstream.find(f"STREAM.INFO.{stream}")
        return int(info["state"]["bytes"]) if info else None

    async def ids_since(
        self,
        stream: StreamName,
        subject: str,
        since: datetime,
        until: datetime | None = None,
        *,
        limit: int,
    ) -> Held:
        """Return the ids of the messages stored in a time range, without reading their bodies.

        Args:
            stream: The stream to read.
            subject: Subject or filter.
            since: Start of the range.
            until: Approximate end of the range; None for no end.
            limit: Maximum number of messages.
        """
        config = {
            "name": COMPARING_CONSUMER,
            "deliver_policy": "by_start_time",
            "opt_start_time": since.isoformat(),
            "filter_subject": subject,
            "headers_only": True,
        }
        async with open_pass(
            self._client, self._jetstream, stream, config, inactive=_INACTIVE
        ) as reading:
            held = await _read_ids(reading, min(reading.pending, limit), until)
        return held._replace(is_all=held.is_all or reading.pending <= limit)


async def _read_ids(reading: OnePass, wanted: int, until: datetime | None) -> Held:
    """Read the ids of `wanted` messages, or stop at the first one stored after `until`."""
    ids: set[str] = set()
    newest_at: datetime | None = None
    async for got in reading.read(wanted, at_once=_AT_ONCE, within=REQUEST_TIMEOUT):
        ids |= {(message.headers or {}).get(_MESSAGE_ID, "") for message, _ in got}
        newest_at = got[-1][1].stored_at
        wanted -= len(got)
        if until is not None and newest_at > until:
            return Held(ids, is_all=True, newest_at=newest_at)
        await asyncio.sleep(0)
    if wanted > 0:
        raise BusUnavailableError("messages went while they were read")
    return Held(ids, is_all=False, newest_at=newest_at)
