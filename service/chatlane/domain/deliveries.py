"""Decide what the receipts of adapters change about outbound messages. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from chatlane_schemas.deliveries import DeliveryFailure, DeliveryState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane_schemas.deliveries import Receipt


class DeliveryKey(NamedTuple):
    """The outbound message of a delivery; sorts as its row does."""

    session_id: UUID
    message_id: UUID


class ArrivedReceipt(NamedTuple):
    """A receipt of an adapter.

    Attributes:
        key: Its message; None if it does not name one, and only tells what is ours on the platform.
        digests: For each piece, the digests of the platform's id of it and its chat.
    """

    key: DeliveryKey | None
    receipt: Receipt | None
    message_ids: tuple[str, ...]
    digests: tuple[tuple[bytes, ...], ...]


class NewDelivery(NamedTuple):
    """An outbound message whose delivery begins with its publication."""

    session_id: UUID
    message_id: UUID
    platform: str
    account: str
    agent: str
    turn_id: UUID | None
    out_seq: int
    part: int
    created_at: datetime


class DeliveredPiece(NamedTuple):
    """One of our messages on a platform.

    Attributes:
        digest: Digest of the platform's message id and its chat (`domain.addressing.dedupe`).
        session_id: The session that spoke.
        message_id: Id of the `OutboundMessage`.
        piece: Which piece of it, from 0.
    """

    digest: bytes
    session_id: UUID
    message_id: UUID
    piece: int


@dataclass(slots=True)
class Delivery:
    """The state of the delivery of an outbound message.

    Attributes:
        agent: None while only a receipt is known, as after a restore of the database.
        is_untold: It failed, and the agent has not been told.
    """

    session_id: UUID
    message_id: UUID
    platform: str
    account: str
    created_at: datetime
    agent: str | None = None
    turn_id: UUID | None = None
    state: str = DeliveryState.WAITING
    failure: str | None = None
    retry_at: datetime | None = None
    sent: int = 0
    pieces: int | None = None
    platform_message_ids: Sequence[str] = ()
    is_untold: bool = False
    changed_at: datetime | None = None

    @property
    def is_final(self) -> bool:
        """Return whether the adapter is done with the message."""
        if self.state == DeliveryState.FAILED:
            return self.retry_at is None
        return self.state == DeliveryState.DELIVERED

    def apply(self, receipt: Receipt, message_ids: Sequence[str], at: datetime) -> bool:
        """Apply one receipt; receipts of a message are applied in the order of the log.

        A message that the platform has stays delivered, and a message that was given up changes
        only if the platform turns out to have it. The progress never goes back.

        Args:
            receipt: The report of the adapter.
            message_ids: The platform's ids of the sent pieces.
            at: When the receipt was stored.

        Returns:
            Whether it changes anything.
        """
        is_delivered = receipt.state is DeliveryState.DELIVERED
        if self.state == DeliveryState.DELIVERED or (self.is_final and not is_delivered):
            return False
        before = (self.state, self.failure, self.retry_at, self.sent, self.pieces)
        self.state = receipt.state
        self.failure, self.retry_at = None, None
        if receipt.state is DeliveryState.FAILED:
            self.failure = receipt.failure or DeliveryFailure.UNKNOWN
            self.retry_at = receipt.retry_at
        self.sent = max(self.sent, receipt.sent, len(message_ids))
        self.pieces = receipt.pieces or self.pieces
        is_longer = len(message_ids) > len(self.platform_message_ids)
        if is_longer:
            self.platform_message_ids = tuple(message_ids)
        self.is_untold = self.is_final and not is_delivered
        after = (self.state, self.failure, self.retry_at, self.sent, self.pieces)
        if before == after and not is_longer:
            return False
        self.changed_at = at
        return True
