"""Turn routed messages that no worker acknowledged into dead letters.

The advisories of the server report these messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from chatlane.domain.dead_letters import add_dead_letter
from chatlane.domain.effects import Effects
from chatlane.observability.logs import get_logger
from chatlane.store import dead_letters, outbox
from chatlane.store.conversations import sessions
from chatlane.store.history import messages
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.routed import RoutedMessage

if TYPE_CHECKING:
    from chatlane.nats.advisories import AdvisoryQueue, Undelivered
    from chatlane.observability.metrics import Metrics
    from chatlane.postgres.pool import Transaction

_log = get_logger("undeliverable")


class UndeliverableMessages:
    """Dead-letters the messages that the workers of a `stream` agent did not acknowledge.

    An advisory may come twice, and to two routers. The id of the dead letter is derived from the
    message, so there is one letter and one announcement.
    """

    def __init__(
        self,
        notices: AdvisoryQueue,
        transaction: Transaction,
        metrics: Metrics,
    ) -> None:
        self._notices = notices
        self._transaction = transaction
        self._metrics = metrics

    async def collect(self) -> int:
        """Handle all pending advisories; return the number of new dead letters.

        Raises:
            BusUnavailableError: The remaining advisories wait.
            StoreUnavailableError: The remaining advisories wait.
        """
        count = 0
        while notice := await self._notices.next():
            if notice.undelivered is None:
                _log.error("advisory_not_understood")
            elif await self._set_aside(notice.undelivered):
                count += 1
            await self._notices.acknowledge(notice)
        return count

    async def _set_aside(self, undelivered: Undelivered) -> bool:
        effects = Effects()
        routed = _routed(undelivered)
        _bury(effects, undelivered, routed)
        async with self._transaction() as connection:
            if routed is not None:
                await sessions.lock(connection, [routed.session_id])
                await messages.give_up(connection, [UUID(routed.id)])
            is_new = bool(await dead_letters.insert(connection, effects.dead))
            if is_new:
                # The announcement has no place in any order, so the sweep may publish it.
                await outbox.insert(connection, None, effects.publications)
        if is_new:
            self._metrics.record_decisions(effects.counts)
            _log.error(
                "message_dead_lettered",
                reason=DeadReason.UNDELIVERABLE,
                durable=undelivered.durable,
                sequence=undelivered.sequence,
                attempts=undelivered.deliveries,
            )
        return is_new


def _bury(effects: Effects, undelivered: Undelivered, routed: RoutedMessage | None) -> None:
    message = undelivered.message
    detail = f"{undelivered.deliveries} deliveries by {undelivered.durable}"
    add_dead_letter(
        effects,
        stage=Stage.ROUTED,
        reason=DeadReason.UNDELIVERABLE,
        at=message.stored_at if message else undelivered.noticed_at,
        trigger=f"routed:{undelivered.sequence}".encode(),
        body=message.body if message else b"",
        detail=detail if message else f"{detail}; the message is gone",
        sequence=undelivered.sequence,
        subject=message.subject if message else None,
        session_id=routed.session_id if routed else None,
    )


def _routed(undelivered: Undelivered) -> RoutedMessage | None:
    if undelivered.message is None:
        return None
    try:
        routed = decode(RoutedMessage, undelivered.message.body)
        UUID(routed.id)
    except (DecodeError, ValueError):
        return None
    return routed
