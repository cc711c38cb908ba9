"""JetStream's API as JSON, and the reply subjects of deliveries.

Requests are written by hand, because the server refuses unknown fields and nats-py has no field
for some that we need.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from nats.aio.client import Client
from nats.errors import Error as NatsError

from chatlane.errors import BusUnavailableError

REQUEST_TIMEOUT: Final = timedelta(seconds=2)
GENERATION_KEY: Final = "chatlane_generation"

_PREFIX: Final = "$JS.API"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS_PER_MICROSECOND: Final = 1000
_NOT_FOUND: Final = 404
# $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>; the
# second form has <domain>.<account hash> after ACK and may have a random token at the end.
_V1_TOKENS: Final = 9
_V2_LEAST_TOKENS: Final = 11
_V1_SEQUENCE: Final = 5
_V2_SEQUENCE: Final = 7


class ApiRefusedError(BusUnavailableError):
    """JetStream answered a request with an error.

    Attributes:
        code: As of HTTP.
        err_code: JetStream's own number.
    """

    def __init__(self, code: int, err_code: int, description: str) -> None:
        self.code = code
        self.err_code = err_code
        super().__init__(f"refused with {code}/{err_code}: {description}")


class Delivery(NamedTuple):
    """What the reply subject of a delivered message says."""

    stream_sequence: int
    consumer_sequence: int
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server has it.

    Attributes:
        config: As JetStream writes it.
        created: The server's text.
        first_sequence: Of the oldest message; one past the last when there is none.
        last_sequence: Of the newest message ever stored; 0 when there never was one.
        last_stored_at: When the newest was stored.
        deleted: How many are missing between the oldest and the newest.
        told_at: When the server said so, by the clock that messages get their times from.
    """

    config: Mapping[str, Any]
    created: str
    first_sequence: int
    last_sequence: int
    last_stored_at: datetime
    deleted: int = 0
    told_at: datetime = field(default_factory=partial(datetime.now, UTC))

    @property
    def generation(self) -> str:
        """Which log this is: another one after a re-creation or a restore."""
        metadata = self.config.get("metadata") or {}
        return f"{metadata.get(GENERATION_KEY, '-')}@{self.created}"


class StoredMessage(NamedTuple):
    """One message read from a stream."""

    sequence: int
    stored_at: datetime
    subject: str
    body: bytes


class JetStream:
    """The requests we send.

    Args:
        client: A connected client.
        timeout: Longest wait for an answer.
    """

    def __init__(self, client: Client, timeout: timedelta = REQUEST_TIMEOUT) -> None:
        self._client = client
        self._timeout_seconds = timeout.total_seconds()

    @property
    def max_payload(self) -> int:
        """Most bytes of headers and body that the server takes in one message."""
        return int(self._client.max_payload)

    async def request(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request.

        Raises:
            ApiRefusedError: The server says no.
            BusUnavailableError: No answer in time.
        """
        if not self._client.is_connected:
            raise BusUnavailableError("disconnected")
        payload = json.dumps(body).encode() if body is not None else b""
        try:
            answer = await self._client.request(
                f"{_PREFIX}.{verb}", payload, timeout=self._timeout_seconds
            )
        except (NatsError, OSError) as exc:
            raise BusUnavailableError(f"{verb.split('.', 2)[0]} {type(exc).__name__}") from exc
        decoded: dict[str, Any] = json.loads(answer.data)
        if error := decoded.get("error"):
            raise ApiRefusedError(
                int(error.get("code", 0)),
                int(error.get("err_code", 0)),
                str(error.get("description", "")),
            )
        return decoded

    async def find(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Send one request; None when there is no such thing."""
        try:
            return await self.request(verb, body)
        except ApiRefusedError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    async def find_stream(self, stream: str) -> StreamState | None:
        """Return the state of a stream."""
        info = await self.find(f"STREAM.INFO.{stream}")
        return stream_state(info) if info else None

    async def get_stream(self, stream: str) -> StreamState:
        """Return the state of a stream.

        Raises:
            ApiRefusedError: There is no such stream.
        """
        return stream_state(await self.request(f"STREAM.INFO.{stream}"))

    async def find_message(self, stream: str, sequence: int) -> StoredMessage | None:
        """Return the message with this sequence, asked of the stream's leader."""
        return _stored_message(await self.find(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))

    async def find_next_message(
        self, stream: str, sequence: int, subject: str
    ) -> StoredMessage | None:
        """Return the first message from `sequence` on with this subject or filter."""
        return _stored_message(
            await self.find(f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": subject})
        )

    async def find_last_message(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the newest message on a subject or filter, asked of the stream's leader."""
        return _stored_message(
            await self.find(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        )


def nanoseconds(span: timedelta) -> int:
    """Return the span as JetStream counts it."""
    return span // timedelta(microseconds=1) * _NANOSECONDS_PER_MICROSECOND


def parse_delivery(reply: str) -> Delivery | None:
    """Return what a reply subject says about a delivery, or None when it is of another kind.

    Does what `Msg.metadata` of nats-py does in a fifth of the time, and keeps the stored time
    exact to the microsecond, which a float of nanoseconds is not.
    """
    tokens = reply.split(".")
    if len(tokens) == _V1_TOKENS:
        at = _V1_SEQUENCE
    elif len(tokens) >= _V2_LEAST_TOKENS:
        at = _V2_SEQUENCE
    else:
        return None
    if tokens[1] != "ACK":
        return None
    microseconds = int(tokens[at + 2]) // _NANOSECONDS_PER_MICROSECOND
    return Delivery(
        int(tokens[at]), int(tokens[at + 1]), _EPOCH + timedelta(microseconds=microseconds)
    )


def stream_state(info: Mapping[str, Any]) -> StreamState:
    """Return what the server says of a stream."""
    state = info["state"]
    return StreamState(
        config=info["config"],
        created=info["created"],
        # A stream that never held a message says 0.
        first_sequence=max(int(state["first_seq"]), 1),
        last_sequence=int(state["last_seq"]),
        last_stored_at=parse_time(state["last_ts"]),
        deleted=int(state.get("num_deleted", 0)),
        told_at=told_at(info),
    )


def told_at(info: Mapping[str, Any]) -> datetime:
    """Return when the server answered, by its own clock; by ours if it does not say."""
    text = info.get("ts")
    return parse_time(text) if text else datetime.now(UTC)


def _stored_message(answer: Mapping[str, Any] | None) -> StoredMessage | None:
    if answer is None:
        return None
    message = answer["message"]
    return StoredMessage(
        int(message["seq"]),
        parse_time(message["time"]),
        message["subject"],
        base64.b64decode(message.get("data") or ""),
    )


def parse_time(text: str) -> datetime:
    """Return the server's time; nanoseconds are cut, as `parse_delivery` cuts them."""
    return datetime.fromisoformat(text)
