"""Keep messages out of ROUTED while the workers of their agent leave too much of it unread.

The message is in the transcript, marked as unanswered, and its dead letter can be retried once the
workers read again. It is not announced in DEAD: an agent that reads nothing must not fill that
stream instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from chatlane.domain.dead_letters import add_dead_letter
from chatlane.domain.limits.shares import owner_of
from chatlane_schemas.codec import decode
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.routed import RoutedMessage
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Collection

    from chatlane.domain.effects import Effects, Publication


def withhold(effects: Effects, crowding: Collection[str]) -> list[UUID]:
    """Replace the messages to these agents by dead letters; return the ids of the messages."""
    withheld = [row for row in effects.publications if _leads_to(row, crowding)]
    if not withheld:
        return []
    kept = [row for row in effects.publications if not _leads_to(row, crowding)]
    ids = []
    for row in withheld:
        routed = decode(RoutedMessage, row.payload)
        ids.append(UUID(routed.id))
        add_dead_letter(
            effects,
            stage=Stage.ROUTED,
            reason=DeadReason.UNDELIVERABLE,
            at=routed.at,
            trigger=row.message_id.encode(),
            body=row.payload,
            detail=f"the workers of {routed.agent} leave too much unread",
            subject=row.subject,
            session_id=row.session_id,
        )
    effects.publications[:] = kept
    return ids


def _leads_to(row: Publication, agents: Collection[str]) -> bool:
    return row.stream == StreamName.ROUTED and owner_of("routed", row.subject) in agents
