"""Read the messages of a stream once, through an ephemeral consumer without acknowledgements."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from nats.errors import Error as NatsError

from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import REQUEST_TIMEOUT, nanoseconds, parse_delivery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from datetime import timedelta

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from chatlane.nats.jetstream import Delivery, JetStream

_UNLIMITED: Final = 0
# A request ended: the stream has no more messages, or none came in time. The caller checks which.
_REQUEST_ENDED: Final = frozenset({"404", "408"})


class OnePass:
    """One pass over a stream.

    Attributes:
        pending: Number of messages to read when the pass began.
    """

    def __init__(
        self,
        client: Client,
        jetstream: JetStream,
        stream: str,
        *,
        config: Mapping[str, Any],
        inbox: _Inbox,
        pending: int,
    ) -> None:
        self.pending = pending
        self._client = client
        self._jetstream = jetstream
        self._stream = stream
        self._consumer: str = config["name"]
        self._subject: str = config["filter_subject"]
        self._inbox = inbox
        self._last = 0
        self._received = 0

    async def read(
        self, count: int, *, at_once: int, within: timedelta
    ) -> AsyncIterator[list[tuple[Msg, Delivery]]]:
        """Yield the next messages in batches; prefetch one batch while the caller handles another.

        Args:
            count: Maximum number of messages; fewer if some were deleted during the pass.
            at_once: Number of messages in a batch.
            within: Longest wait for each message.

        Raises:
            BusUnavailableError: A message did not arrive in time, or was lost on the way.
        """
        try:
            came_at = monotonic()
            await self._ask(min(count, at_once))
            while count > 0:
                batch = min(count, at_once)
                got = await self._take(batch, within)
                count -= len(got)
                if got:
                    came_at = monotonic()
                # A slow server ends requests early, so check the stream before stopping.
                if len(got) < batch and not await self._is_any_left():
                    count = 0
                if count > 0 and monotonic() - came_at > within.total_seconds():
                    raise BusUnavailableError("reading: the server delivers nothing of the rest")
                await self._ask(min(count, at_once))
                if got:
                    yield got
                    # Do not count the time that the caller took against the server.
                    came_at = monotonic()
        except (NatsError, OSError, TimeoutError) as exc:
            raise BusUnavailableError(f"reading {type(exc).__name__}") from exc

    async def _ask(self, batch: int) -> None:
        if batch > 0:
            request = {"batch": batch, "expires": nanoseconds(REQUEST_TIMEOUT)}
            await self._client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                json.dumps(request).encode(),
                reply=self._inbox.subject,
            )

    async def _take(self, batch: int, within: timedelta) -> list[tuple[Msg, Delivery]]:
        got: list[tuple[Msg, Delivery]] = []
        while len(got) < batch:
            message = await self._inbox.next(within)
            delivery = parse_delivery(message.reply) if message.reply else None
            if delivery is None:
                _require_ended(message.headers or {})
                break
            self._received += 1
            if delivery.consumer_sequence != self._received:
                raise BusUnavailableError("reading: a message got lost on its way")
            self._last = delivery.stream_sequence
            got.append((message, delivery))
        return got

    async def _is_any_left(self) -> bool:
        following = await self._jetstream.find_next_message(
            self._stream, self._last + 1, self._subject
        )
        return following is not None


def _require_ended(headers: Mapping[str, str]) -> None:
    """Raise unless a status says that a request ended.

    Raises:
        BusUnavailableError: The consumer or its server is gone.
    """
    if (status := headers.get("Status", "")) not in _REQUEST_ENDED:
        described = headers.get("Description", "")
        raise BusUnavailableError(f"reading status {status} {described}".rstrip())


class _Inbox:
    """Buffer of received messages; a timer runs only while it is empty."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._messages: deque[Msg] = deque()
        self._has_come = asyncio.Event()

    async def received(self, message: Msg) -> None:
        self._messages.append(message)
        self._has_come.set()

    async def next(self, within: timedelta) -> Msg:
        while not self._messages:
            self._has_come.clear()
            async with asyncio.timeout(within.total_seconds()):
                await self._has_come.wait()
        return self._messages.popleft()


@asynccontextmanager
async def open_pass(
    client: Client,
    jetstream: JetStream,
    stream: str,
    config: Mapping[str, Any],
    *,
    inactive: timedelta,
) -> AsyncIterator[OnePass]:
    """Create a consumer for the length of the block; the server expires it if it is not deleted.

    Args:
        client: The client of the connection.
        jetstream: API over the same connection.
        stream: The stream to read.
        config: Name, filter and start of the consumer.
        inactive: The server deletes the consumer after so long without a request.

    Raises:
        BusUnavailableError: There is no answer in time.
    """
    name, subject = config["name"], config["filter_subject"]
    fixed = {
        "ack_policy": "none",
        "inactive_threshold": nanoseconds(inactive),
        "num_replicas": 1,
        "mem_storage": True,
    }
    async with _open_inbox(client) as inbox:
        created = await jetstream.request(
            f"CONSUMER.CREATE.{stream}.{name}.{subject}",
            {"stream_name": stream, "action": "create", "config": {**config, **fixed}},
        )
        yield OnePass(
            client,
            jetstream,
            stream,
            config=config,
            inbox=inbox,
            pending=int(created["num_pending"]),
        )
        await jetstream.find(f"CONSUMER.DELETE.{stream}.{name}")


@asynccontextmanager
async def _open_inbox(client: Client) -> AsyncIterator[_Inbox]:
    inbox = _Inbox(client.new_inbox())
    try:
        # The requested batch bounds what can arrive.
        subscription = await client.subscribe(
            inbox.subject,
            cb=inbox.received,
            pending_msgs_limit=_UNLIMITED,
            pending_bytes_limit=_UNLIMITED,
        )
    except NatsError as exc:
        raise BusUnavailableError(type(exc).__name__) from exc
    try:
        yield inbox
    finally:
        if client.is_connected:
            await subscription.unsubscribe()
