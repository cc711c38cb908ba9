"""What the streams hold that routers write to: how they look, and which messages are in them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from nats.errors import Error as NatsError

from chatlane.bus.jetstream import (
    REQUEST_TIMEOUT,
    JetStream,
    StoredMessage,
    nanoseconds,
    parse_delivery,
    parse_time,
    stream_state,
)
from chatlane.domain.stream_marks import StreamMark
from chatlane.errors import BusUnavailableError
from chatlane_schemas.streams import COMPARING_CONSUMER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from nats.aio.client import Client
    from nats.aio.subscription import Subscription

    from chatlane_schemas.streams import StreamName

_AT_ONCE: Final = 500
_INACTIVE: Final = timedelta(seconds=10)
_MESSAGE_ID: Final = "Nats-Msg-Id"


class Look(NamedTuple):
    """A stream, and how long it keeps what is in it; None without a limit."""

    mark: StreamMark
    max_age: timedelta | None


class Held(NamedTuple):
    """The ids of messages that a stream holds.

    Attributes:
        is_all: Whether there are no more that were asked for.
        newest_at: When the newest of them was stored.
    """

    ids: set[str]
    is_all: bool
    newest_at: datetime | None


class StreamContents:
    """Looks at streams without taking anything from their readers.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jetstream = JetStream(client)

    async def look(self, stream: StreamName) -> Look | None:
        """Return how a stream looks, or None when there is no such stream."""
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
        return Look(mark, timedelta(microseconds=age) if age else None)

    @property
    def _server_id(self) -> str:
        return str(self._client._server_info.get("server_id", ""))  # noqa: SLF001 # not public

    async def find(self, stream: StreamName, sequence: int) -> StoredMessage | None:
        """Return a message, if it is there."""
        return await self._jetstream.find_message(stream, sequence)

    async def count(self, stream: StreamName, subject: str) -> int:
        """Return how many messages a stream holds under subjects that a filter takes."""
        info = await self._jetstream.find(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
        found: dict[str, int] = (info or {}).get("state", {}).get("subjects") or {}
        return sum(found.values())

    async def ids_since(
        self,
        stream: StreamName,
        subject: str,
        since: datetime,
        until: datetime | None = None,
        *,
        limit: int,
    ) -> Held:
        """Return the ids of the messages stored in a time, without reading their bodies.

        Args:
            stream: Of which stream.
            subject: Or filter.
            since: From then on.
            until: About the end; None for all that came after.
            limit: Most messages.
        """
        name = COMPARING_CONSUMER
        config = {
            "name": name,
            "deliver_policy": "by_start_time",
            "opt_start_time": since.isoformat(),
            "ack_policy": "none",
            "filter_subject": subject,
            "headers_only": True,
            "inactive_threshold": nanoseconds(_INACTIVE),
            "num_replicas": 1,
            "mem_storage": True,
        }
        async with self._inbox() as inbox:
            created = await self._jetstream.request(
                f"CONSUMER.CREATE.{stream}.{name}.{subject}",
                {"stream_name": stream, "action": "create", "config": config},
            )
            pending = int(created["num_pending"])
            held = await self._pull(f"{stream}.{name}", inbox, min(pending, limit), until)
            await self._jetstream.find(f"CONSUMER.DELETE.{stream}.{name}")
        return held._replace(is_all=held.is_all or pending <= limit)

    @asynccontextmanager
    async def _inbox(self) -> AsyncIterator[Subscription]:
        try:
            inbox = await self._client.subscribe(
                self._client.new_inbox(), pending_msgs_limit=2 * _AT_ONCE
            )
        except NatsError as exc:
            raise BusUnavailableError(type(exc).__name__) from exc
        try:
            yield inbox
        finally:
            if self._client.is_connected:
                await inbox.unsubscribe()

    async def _pull(
        self, consumer: str, inbox: Subscription, wanted: int, until: datetime | None
    ) -> Held:
        """Read so many messages, or until one is of a later time."""
        ids: set[str] = set()
        newest_at: datetime | None = None
        seconds = REQUEST_TIMEOUT.total_seconds()
        while wanted > 0:
            batch = min(wanted, _AT_ONCE)
            request = json.dumps({"batch": batch, "expires": nanoseconds(REQUEST_TIMEOUT)})
            try:
                await self._client.publish(
                    f"$JS.API.CONSUMER.MSG.NEXT.{consumer}", request.encode(), reply=inbox.subject
                )
                for _ in range(batch):
                    message = await inbox.next_msg(timeout=seconds)
                    delivery = parse_delivery(message.reply) if message.reply else None
                    if delivery is None:
                        raise BusUnavailableError("messages went while they were read")
                    newest_at = delivery.stored_at
                    ids.add((message.headers or {}).get(_MESSAGE_ID, ""))
            except (NatsError, OSError, TimeoutError) as exc:
                raise BusUnavailableError(f"reading {type(exc).__name__}") from exc
            wanted -= batch
            if until is not None and newest_at is not None and newest_at > until:
                return Held(ids, is_all=True, newest_at=newest_at)
            await asyncio.sleep(0)
        return Held(ids, is_all=False, newest_at=newest_at)
