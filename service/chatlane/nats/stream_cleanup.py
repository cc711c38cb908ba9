"""What keeps streams tidy: purging the logs, and the advisories of messages nobody acknowledged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nats.errors import Error as NatsError

from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import REQUEST_TIMEOUT, JetStream, StoredMessage, parse_delivery
from chatlane.nats.topology import LOG_STREAMS
from chatlane_schemas.streams import ADVISORIES_DURABLE, StreamName

if TYPE_CHECKING:
    from datetime import datetime

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from chatlane.domain.log import LogName
    from chatlane.nats.jetstream import StreamState

_NEXT_SUBJECT: Final = f"$JS.API.CONSUMER.MSG.NEXT.{StreamName.ADVISORIES}.{ADVISORIES_DURABLE}"
_NEXT: Final = json.dumps({"batch": 1, "no_wait": True}).encode()
_NO_MESSAGES: Final = "404"


class Undelivered(NamedTuple):
    """A message that was delivered as often as allowed, and never acknowledged.

    Attributes:
        durable: Whose readers gave up on it.
        sequence: Of the message, in ROUTED.
        deliveries: How often they got it.
        noticed_at: When the server said so.
        message: What they could not deal with; None when it is gone by now.
    """

    durable: str
    sequence: int
    deliveries: int
    noticed_at: datetime
    message: StoredMessage | None


class Notice(NamedTuple):
    """An advisory in our hands; it comes again unless it is acknowledged.

    Attributes:
        undelivered: What it says; None when it says nothing we know.
    """

    undelivered: Undelivered | None
    raw: Msg


class LogUpkeep:
    """Looks at the logs and purges them.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._jetstream = JetStream(client)

    async def get_state(self, log: LogName) -> StreamState:
        """Return how far a log goes."""
        return await self._jetstream.get_stream(LOG_STREAMS[log])

    async def find_stored_at(self, log: LogName, sequence: int) -> datetime | None:
        """Return when a message was stored, if it is still there."""
        message = await self._jetstream.find_message(LOG_STREAMS[log], sequence)
        return message.stored_at if message else None

    async def purge_below(self, log: LogName, sequence: int) -> int:
        """Delete every message before `sequence`; returns how many there were."""
        answer = await self._jetstream.request(
            f"STREAM.PURGE.{LOG_STREAMS[log]}", {"seq": sequence}
        )
        return int(answer["purged"])


class AdvisoryQueue:
    """The advisories about ROUTED, shared by all routers.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jetstream = JetStream(client)

    async def next(self) -> Notice | None:
        """Return the next advisory with the message it is about, or None while there is none."""
        try:
            # Delivered messages carry their own subject, by which the shared inbox of the new
            # style knows no request.
            raw = await self._client.request(
                _NEXT_SUBJECT, _NEXT, timeout=REQUEST_TIMEOUT.total_seconds(), old_style=True
            )
        except (NatsError, OSError) as exc:
            raise BusUnavailableError(f"advisories {type(exc).__name__}") from exc
        delivery = parse_delivery(raw.reply) if raw.reply else None
        if delivery is None:
            _expect_nothing_new(raw)
            return None
        return Notice(await self._read(raw.data, delivery.stored_at), raw)

    async def _read(self, body: bytes, noticed_at: datetime) -> Undelivered | None:
        try:
            advisory: dict[str, Any] = json.loads(body)
            durable, sequence = str(advisory["consumer"]), int(advisory["stream_seq"])
            deliveries = int(advisory["deliveries"])
        except (ValueError, TypeError, KeyError):
            return None
        message = await self._jetstream.find_message(StreamName.ROUTED, sequence)
        return Undelivered(durable, sequence, deliveries, noticed_at, message)

    async def acknowledge(self, notice: Notice) -> None:
        """Say that an advisory is dealt with; if that gets lost, it comes again."""
        try:
            await notice.raw.ack()
        except (NatsError, OSError) as exc:
            raise BusUnavailableError(f"advisories {type(exc).__name__}") from exc


def _expect_nothing_new(status: Msg) -> None:
    """Tell "no messages" from "no such durable" and the like."""
    code = (status.headers or {}).get("Status", "")
    if code != _NO_MESSAGES:
        raise BusUnavailableError(f"advisories status {code}")
