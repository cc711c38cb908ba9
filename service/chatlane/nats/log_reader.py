"""Read one partition of a log from a position on, and stop at the first irregularity.

A reader is one ephemeral consumer with ack policy none. It does not repair itself: on a gap, a
lost consumer, a lost connection or silence it breaks, and its owner opens another reader at the
committed cursor. Its memory is bounded.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nats.errors import Error as NatsError

from chatlane.domain.log import LogMessage, PartitionId
from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import JetStream, nanoseconds, parse_delivery
from chatlane.nats.nats_patches import DirectDelivery
from chatlane.observability.tracing import PARENT, trace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from chatlane.nats.connection import Bus

_INACTIVE_THRESHOLD: Final = timedelta(seconds=30)
_MAX_WAITING: Final = 4
_STATUS: Final = "Status"
_DESCRIPTION: Final = "Description"
_MESSAGE_ID: Final = "Nats-Msg-Id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """Limits of a reader's buffer, and the timing that detects a silent consumer.

    Attributes:
        max_messages: Maximum number of messages in memory.
        max_bytes: Maximum bytes of bodies in memory; one single message may be larger.
        pull_expires: Lifetime of one pull request.
        heartbeat: Interval of the heartbeats of an idle consumer.
    """

    max_messages: int = 512
    max_bytes: int = 512 * 1024
    pull_expires: timedelta = timedelta(seconds=30)
    heartbeat: timedelta = timedelta(seconds=1)

    @property
    def longest_silence(self) -> timedelta:
        """Return the silence that means a lost consumer: two lost heartbeats and some slack."""
        return 2.5 * self.heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The part of a log that a reader reads.

    Attributes:
        name: Name of the consumer; never used twice.
        filter_subject: Subject filter of the partition's messages.
        start_sequence: The first sequence to read.
    """

    partition: PartitionId
    stream: str
    name: str
    filter_subject: str
    start_sequence: int


