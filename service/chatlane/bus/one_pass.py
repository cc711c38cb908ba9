"""Reads messages of a stream once, through a throw-away consumer that acknowledges nothing."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from nats.errors import Error as NatsError

from chatlane.bus.jetstream import REQUEST_TIMEOUT, nanoseconds, parse_delivery
from chatlane.errors import BusUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from datetime import timedelta

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from chatlane.bus.jetstream import Delivery, JetStream

_UNLIMITED: Final = 0


class OnePass:
    """One reading of a stream.

    Attributes:
        pending: How many messages there were to read when it began.
    """

    def __init__(self, client: Client, consumer: str, inbox: Subscription, pending: int) -> None:
        self.pending = pending
        self._client = client
        self._consumer = consumer
        self._inbox = inbox

    async def pull(self, batch: int, *, within: timedelta) -> list[tuple[Msg, Delivery]]:
        """Return the next messages; fewer, or none, where others went while they were read.

        Args:
            batch: How many to ask for.
            within: Longest wait for each.

        Raises:
            BusUnavailableError: One did not come in time.
        """
        request = json.dumps({"batch": batch, "expires": nanoseconds(REQUEST_TIMEOUT)})
        got: list[tuple[Msg, Delivery]] = []
        try:
            await self._client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._consumer}",
                request.encode(),
                reply=self._inbox.subject,
            )
            for _ in range(batch):
                message = await self._inbox.next_msg(timeout=within.total_seconds())
                delivery = parse_delivery(message.reply) if message.reply else None
                if delivery is None:
                    # The request has ended: there is no more.
                    break
                got.append((message, delivery))
        except (NatsError, OSError, TimeoutError) as exc:
            raise BusUnavailableError(f"reading {type(exc).__name__}") from exc
        return got


@asynccontextmanager
async def open_pass(
    client: Client,
    jetstream: JetStream,
    stream: str,
    config: Mapping[str, Any],
    *,
    inactive: timedelta,
) -> AsyncIterator[OnePass]:
    """Make the consumer for the length of the block; the server forgets one that nobody deletes.

    Args:
        client: Whose connection it is.
        jetstream: Over the same connection.
        stream: Of which stream.
        config: Name, filter, and where it begins.
        inactive: After so long without a request the server forgets it.

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
        yield OnePass(client, f"{stream}.{name}", inbox, int(created["num_pending"]))
        await jetstream.find(f"CONSUMER.DELETE.{stream}.{name}")


@asynccontextmanager
async def _open_inbox(client: Client) -> AsyncIterator[Subscription]:
    try:
        # No more comes than a batch that was asked for.
        inbox = await client.subscribe(
            client.new_inbox(), pending_msgs_limit=_UNLIMITED, pending_bytes_limit=_UNLIMITED
        )
    except NatsError as exc:
        raise BusUnavailableError(type(exc).__name__) from exc
    try:
        yield inbox
    finally:
        if client.is_connected:
            await inbox.unsubscribe()
