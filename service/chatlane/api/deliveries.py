"""Answer read-only requests about the deliveries of outbound messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.domain.sessions.refusals import no_session
from chatlane.store import deliveries
from chatlane.store.logs import partitions
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.deliveries import DeliveryFind, DeliveryGet, DeliveryReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chatlane.api.endpoint import Reads
    from chatlane.domain.log import PartitionId
    from chatlane.postgres.pool import Store
    from chatlane.store.conversations.session_reads import SessionReads

    FindNewest = Callable[[str, str, str], Awaitable[tuple[PartitionId, int]]]


class DeliveryQueries:
    """Answers read-only requests about deliveries.

    Args:
        store: The database.
        sessions: Reads the session of a request, if it is of the person in the request.
        find_newest: Returns the partition of a chat, given platform, account and chat token, and
            the sequence of the newest message of the chat in the inbound log; 0 if there is none.
    """

    def __init__(self, store: Store, sessions: SessionReads, find_newest: FindNewest) -> None:
        self._store = store
        self._sessions = sessions
        self._find_newest = find_newest

    def table(self) -> Reads:
        """Return the model of each request and the method that answers it."""
        return {
            "delivery.get": (DeliveryGet, self._get),
            "delivery.find": (DeliveryFind, self._find),
        }

    async def _get(self, request: DeliveryGet) -> DeliveryReply:
        if await self._sessions.find(request.session_id, request.acting_for) is None:
            return DeliveryReply(id=new_envelope_id(), at=datetime.now(UTC), error=no_session())
        async with self._store.transaction() as connection:
            found = await deliveries.find(connection, request.session_id, request.message_id)
        return DeliveryReply(id=new_envelope_id(), at=datetime.now(UTC), deliveries=found)

    async def _find(self, request: DeliveryFind) -> DeliveryReply:
        account = request.platform, request.account
        # Before the deliveries are read: later receipts are not of interest.
        partition, sequence = await self._find_newest(*account, request.chat)
        async with self._store.transaction() as connection:
            is_settled = await partitions.get_cursor(connection, partition) >= sequence
            found = await deliveries.find(
                connection, request.session_id, request.message_id, account
            )
        return DeliveryReply(
            id=new_envelope_id(), at=datetime.now(UTC), deliveries=found, is_settled=is_settled
        )
