"""How far the readers of durables are behind, and how full streams are."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from chatlane.nats.jetstream import JetStream, told_at

if TYPE_CHECKING:
    from datetime import datetime

    from nats.aio.client import Client

    from chatlane.nats.jetstream import StreamState
    from chatlane_schemas.streams import DurableSpec, StreamName


class Backlog(NamedTuple):
    """What the readers of one durable have not acknowledged.

    Attributes:
        oldest_at: When the server stored the oldest of it; None when there is none.
        age: How old that is by the clock of the server.
        waiting: How many requests for messages are open; a reader has one at a time.
    """

    unread: int
    oldest_at: datetime | None
    age: timedelta = timedelta(0)
    waiting: int = 0


class Backlogs:
    """Asks the server about durables and streams.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._jetstream = JetStream(client)

    async def find(self, durable: DurableSpec) -> Backlog | None:
        """Return what a durable has before it, or None when there is no such durable."""
        info = await self._jetstream.find(f"CONSUMER.INFO.{durable.stream}.{durable.name}")
        if info is None:
            return None
        pending, in_work = int(info["num_pending"]), int(info["num_ack_pending"])
        waiting = int(info["num_waiting"])
        if pending + in_work == 0:
            return Backlog(0, None, waiting=waiting)
        # What is in work lies above the floor; without any, the next comes after the delivered.
        begin = info["ack_floor"] if in_work else info["delivered"]
        oldest = await self._jetstream.find_next_message(
            durable.stream, int(begin["stream_seq"]) + 1, durable.filter_subject
        )
        if oldest is None:
            return Backlog(pending + in_work, None, waiting=waiting)
        age = max(timedelta(0), told_at(info) - oldest.stored_at)
        return Backlog(pending + in_work, oldest.stored_at, age, waiting)

    async def find_state(self, stream: StreamName) -> StreamState | None:
        """Return how far a stream goes, or None when there is no such stream."""
        return await self._jetstream.find_stream(stream)

    async def find_size(self, stream: StreamName) -> int | None:
        """Return how many bytes a stream holds, or None when there is no such stream."""
        info = await self._jetstream.find(f"STREAM.INFO.{stream}")
        return int(info["state"]["bytes"]) if info else None
