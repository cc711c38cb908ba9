"""Answer read-only requests about the deliveries of outbound messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.store import deliveries
from chatlane.store.logs import partitions
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.deliveries import DeliveryGet, DeliveryReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chatlane.api.endpoint import Reads
    from chatlane.domain.log import PartitionId
    from chatlane.postgres.pool import Store

    FindNewest = Callable[[str, str, str], Awaitable[tuple[PartitionId, int]]]


class DeliveryQueries:
    """Answers read-only requests about deliveries.

    Args:
        store: The database.
        find_newest: Returns the partition of a chat, given platform, account and chat token, and
            the sequence of the newest message of the chat in the inbound log; 0 if there is none.
    """

    def __init__(self, store: Store, find_newest: FindNewest) -> None:
        self._store = store
        self._find_newest = find_newest

    def table(self) -> Reads:
        """Return the model of each request and the method that answers it."""
        return {"delivery.get": (DeliveryGet, self._get)}

    async def _get(self, request: DeliveryGet) -> DeliveryReply:
        newest: tuple[PartitionId, int] | None = None
        if request.platform and request.account and request.chat:
            # Before the deliveries are read: a receipt of later is not asked about.
            newest = await self._find_newest(request.platform, request.account, request.chat)
        is_settled: bool | None = None
        async with self._store.transaction() as connection:
            if newest is not None:
                partition, sequence = newest
                is_settled = await partitions.get_cursor(connection, partition) >= sequence
            found = await deliveries.find(connection, request)
        return DeliveryReply(
            id=new_envelope_id(), at=datetime.now(UTC), deliveries=found, is_settled=is_settled
        )
