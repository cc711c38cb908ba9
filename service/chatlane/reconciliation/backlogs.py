"""Measure the backlog of durables and the size of streams."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from chatlane.nats.jetstream import JetStream, told_at

if TYPE_CHECKING:
    from datetime import datetime

    from nats.aio.client import Client

    from chatlane.nats.jetstream import StreamState
    from chatlane_schemas.topology.streams import DurableSpec, StreamName


class Backlog(NamedTuple):
    """Messages of one durable that its readers have not acknowledged.

    Attributes:
        oldest_at: When the server stored the oldest of them; None if there is none.
        age: Age of the oldest message by the clock of the server.
        waiting: Number of open pull requests; a reader has one at a time.
    """

    unread: int
    oldest_at: datetime | None
    age: timedelta = timedelta(0)
    waiting: int = 0


class Backlogs:
    """Reads the state of durables and streams from the server.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._jetstream = JetStream(client)

    async def find(self, durable: DurableSpec) -> Backlog | None:
        """Return the backlog of a durable, or None if there is no such durable."""
        info = await self._jetstream.find(f"CONSUMER.INFO.{durable.stream}.{durable.name}")
        if info is None:
            return None
        pending, in_work = int(info["num_pending"]), int(info["num_ack_pending"])
        waiting = int(info["num_waiting"])
        if pending + in_work == 0:
            return Backlog(0, None, waiting=waiting)
        # Messages in work are above the ack floor. Without any, the next one follows the last
        # delivered.
        begin = info["ack_floor"] if in_work else info["delivered"]
        oldest = await self._jetstream.find_next_message(
            durable.stream, int(begin["stream_seq"]) + 1, durable.filter_subject
        )
        if oldest is None:
            return Backlog(pending + in_work, None, waiting=waiting)
        age = max(timedelta(0), told_at(info) - oldest.stored_at)
        return Backlog(pending + in_work, oldest.stored_at, age, waiting)

    async def find_state(self, stream: StreamName) -> StreamState | None:
        """Return the state of a stream, or None if there is no such stream."""
        return await self._jetstream.find_stream(stream)

    async def find_size(self, stream: StreamName) -> int | None:
        """Return the size of a stream in bytes, or None if there is no such stream."""
        info = await self._jetstream.find(f"STREAM.INFO.{stream}")
        return int(info["state"]["bytes"]) if info else None