class LogReader:
    """An open consumer and its buffer of received messages.

    One pull request is open at a time. Several would overlap, and then a status message would not
    show how many messages are still to come. The pause of one round trip per half-buffer is
    negligible against the time that a batch takes.

    Attributes:
        messages: Received messages that were not dropped yet, in order.
        last_sequence: The stream sequence of the newest received message.
        broken: Set when the reader will not deliver any more.
    """

    def __init__(
        self,
        bus: Bus,
        section: Section,
        limits: ReaderLimits,
        on_arrival: Callable[[], None],
    ) -> None:
        self.messages: deque[LogMessage] = deque()
        self.last_sequence = section.start_sequence - 1
        self.broken = asyncio.Event()
        self.break_reason = ""
        self._client = client = bus.client
        self._section = section
        self._limits = limits
        self._on_arrival = on_arrival
        self._inbox = client.new_inbox()
        self._buffered_bytes = 0
        self._outstanding = 0
        self._consumer_sequence = 0
        self._takes_large = False
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._is_wanted = asyncio.Event()
        self._subscription: Subscription | None = None
        self._puller: asyncio.Task[None] | None = None
        # The consumer may survive a short loss of the connection, but the messages that it sent
        # meanwhile are lost, and the server after the reconnect may hold another log.
        self._stop_listening = bus.listen(disconnected=partial(self.break_off, "disconnected"))

    @property
    def is_caught_up(self) -> bool:
        """Return True if a pull request waits for messages and the buffer is empty."""
        return self._outstanding > 0 and not self.messages and not self.broken.is_set()

    async def open(self, jetstream: JetStream) -> None:
        """Create the consumer and start reading.

        Raises:
            BusUnavailableError: The consumer may or may not exist; the server expires it.
        """
        try:
            # Without limits: the pull requests bound what can arrive.
            delivery = DirectDelivery(self._received)
            self._subscription = await delivery.subscribe(self._client, self._inbox)
        except NatsError as exc:
            raise BusUnavailableError(type(exc).__name__) from exc
        section = self._section
        await jetstream.request(
            f"CONSUMER.CREATE.{section.stream}.{section.name}.{section.filter_subject}",
            {"stream_name": section.stream, "action": "create", "config": self._config()},
        )
        self._puller = asyncio.create_task(self._keep_pulling())

    async def close(self) -> None:
        """Delete the consumer; the buffered messages stay in memory."""
        self.break_off("closed")
        self._stop_listening()
        if self._puller is not None:
            self._puller.cancel()
        try:
            if self._subscription is not None:
                await self._subscription.unsubscribe()
            if self._client.is_connected:
                # Do not wait for an answer: the server expires a consumer without a reader.
                await self._client.publish(
                    f"$JS.API.CONSUMER.DELETE.{self._section.stream}.{self._section.name}"
                )
        except NatsError:
            return

    def drop(self, count: int) -> None:
        """Remove the first `count` messages from the buffer, and pull more if there is room."""
        for _ in range(count):
            self._buffered_bytes -= len(self.messages.popleft().body)
        if self._outstanding == 0:
            self._is_wanted.set()

    def break_off(self, reason: str) -> None:
        """Stop the reader for good; keep the first reason."""
        if not self.broken.is_set():
            self.break_reason = reason
            self.broken.set()
            self._is_wanted.set()

    def _config(self) -> dict[str, Any]:
        return {
            "name": self._section.name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._section.start_sequence,
            "ack_policy": "none",
            "filter_subject": self._section.filter_subject,
            "replay_policy": "instant",
            "max_waiting": _MAX_WAITING,
            "inactive_threshold": nanoseconds(_INACTIVE_THRESHOLD),
            "num_replicas": 1,
            "mem_storage": True,
        }

    def _received(self, message: Msg) -> None:
        if self.broken.is_set():
            return
        self._heard_at = self._loop.time()
        delivery = parse_delivery(message.reply) if message.reply else None
        if delivery is None:
            self._received_status(message.headers or {})
            return
        stream_sequence, consumer_sequence, stored_at = delivery
        if consumer_sequence != self._consumer_sequence + 1:
            self.break_off("gap")
            return
        self._consumer_sequence = consumer_sequence
        self.last_sequence = stream_sequence
        log, partition = self._section.partition
        headers = message.headers
        message_id = headers.get(_MESSAGE_ID) if headers else None
        trace = trace_of(headers) if headers and PARENT in headers else None
        body = message.data
        self.messages.append(
            LogMessage(
                log, partition, stream_sequence, stored_at, message.subject, message_id, body, trace
            )
        )
        self._buffered_bytes += len(body)
        self._outstanding -= 1
        self._takes_large = False
        if self._outstanding == 0:
            self._is_wanted.set()
        self._on_arrival()

    def _received_status(self, headers: Mapping[str, str]) -> None:
        description = headers.get(_DESCRIPTION, "")
        match headers.get(_STATUS, ""):
            case "100":
                delivered = int(headers.get("Nats-Last-Consumer", self._consumer_sequence))
                if delivered > self._consumer_sequence:
                    self.break_off("gap")
            case "404" | "408":
                self._request_ended()
            case "409" if description == "Batch Completed":
                self._request_ended()
            case "409" if "MaxBytes" in description and "Exceeded" not in description:
                # The next message does not fit. Request it alone once the buffer is empty.
                self._takes_large = True
                self._request_ended()
            case status:
                # 503: no server answers for the consumer. 409: it was deleted, its leader
                # changed, or the server shuts down.
                self.break_off(f"status {status} {description}".rstrip())

    def _request_ended(self) -> None:
        self._outstanding = 0
        self._is_wanted.set()

    async def _keep_pulling(self) -> None:
        try:
            while not self.broken.is_set():
                self._is_wanted.clear()
                if self._outstanding == 0:
                    await self._pull()
                await self._wait_until_wanted()
        except NatsError as exc:
            self.break_off(f"pull {type(exc).__name__}")

    async def _wait_until_wanted(self) -> None:
        """Wait for room or the end of a request; break off if an open request stays silent."""
        if self._outstanding == 0:
            await self._is_wanted.wait()
            return
        deadline = self._heard_at + self._limits.longest_silence.total_seconds()
        try:
            async with asyncio.timeout_at(deadline):
                await self._is_wanted.wait()
        except TimeoutError:
            silence = self._loop.time() - self._heard_at
            if silence >= self._limits.longest_silence.total_seconds():
                self.break_off("silence")

    async def _pull(self) -> None:
        request = self._next_request()
        if request is None:
            return
        self._outstanding = request["batch"]
        self._heard_at = self._loop.time()
        section = self._section
        await self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{section.stream}.{section.name}",
            json.dumps(request).encode(),
            reply=self._inbox,
        )

    def _next_request(self) -> dict[str, int] | None:
        """Return the next pull request, or None while more than half of the buffer is taken."""
        room = self._limits.max_messages - len(self.messages)
        free_bytes = self._limits.max_bytes - self._buffered_bytes
        times = {
            "expires": nanoseconds(self._limits.pull_expires),
            "idle_heartbeat": nanoseconds(self._limits.heartbeat),
        }
        if self._takes_large:
            return None if self.messages else {"batch": 1, **times}
        if 2 * room < self._limits.max_messages or 2 * free_bytes < self._limits.max_bytes:
            return None
        return {"batch": room, "max_bytes": free_bytes, **times}


async def open_reader(
    bus: Bus,
    section: Section,
    on_arrival: Callable[[], None],
    limits: ReaderLimits | None = None,
) -> LogReader:
    """Create a reader and start it.

    Raises:
        BusUnavailableError: The reader could not be created.
    """
    reader = LogReader(bus, section, limits or ReaderLimits(), on_arrival)
    try:
        await reader.open(JetStream(bus.client))
    except BaseException:
        await reader.close()
        raise
    return reader
