"""The two sides of a platform adapter: publish what people write, deliver what is answered."""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from nats.aio.client import Client
from opentelemetry.trace import SpanKind

from chatlane_client.delivery import GAP_PATIENCE, Deliver, OutboundReader
from chatlane_client.errors import ForeignEventError, RetryLaterError
from chatlane_client.retry import Backoff
from chatlane_client.tracing import span
from chatlane_client.wire import Stored, publish_stored
from chatlane_schemas import InboundEvent, subjects

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long senders are asked to wait while the log is full.
_FULL: Final = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))


class AdapterClient:
    """Speaks for one account of one platform."""

    def __init__(
        self,
        client: Client,
        *,
        platform: str,
        account: str,
        gap_patience: timedelta = GAP_PATIENCE,
    ) -> None:
        """Make a client.

        Args:
            client: An open connection.
            platform: Declared name of the platform.
            account: Declared name of the account; only one process at a time delivers for it.
            gap_patience: How long a message waits for the one before it.

        Raises:
            SubjectError: A name that cannot be declared: its events would be in no partition.
        """
        self._client = client
        self._platform = subjects.declared_name(platform.lower())
        self._account = subjects.declared_name(account)
        self._gap_patience = gap_patience
        self._stopping = asyncio.Event()
        # Set while the log is full: how long the next sender is asked to wait.
        self._waits: Iterator[float] | None = None
        # A chat's lock lives as long as somebody publishes to it.
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def publish(
        self, event: InboundEvent, *, give_up_after: timedelta | None = None
    ) -> Stored:
        """Publish an event and return once it is stored.

        Events of one chat are published in the order of the calls, one at a
        time: order that is lost before the log cannot be restored. The same
        event may be published again, also by another process, as long as it
        keeps its id.

        Args:
            event: An event of this account.
            give_up_after: None tries for ever, unless the log is full.

        Raises:
            RetryLaterError: The log is full. Tell whoever sent this to try again (an
                HTTP 503 with `Retry-After`), or keep it and publish this event
                again after the time it says, before the next of its chat.
            UnconfirmedPublishError: Not confirmed in time; it may be stored all
                the same, so publish this event again before the next of its chat.
            OversizedMessageError: Nothing was sent.
            ForeignEventError: It is of another account.
            RefusedPublishError: The log will never take it.
            ConnectionClosedError: The connection is gone for good.
        """
        self._check_account(event)
        subject = subjects.inbound_for(event)
        chat = self._chats.setdefault(subject, asyncio.Lock())
        names = {"chatlane.platform": self._platform, "chatlane.account": self._account}
        async with chat:
            with span("publish INBOUND", SpanKind.PRODUCER, names):
                return await self._publish(subject, event, give_up_after)

    async def _publish(
        self, subject: str, event: InboundEvent, give_up_after: timedelta | None
    ) -> Stored:
        try:
            stored = await publish_stored(
                self._client, subject, event, give_up_after=give_up_after, waits_for_room=False
            )
        except RetryLaterError as error:
            self._waits = self._waits or _FULL.pauses()
            error.after = timedelta(seconds=next(self._waits))
            raise
        self._waits = None
        return stored

    async def deliver(self, handler: Deliver) -> None:
        """Give every outbound message of the account to a handler, until stopped.

        Messages of one chat come one after the other and in order; chats do not
        wait for each other.

        Raises:
            ConnectionClosedError: The connection is gone for good.
        """
        reader = OutboundReader(
            self._client,
            handler,
            platform=self._platform,
            account=self._account,
            gap_patience=self._gap_patience,
            stopping=self._stopping,
        )
        await reader.run()

    def stop(self) -> None:
        """End `deliver` once the handlers that run have returned."""
        self._stopping.set()

    def _check_account(self, event: InboundEvent) -> None:
        if (event.platform, event.account) != (self._platform, self._account):
            raise ForeignEventError(
                event.id, f"{event.platform}/{event.account}", f"{self._platform}/{self._account}"
            )
