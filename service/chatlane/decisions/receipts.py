"""Apply the receipts of adapters to the deliveries of outbound messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import to_json

from chatlane.domain.counts import CountName
from chatlane.domain.dead_letters import add_dead_letter
from chatlane.domain.deliveries import DeliveredPiece, Delivery
from chatlane.domain.effects import Publication, SeenRow
from chatlane.domain.ids import derived_id
from chatlane.store import deliveries
from chatlane_schemas.codec import encode
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.deliveries import DeliveryFailure, DeliveryState
from chatlane_schemas.events import DeliveryFailed
from chatlane_schemas.topology.subjects import undelivered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from chatlane.domain.deliveries import ArrivedReceipt, DeliveryKey
    from chatlane.domain.effects import Effects
    from chatlane.domain.resolved_message import ResolvedMessage
    from chatlane.postgres.pool import Connection


class ReceiptApplier:
    """Applies the receipts of one batch, in the order of the log."""

    def __init__(self, known: dict[DeliveryKey, Delivery]) -> None:
        self._known = known

    @classmethod
    async def load(
        cls, connection: Connection, arrived: Iterable[ResolvedMessage]
    ) -> ReceiptApplier:
        """Lock the deliveries that the receipts of a batch are about."""
        receipts = (message.receipt for message in arrived)
        keys = {receipt.key for receipt in receipts if receipt is not None and receipt.key}
        return cls(await deliveries.lock(connection, keys) if keys else {})

    def apply(self, message: ResolvedMessage, arrived: ArrivedReceipt, effects: Effects) -> None:
        """Apply one receipt; one about a message of another account changes nothing."""
        effects.count((CountName.KEPT, message.event.kind))
        # As if the message itself had arrived: its copy from the platform is a duplicate.
        effects.former_seen += [
            SeenRow(digest, None, None) for piece in arrived.digests for digest in piece
        ]
        if arrived.key is None or arrived.receipt is None:
            return
        event = message.event
        delivery = self._known.get(arrived.key)
        if delivery is None:
            delivery = Delivery(*arrived.key, event.platform, event.account, message.stored_at)
            self._known[arrived.key] = delivery
        if (delivery.platform, delivery.account) != (event.platform, event.account):
            return
        was_final = delivery.is_final
        if not delivery.apply(arrived.receipt, arrived.message_ids, message.stored_at):
            return
        effects.deliveries[arrived.key] = delivery
        effects.delivered_pieces += [
            DeliveredPiece(digest, *arrived.key, number)
            for number, piece in enumerate(arrived.digests)
            for digest in piece
        ]
        effects.count((CountName.RECEIPTS, event.platform, delivery.state, delivery.failure or ""))
        if delivery.state == DeliveryState.FAILED and delivery.is_final and not was_final:
            _give_up(delivery, message.stored_at, effects)


def _give_up(delivery: Delivery, at: datetime, effects: Effects) -> None:
    """Set the message aside, and tell the workers of its agent."""
    failure = DeliveryFailure(delivery.failure or DeliveryFailure.UNKNOWN)
    pointer = {
        "message_id": delivery.message_id,
        "session_id": delivery.session_id,
        "turn_id": delivery.turn_id,
        "failure": failure,
    }
    add_dead_letter(
        effects,
        stage=Stage.OUTBOX,
        reason=DeadReason.DELIVERY_FAILED,
        at=at,
        trigger=delivery.message_id.bytes,
        body=to_json(pointer),
        detail=f"message {delivery.message_id}: {failure}",
        session_id=delivery.session_id,
    )
    if delivery.agent is None:
        return
    event_id = derived_id(at, delivery.message_id.bytes, "delivery.failed")
    event = DeliveryFailed(
        id=str(event_id),
        at=at,
        session_id=delivery.session_id,
        agent=delivery.agent,
        message_id=delivery.message_id,
        turn_id=delivery.turn_id,
        platform=delivery.platform,
        account=delivery.account,
        failure=failure,
        sent=delivery.sent,
    )
    effects.publications.append(
        Publication(None, "EVENTS", undelivered(delivery.agent), event.id, encode(event))
    )
