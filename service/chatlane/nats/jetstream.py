"""Send requests of the JetStream API as JSON, and parse the reply subjects of deliveries.

The requests are written by hand, because the server rejects unknown fields and nats-py lacks some
fields that we need.
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
        code: Status code as in HTTP.
        err_code: Error code of JetStream.
    """

    def __init__(self, code: int, err_code: int, description: str) -> None:
        self.code = code
        self.err_code = err_code
        super().__init__(f"refused with {code}/{err_code}: {description}")


class Delivery(NamedTuple):
    """Metadata of a delivered message, parsed from its reply subject."""

    stream_sequence: int
    consumer_sequence: int
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class StreamState:
    """Configuration and state of a stream as the server reports them.

    Attributes:
        config: In the format of JetStream.
        created: Creation time, as the server writes it.
        first_sequence: Of the oldest message; one past the last if the stream is empty.
        last_sequence: Of the newest message ever stored; 0 if there was none.
        last_stored_at: When the newest message was stored.
        deleted: Number of messages that are missing between the oldest and the newest.
        answered_at: When the server answered, by the clock that sets the times of messages.
    """

    config: Mapping[str, Any]
    created: str
    first_sequence: int
    last_sequence: int
    last_stored_at: datetime
    deleted: int = 0
    answered_at: datetime = field(default_factory=partial(datetime.now, UTC))

    @property
    def generation(self) -> str:
        """Return the identity of the log, which changes with a re-creation or a restore."""
        metadata = self.config.get("metadata") or {}
        return f"{metadata.get(GENERATION_KEY, '-')}@{self.created}"


class StoredMessage(NamedTuple):
    """One message read from a stream."""

    sequence: int
    stored_at: datetime
    subject: str
    body: bytes


class JetStream:
    """Client of the JetStream API requests that the service needs.

    Args:
        client: A connected client.
        timeout: Longest wait for an answer.
    """

    def __init__(self, client: Client, timeout: timedelta = REQUEST_TIMEOUT) -> None:
        self._client = client
        self._timeout_seconds = timeout.total_seconds()

    @property
    def max_payload(self) -> int:
        """Return the largest message, headers and body, that the server accepts, in bytes."""
        return int(self._client.max_payload)

    async def request(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request.

        Raises:
            ApiRefusedError: The server answered with an error.
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
        """Send one request; return None if its object does not exist."""
        try:
            return await self.request(verb, body)
        except ApiRefusedError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    async def find_stream(self, stream: str) -> StreamState | None:
        """Return the state of a stream, or None if there is no such stream."""
        info = await self.find(f"STREAM.INFO.{stream}")
        return stream_state(info) if info else None

    async def get_stream(self, stream: str) -> StreamState:
        """Return the state of a stream.

        Raises:
            ApiRefusedError: There is no such stream.
        """
        return stream_state(await self.request(f"STREAM.INFO.{stream}"))

    async def find_message(self, stream: str, sequence: int) -> StoredMessage | None:
        """Return the message with this sequence from the stream's leader."""
        return _stored_message(await self.find(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))

    async def find_next_message(
        self, stream: str, sequence: int, subject: str
    ) -> StoredMessage | None:
        """Return the first message at or after `sequence` that matches a subject or filter."""
        return _stored_message(
            await self.find(f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": subject})
        )

    async def find_last_message(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the newest message on a subject or filter from the stream's leader."""
        return _stored_message(
            await self.find(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        )


def nanoseconds(span: timedelta) -> int:
    """Return a time span in nanoseconds, the unit of JetStream."""
    return span // timedelta(microseconds=1) * _NANOSECONDS_PER_MICROSECOND


def parse_delivery(reply: str) -> Delivery | None:
    """Parse the reply subject of a delivery; return None for any other subject.

    This does the work of `Msg.metadata` of nats-py in a fifth of the time, and keeps the stored
    time exact to the microsecond, which a float of nanoseconds is not.
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
    """Build a `StreamState` from the server's answer to STREAM.INFO."""
    state = info["state"]
    return StreamState(
        config=info["config"],
        created=info["created"],
        # A stream that never held a message reports 0.
        first_sequence=max(int(state["first_seq"]), 1),
        last_sequence=int(state["last_seq"]),
        last_stored_at=parse_time(state["last_ts"]),
        deleted=int(state.get("num_deleted", 0)),
        answered_at=answered_at(info),
    )


def answered_at(info: Mapping[str, Any]) -> datetime:
    """Return when the server answered, by its clock, or by ours if the answer has no time."""
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
    """Parse a time of the server, truncated to microseconds like those of `parse_delivery`."""
    return datetime.fromisoformat(text)
