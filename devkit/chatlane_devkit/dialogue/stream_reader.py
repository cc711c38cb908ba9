"""Read all messages of a stream."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from chatlane_client.transport.connection import until_connected

_PATIENCE: Final = timedelta(seconds=30)
_PAGE: Final = 500


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
        pending = (await source.consumer_info()).num_pending or 0
        while pending:
            page = await source.fetch(_PAGE, timeout=_PATIENCE.total_seconds())
            pending -= len(page)
            for raw in page:
                yield raw
    finally:
        await source.unsubscribe()
