"""Read the stream EVENTS in order, from a position, without a consumer."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client.transport.connection import open_subscription, until_connected
from chatlane_client.transport.retry import Backoff, CancellationGuard
from chatlane_schemas import DecodeError, decode
from chatlane_schemas.envelope import ServiceEnvelope
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName

_log: Final = logging.getLogger("chatlane_bridges")

# Messages announce themselves; one whose announcement was lost is found after this.
_LOOK_AGAIN: Final = timedelta(seconds=5)
_HEARD: Final = (subjects.wildcards(subjects.EVENT), subjects.wildcards(subjects.TURN_EVENT))
_PLACE_OF_NOUN: Final = subjects.ROOT.count(".") + 2
# Copies for the workers of an agent; the last is the only form of its event.
_OF_AGENTS: Final = {"ending": None, "undelivered": "delivery.failed"}
_OF_ENVELOPE: Final = frozenset({"v", "id", "at"})


class Position(NamedTuple):
    """A place in the stream.

    Attributes:
        created: When the stream was created: a sequence counts in one stream only.
        seq: Sequence of the last message that is done.
    """

    created: str
    seq: int

    @classmethod
    def parsed(cls, text: str) -> "Position":
        """Return a position from its text."""
        created, _, seq = text.rpartition(" ")
        return cls(created, int(seq))

    @property
    def text(self) -> str:
        """Return its text."""
        return f"{self.created} {self.seq}"


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A message of the stream.

    Attributes:
        seq: Its sequence.
        kind: Such as `turn.ended`; None for a copy, and for a message that cannot be read.
        id: Id of the event.
        at: When the service decided it.
        fields: What it says.
    """

    seq: int
    kind: str | None
    id: str = ""
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    fields: dict[str, object] | None = None

    @property
    def session_id(self) -> str:
        """Return the session that the event is about; empty if none is named."""
        return str((self.fields or {}).get("session_id", ""))


class EventLog:
    """Reads the stream for several readers, each from its own position."""

    def __init__(self, client: Client) -> None:
        """Create it; `open` lets it notice new messages at once."""
        self._client = client
        self._jetstream = client.jetstream()
        self._stored = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Notice new messages for the length of the block."""

        async def wake(_: Msg) -> None:
            # Each waiting reader has the present event; the next one is for later messages.
            self._stored.set()
            self._stored = asyncio.Event()

        async with AsyncExitStack() as stack:
            for subject in _HEARD:
                await stack.enter_async_context(open_subscription(self._client, subject, wake))
            yield

    async def end(self) -> Position:
        """Return the position behind the newest message."""
        created, _, last = await self._state()
        return Position(created, last)

    async def checked(self, position: Position) -> Position:
        """Return where to go on from a stored position, in the stream as it is now."""
        created, first, last = await self._state()
        if created != position.created or position.seq > last:
            # The stream was replaced or restored: what it has may be new.
            _log.warning("event_log_replaced", extra={"seq": position.seq})
            return Position(created, first - 1 if created != position.created else last)
        if position.seq + 1 < first:
            _log.error("webhook_events_expired", extra={"count": first - position.seq - 1})
            return Position(created, first - 1)
        return position

    async def next(self, after_seq: int) -> LoggedEvent:
        """Return the next message after a sequence, as soon as there is one."""
        while True:
            stored = self._stored
            found = await self._read(after_seq + 1)
            if found is not None:
                return found
            try:
                async with asyncio.timeout(_LOOK_AGAIN.total_seconds()):
                    await stored.wait()
            except TimeoutError:
                continue

    async def _read(self, seq: int) -> LoggedEvent | None:
        guard = CancellationGuard()
        for pause in Backoff().pauses():
            await until_connected(self._client)
            try:
                message = await self._jetstream.get_msg(
                    StreamName.EVENTS, seq=seq, subject=">", next=True
                )
            except nats.js.errors.NotFoundError:
                return None
            except (nats.errors.Error, TimeoutError):
                guard.check()
                await asyncio.sleep(pause)
                continue
            return _event(message.seq or seq, message.subject or "", message.data or b"")
        raise AssertionError("pauses never end")

    async def _state(self) -> tuple[str, int, int]:
        """Return when the stream was created, and its first and last sequence."""
        guard = CancellationGuard()
        for pause in Backoff().pauses():
            await until_connected(self._client)
            try:
                answer = await self._client.request(
                    f"$JS.API.STREAM.INFO.{StreamName.EVENTS}", timeout=5
                )
                info = json.loads(answer.data)
                state = info["state"]
                return info["created"], state["first_seq"], state["last_seq"]
            except (nats.errors.Error, TimeoutError, KeyError):
                guard.check()
                await asyncio.sleep(pause)
        raise AssertionError("pauses never end")


def _event(seq: int, subject: str, data: bytes) -> LoggedEvent:
    noun, _, rest = subject.split(".", _PLACE_OF_NOUN)[-1].partition(".")
    kind = _OF_AGENTS.get(noun, f"{noun}.{rest.partition('.')[0]}")
    if kind is None:
        return LoggedEvent(seq, None)
    try:
        envelope = decode(ServiceEnvelope, data)
        fields = json.loads(data)
    except DecodeError:
        _log.error("webhook_event_unreadable", extra={"seq": seq, "kind": kind})
        return LoggedEvent(seq, None)
    kept = {name: value for name, value in fields.items() if name not in _OF_ENVELOPE}
    return LoggedEvent(seq, kind, str(envelope.id), envelope.at, kept)
