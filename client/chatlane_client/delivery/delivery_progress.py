"""Ask the service what earlier processes of an adapter have delivered."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final
from uuid import UUID

from nats.aio.client import Client

from chatlane_client.delivery.receipts import Progress
from chatlane_client.errors import ChatlaneClientError, ConnectionClosedError
from chatlane_client.transport.connection import principal_of
from chatlane_client.transport.retry import Backoff, was_set_within
from chatlane_client.transport.wire import ask
from chatlane_schemas import DeliveryState, OutboundMessage, new_envelope_id
from chatlane_schemas.session_api.deliveries import DeliveryFind, DeliveryReply, DeliveryView
from chatlane_schemas.topology import subjects

_log = logging.getLogger("chatlane_client")

# Without permissions, a router accepts any name.
_DEFAULT_PRINCIPAL: Final = "adapter"
# An older service, or an older configuration of NATS, never answers.
_PATIENCE: Final = timedelta(seconds=20)
# Then it is asked only once for each message, for so long.
_SILENT_FOR: Final = timedelta(minutes=5)


class DeliveryProgress:
    """Finds the progress of messages that the server has given to a process before."""

    def __init__(
        self, client: Client, *, platform: str, account: str, stopping: asyncio.Event
    ) -> None:
        self._client = client
        self._platform = platform
        self._account = account
        self._stopping = stopping
        self._silent_until = 0.0
        principal = principal_of(client) or _DEFAULT_PRINCIPAL
        self._subject = subjects.api_for_account(principal, "delivery", "find", platform, account)

    async def find(self, message: OutboundMessage, chat: str) -> Progress | None:
        """Return the progress of a message once the service knows all that was reported about it.

        Returns:
            None if the service does not answer, or does not know the message.

        Args:
            message: The message.
            chat: Last token of the subject of the message.
        """
        now = monotonic()
        until = now if now < self._silent_until else now + _PATIENCE.total_seconds()
        for pause in Backoff().pauses():
            try:
                reply = await self._ask(message, chat)
            except ConnectionClosedError:
                raise
            except ChatlaneClientError as exc:
                if monotonic() >= until:
                    _log.warning("delivery_progress_unknown", extra={"error": str(exc)})
                    self._silent_until = monotonic() + _SILENT_FOR.total_seconds()
                    return None
            else:
                self._silent_until = 0.0
                if reply.is_settled or monotonic() >= until:
                    return _progress(reply.deliveries[0]) if reply.deliveries else None
            if await was_set_within(self._stopping, pause):
                return None
        raise AssertionError("pauses never end")

    async def _ask(self, message: OutboundMessage, chat: str) -> DeliveryReply:
        request = DeliveryFind(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            session_id=message.session_id,
            message_id=UUID(message.id),
            platform=self._platform,
            account=self._account,
            chat=chat,
        )
        return await ask(self._client, self._subject, request, DeliveryReply)


def _progress(delivery: DeliveryView) -> Progress:
    is_failed = delivery.state is DeliveryState.FAILED and delivery.retry_at is None
    return Progress(
        sent=delivery.sent,
        pieces=delivery.pieces,
        message_ids=list(delivery.message_ids),
        is_final=is_failed or delivery.state is DeliveryState.DELIVERED,
    )
