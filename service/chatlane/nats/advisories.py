"""Read the advisories of the server about messages that no worker acknowledged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nats.errors import Error as NatsError

from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import REQUEST_TIMEOUT, JetStream, StoredMessage, parse_delivery
from chatlane_schemas.topology.streams import ADVISORIES_DURABLE, StreamName

if TYPE_CHECKING:
    from datetime import datetime

    from nats.aio.client import Client
    from nats.aio.msg import Msg


_NEXT_SUBJECT: Final = f"$JS.API.CONSUMER.MSG.NEXT.{StreamName.ADVISORIES}.{ADVISORIES_DURABLE}"
_NEXT: Final = json.dumps({"batch": 1, "no_wait": True}).encode()
_NO_MESSAGES: Final = "404"


class Undelivered(NamedTuple):
    """A message that reached its maximum number of deliveries without an acknowledgement.

    Attributes:
        durable: The durable that delivered it.
        sequence: Sequence of the message in ROUTED.
        deliveries: Number of deliveries.
        noticed_at: When the server published the advisory.
        message: The message; None if it is no longer in the stream.
    """

    durable: str
    sequence: int
    deliveries: int
    noticed_at: datetime
    message: StoredMessage | None


class Notice(NamedTuple):
    """A received advisory; the server delivers it again unless it is acknowledged.

    Attributes:
        undelivered: The message that it reports; None if the advisory could not be parsed.
    """

    undelivered: Undelivered | None
    raw: Msg


class AdvisoryQueue:
    """Queue of the advisories about ROUTED; all routers share it.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jetstream = JetStream(client)

    async def next(self) -> Notice | None:
        """Return the next advisory with its message, or None if there is none."""
        try:
            # A delivered message carries its original subject, which the shared inbox of the new
            # request style cannot match to a request.
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
        """Acknowledge a handled advisory; if the ack is lost, the server delivers it again."""
        try:
            await notice.raw.ack()
        except (NatsError, OSError) as exc:
            raise BusUnavailableError(f"advisories {type(exc).__name__}") from exc


def _expect_nothing_new(status: Msg) -> None:
    """Raise BusUnavailableError unless the status means that there are no messages."""
    code = (status.headers or {}).get("Status", "")
    if code != _NO_MESSAGES:
        raise BusUnavailableError(f"advisories status {code}")
