"""Report to the service what becomes of outbound messages."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from chatlane_client.errors import (
    ConnectionClosedError,
    PermanentError,
    RetryLaterError,
    UnconfirmedPublishError,
)
from chatlane_schemas import (
    DeliveryFailure,
    DeliveryState,
    InboundEvent,
    Kind,
    OutboundMessage,
    Receipt,
    new_envelope_id,
)
from chatlane_schemas.deliveries import MAX_PIECES

_log = logging.getLogger("chatlane_client")

Publish = Callable[[InboundEvent], Awaitable[None]]

# Receipts that a full log refuses are kept in memory, so that deliveries go on.
_MOST_KEPT: Final = 10_000
_FULL_LOG_RETRY: Final = timedelta(seconds=1)


@dataclass(slots=True)
class Progress:
    """How far the delivery of a message has come.

    Attributes:
        sent: How many pieces the platform has.
        message_ids: The platform's ids of these pieces, as far as it gives ids.
        is_final: Whether the service knows the message as delivered or given up.
        may_be_sent: Whether an earlier attempt may have sent the next piece: its process ended, or the
            answer of the platform was lost.
        edited_ids: The platform's ids of the message that this one replaces.
        reported: State, failure and pieces of the last receipt.
    """

    sent: int = 0
    pieces: int | None = None
    message_ids: list[str] = field(default_factory=list)
    is_final: bool = False
    may_be_sent: bool = False
    edited_ids: tuple[str, ...] = ()
    reported: tuple[DeliveryState, DeliveryFailure | None, int] | None = None
    reported_at: float = float("-inf")

    def add(self, message_id: str | None) -> None:
        """Record that the platform has the next piece."""
        # An empty id keeps the place of a piece without one.
        self.message_ids.append(message_id or "")
        self.sent += 1
        self.may_be_sent = False


def receipt_of(
    message: OutboundMessage,
    progress: Progress,
    state: DeliveryState,
    failure: DeliveryFailure | None = None,
    retry_in: float | None = None,
) -> InboundEvent:
    """Return the event that reports the delivery of a message, in the chat of the message."""
    target, now = message.target, datetime.now(UTC)
    message_ids = tuple(progress.message_ids[:MAX_PIECES])
    return InboundEvent(
        id=new_envelope_id(),
        at=now,
        kind=Kind.RECEIPT,
        platform=target.platform,
        account=target.account,
        scope=target.scope,
        profile=target.profile,
        chat=target.chat,
        thread_id=target.thread_id,
        sender=target.sender,
        delivered=message.id,
        message_id=next(filter(None, message_ids), None),
        receipt=Receipt(
            session_id=message.session_id,
            state=state,
            sent=progress.sent,
            pieces=progress.pieces,
            message_ids=message_ids if any(message_ids) else (),
            failure=failure,
            retry_at=None if retry_in is None else now + timedelta(seconds=retry_in),
        ),
    )


class ReceiptWriter:
    """Publishes receipts in order; those that a full log refuses follow once it has room.

    Until then they are in memory only. If the process ends before, the service does not learn what
    became of these messages.
    """

    def __init__(self, publish: Publish, stopping: asyncio.Event) -> None:
        self._publish = publish
        self._stopping = stopping
        self._kept: deque[InboundEvent] = deque()
        self._some_kept = asyncio.Event()

    async def write(self, receipt: InboundEvent) -> bool:
        """Return once a receipt is stored, or kept because the log is full.

        Returns:
            False if the process was asked to stop before.
        """
        while not self._kept:
            try:
                await self._publish(receipt)
            except RetryLaterError:
                break
            except UnconfirmedPublishError:
                if self._stopping.is_set():
                    return False
            except ConnectionClosedError:
                raise
            except PermanentError as exc:
                _log.error("receipt_refused", extra={"error": str(exc)})
                return True
            else:
                return True
        if len(self._kept) >= _MOST_KEPT:
            _log.error("receipt_dropped", extra={"message_id": receipt.delivered})
            return True
        self._kept.append(receipt)
        self._some_kept.set()
        return True

    async def run(self) -> None:
        """Publish kept receipts until cancelled."""
        while True:
            await self._some_kept.wait()
            try:
                await self._publish(self._kept[0])
            except (RetryLaterError, UnconfirmedPublishError):
                await asyncio.sleep(_FULL_LOG_RETRY.total_seconds())
                continue
            except ConnectionClosedError:
                raise
            except PermanentError as exc:
                _log.error("receipt_refused", extra={"error": str(exc)})
            self._kept.popleft()
            if not self._kept:
                self._some_kept.clear()
