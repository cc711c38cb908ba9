"""Read all messages of a stream."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext

from chatlane_client.transport.connection import until_connected

_PATIENCE: Final = timedelta(seconds=30)
_PAGE: Final = 500


async def _page(source: JetStreamContext.PullSubscription) -> list[Msg]:
    """Return the next messages; none if the stream dropped those that were pending."""
    try:
        return await source.fetch(_PAGE, timeout=_PATIENCE.total_seconds())
    except NatsTimeoutError:
        if (await source.consumer_info()).num_pending:
            raise
        return []


async def stored(client: Client, name: str) -> AsyncIterator[Msg]:
    """Yield all that a stream keeps, oldest first, a page in memory at a time."""
    await until_connected(client)
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=_PATIENCE.total_seconds(),
        mem_storage=True,
    )
    source = await client.jetstream().pull_subscribe("", stream=name, config=config)
    try:
        last = (await client.jetstream().stream_info(name)).state.last_seq
        sequence = 0
        # Count by sequence: the stream may drop messages that were pending, or store further ones.
        while sequence < last and (await source.consumer_info()).num_pending:
            page = await _page(source)
            for raw in page:
                sequence = raw.metadata.sequence.stream
                yield raw
    finally:
        await source.unsubscribe()
