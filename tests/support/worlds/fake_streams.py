"""A publisher without a server: one stream in memory, and the faults a server can have.

Passes the conformance suite that the real publisher passes (tests/conformance).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto

from chatlane.domain.log import Trace
from chatlane.errors import (
    BusUnavailableError,
    MalformedMessageError,
    OversizedMessageError,
    StreamFullError,
)
from chatlane.outbox.publisher import Ack

_HEADER_BYTES = 64


class Fate(Enum):
    """What becomes of one publish."""

    STORED = auto()
    ACK_LOST = auto()
    LOST = auto()
    REFUSED = auto()


@dataclass(slots=True)
class FakeStream:
    """What was stored, in order, each id once."""

    messages: list[tuple[str, bytes]] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)

    def store(self, subject: str, payload: bytes, message_id: str) -> Ack:
        known = self.ids.get(message_id)
        if known is not None:
            return Ack(known, is_duplicate=True)
        self.messages.append((subject, payload))
        self.ids[message_id] = len(self.messages)
        return Ack(len(self.messages), is_duplicate=False)

    def forget_ids(self) -> None:
        """Let the duplicate window pass."""
        self.ids.clear()


class FakePublisher:
    """Publishes to a `FakeStream`.

    Args:
        stream: Shared by all publishers of one "server".
        ack_timeout: After which a future without an answer fails.
        max_payload: What the "server" takes.
        fate: Decides what becomes of each publish, by its message id.
    """

    def __init__(
        self,
        stream: FakeStream,
        *,
        ack_timeout: timedelta = timedelta(milliseconds=20),
        max_payload: int = 1024 * 1024,
        fate: Callable[[str], Fate] = lambda _: Fate.STORED,
    ) -> None:
        self.stream = stream
        self.fate = fate
        self.is_connected = True
        self.attempts: list[str] = []
        self._timeout_seconds = ack_timeout.total_seconds()
        self._max_payload = max_payload
        self._pending: set[asyncio.Future[Ack]] = set()

    async def publish(
        self, subject: str, payload: bytes, message_id: str, trace: Trace | None = None
    ) -> asyncio.Future[Ack]:
        del trace
        self._check(subject, payload, message_id)
        if not self.is_connected:
            raise BusUnavailableError("disconnected")
        self.attempts.append(message_id)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ack] = loop.create_future()
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        match self.fate(message_id):
            case Fate.STORED:
                loop.call_soon(_resolve, future, self.stream.store(subject, payload, message_id))
            case Fate.ACK_LOST:
                self.stream.store(subject, payload, message_id)
                loop.call_later(self._timeout_seconds, _fail, future, "timeout")
            case Fate.LOST:
                loop.call_later(self._timeout_seconds, _fail, future, "timeout")
            case Fate.REFUSED:
                loop.call_soon(_refuse, future)
        return future

    def disconnect(self) -> None:
        """Lose the connection, and with it every acknowledgement on its way."""
        self.is_connected = False
        for future in tuple(self._pending):
            _fail(future, "disconnected")

    def _check(self, subject: str, payload: bytes, message_id: str) -> None:
        if not subject or not subject.isascii() or set(" *>\t\r\n") & set(subject):
            raise MalformedMessageError("subject")
        if not message_id or not message_id.isascii():
            raise MalformedMessageError("id")
        size = len(subject) + len(message_id) + len(payload) + _HEADER_BYTES
        if size > self._max_payload:
            raise OversizedMessageError(size, self._max_payload)


def _resolve(future: asyncio.Future[Ack], ack: Ack) -> None:
    if not future.done():
        future.set_result(ack)


def _refuse(future: asyncio.Future[Ack]) -> None:
    if not future.done():
        future.set_exception(StreamFullError("refused with 503/10077"))
        future.exception()


def _fail(future: asyncio.Future[Ack], kind: str) -> None:
    if not future.done():
        future.set_exception(BusUnavailableError(kind))
        future.exception()
