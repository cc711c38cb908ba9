"""Publish to streams with many messages in flight, and track the outcome of each.

The asynchronous publish of nats-py neither resolves nor fails a future whose acknowledgement was
lost with a connection. It also loses error answers and takes twice as much time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from nats.errors import Error as NatsError
from pydantic_core import from_json

from chatlane.errors import (
    BusUnavailableError,
    MalformedMessageError,
    OversizedMessageError,
    StreamFullError,
)
from chatlane.nats.nats_patches import DirectDelivery, publish_with_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from chatlane.domain.log import Trace
    from chatlane.nats.connection import Bus

DEFAULT_TIMEOUT: Final = timedelta(seconds=2)
MAX_SUBJECT_BYTES: Final = 1024

# Tokens without blanks, wildcards, control characters and anything beyond ASCII.
_SUBJECT: Final = re.compile(r"[!-)+-\-/-=?-~]+(?:\.[!-)+-\-/-=?-~]+)*")
_MESSAGE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,256}")
_MESSAGE_ID_HEADER: Final = "Nats-Msg-Id"
_NO_RESPONDERS: Final = "503"
# Error codes of a full stream: its own limit, the limit of the account, or the disk.
_FULL: Final = frozenset({10023, 10047, 10077})
# "NATS/1.0", the name and separators of the one header, and the blank line.
_HEADER_BYTES: Final = len(f"NATS/1.0\r\n{_MESSAGE_ID_HEADER}: \r\n\r\n")


class Ack(NamedTuple):
    """Acknowledgement that the server has stored a message.

    Attributes:
        sequence: Sequence in the stream; that of the first copy for a duplicate.
        is_duplicate: The server had stored the message before.
    """

    sequence: int
    is_duplicate: bool


class Publisher:
    """Sends messages and returns a future for each acknowledgement.

    Every future ends: with an `Ack`, at the deadline, or when the connection is lost. A
    `BusUnavailableError` in it means that the outcome is unknown: repeat with the same id.

    Args:
        bus: The connection.
        ack_timeout: How long an acknowledgement may take.
    """

    def __init__(self, bus: Bus, ack_timeout: timedelta = DEFAULT_TIMEOUT) -> None:
        self._bus = bus
        self._client: Client = bus.client
        self._timeout_seconds = ack_timeout.total_seconds()
        self._inbox = self._client.new_inbox()
        self._token_at = len(self._inbox) + 1
        self._count = 0
        # Sorted by deadline, because all have the same timeout. So one timer serves all of them.
        self._pending: dict[str, tuple[float, asyncio.Future[Ack]]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._subscription: Subscription | None = None
        self._stop_listening = bus.listen(disconnected=partial(self._fail_all, "disconnected"))

    @property
    def pending(self) -> int:
        """Return the number of outstanding acknowledgements."""
        return len(self._pending)

    async def publish(
        self, subject: str, payload: bytes, message_id: str, trace: Trace | None = None
    ) -> asyncio.Future[Ack]:
        """Send one message; the order of calls is the order on the wire.

        Args:
            subject: A subject of a stream.
            payload: The body.
            message_id: The stream drops a repeat of this id within its duplicate window.
            trace: Headers to add.

        Returns:
            A future that ends within the timeout.

        Raises:
            OversizedMessageError: The server would close the connection on it.
            MalformedMessageError: The subject or id cannot be sent safely.
            BusUnavailableError: There is no connection; nothing was sent.
        """
        self._check(subject, payload, message_id, _trace_bytes(trace) if trace else 0)
        if not self._bus.is_connected:
            # The client would buffer the message and send it after the reconnect, at any later time.
            raise BusUnavailableError("disconnected")
        self._count += 1
        token = str(self._count)
        future: asyncio.Future[Ack] = self._loop.create_future()
        self._pending[token] = (self._loop.time() + self._timeout_seconds, future)
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_seconds, self._expire)
        try:
            reply = f"{self._inbox}.{token}"
            if trace:
                headers = {_MESSAGE_ID_HEADER: message_id, **dict(trace)}
                await self._client.publish(subject, payload, reply=reply, headers=headers)
            else:
                await publish_with_id(self._client, subject, payload, message_id, reply)
        except (NatsError, OSError) as exc:
            self._pending.pop(token, None)
            raise BusUnavailableError(type(exc).__name__) from exc
        return future

    async def tell(self, subject: str, payload: bytes, message_id: str | None = None) -> None:
        """Publish a small message to current subscribers; drop it without a connection.

        Args:
            message_id: Set if a stream also stores the message, which then stores it once.
        """
        if not self._bus.is_connected:
            return
        with contextlib.suppress(NatsError, OSError):
            if message_id is None:
                await self._client.publish(subject, payload)
            else:
                await publish_with_id(self._client, subject, payload, message_id)

    async def wait(self, futures: Iterable[asyncio.Future[Ack]]) -> None:
        """Wait until all futures have ended, successfully or not, which the timeout bounds."""
        waited_for = list(futures)
        if waited_for:
            await asyncio.wait(waited_for)

    async def open(self) -> None:
        """Subscribe to the acknowledgements.

        Raises:
            BusUnavailableError: There is no connection.
        """
        try:
            delivery = DirectDelivery(self._acknowledged)
            self._subscription = await delivery.subscribe(self._client, f"{self._inbox}.*")
        except NatsError as exc:
            raise BusUnavailableError(type(exc).__name__) from exc
        self._stop_listening = self._bus.listen(
            disconnected=partial(self._fail_all, "disconnected")
        )

    async def close(self) -> None:
        """Stop; the outcome of unacknowledged messages stays unknown."""
        self._stop_listening()
        if self._timer is not None:
            self._timer.cancel()
        self._fail_all("closed")
        if self._subscription is not None:
            try:
                await self._subscription.unsubscribe()
            except NatsError:
                return

    def _check(self, subject: str, payload: bytes, message_id: str, more_bytes: int = 0) -> None:
        if len(subject) > MAX_SUBJECT_BYTES or _SUBJECT.fullmatch(subject) is None:
            raise MalformedMessageError(f"a subject of {len(subject)} characters cannot be sent")
        if _MESSAGE_ID.fullmatch(message_id) is None:
            raise MalformedMessageError(f"an id of {len(message_id)} characters cannot be sent")
        size = len(subject) + _HEADER_BYTES + len(message_id) + len(payload) + more_bytes
        limit = self._client.max_payload
        if size > limit:
            raise OversizedMessageError(size, limit)

    def _acknowledged(self, message: Msg) -> None:
        outcome = _outcome(message)
        if outcome is None:
            return
        awaited = self._pending.pop(message.subject[self._token_at :], None)
        if awaited is None:
            return
        _, future = awaited
        if future.done():
            return
        if isinstance(outcome, Ack):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
            # Mark the exception as retrieved: a caller that stopped waiting is not a bug to report.
            future.exception()

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for token, (deadline, future) in list(self._pending.items()):
            if deadline > now:
                self._timer = self._loop.call_at(deadline, self._expire)
                return
            del self._pending[token]
            _fail(future, "timeout")

    def _fail_all(self, kind: str) -> None:
        pending, self._pending = self._pending, {}
        for _, future in pending.values():
            _fail(future, kind)


@asynccontextmanager
async def open_publisher(
    bus: Bus, ack_timeout: timedelta = DEFAULT_TIMEOUT
) -> AsyncIterator[Publisher]:
    """Open a publisher, yield it, and close it at the end of the block.

    Raises:
        BusUnavailableError: There is no connection.
    """
    publisher = Publisher(bus, ack_timeout)
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()


def _trace_bytes(trace: Trace) -> int:
    return sum(len(f"{name}: {value}\r\n") for name, value in trace)


def _fail(future: asyncio.Future[Ack], kind: str) -> None:
    if not future.done():
        future.set_exception(BusUnavailableError(kind))
        # Mark the exception as retrieved: a caller that stopped waiting is not a bug to report.
        future.exception()


def _outcome(message: Msg) -> Ack | BusUnavailableError | None:
    """Parse an answer to a publish: an ack, an error, or None if it is neither.

    A subscriber of the subject sees our reply address and may answer to it. The answer of the
    stream is then still to come.
    """
    if not message.data:
        is_refused = (message.headers or {}).get("Status") == _NO_RESPONDERS
        return BusUnavailableError("no stream takes this subject now") if is_refused else None
    try:
        answer = from_json(message.data)
    except ValueError:
        return None
    # This runs for every publish, and a match statement over these shapes takes three times as long.
    if not isinstance(answer, dict):
        return None
    error, sequence = answer.get("error"), answer.get("seq")
    if isinstance(error, dict) and isinstance(error.get("code"), int):
        number = error.get("err_code")
        kind = StreamFullError if number in _FULL else BusUnavailableError
        return kind(f"refused with {error['code']}/{number}")
    if isinstance(sequence, int) and isinstance(answer.get("stream"), str):
        return Ack(sequence, answer.get("duplicate") is True)
    return None
