"""Represent a rejected message, which is kept as a dead letter with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chatlane.domain.addressing.dedupe import undecodable_digest
from chatlane.domain.dead import add_dead_letter
from chatlane_schemas.dead import Stage

if TYPE_CHECKING:
    from chatlane.domain.effects import Effects
    from chatlane.domain.log import LogMessage
    from chatlane_schemas.dead import DeadReason


@dataclass(frozen=True, slots=True)
class RejectedMessage:
    """A rejected message and the reason; `detail` never contains any part of its body."""

    message: LogMessage
    reason: DeadReason
    detail: str | None = None

    def add_dead_letter(self, effects: Effects) -> None:
        """Add the dead letter; reading the same log position again yields the same one."""
        message = self.message
        add_dead_letter(
            effects,
            stage=Stage.INBOUND if message.log == "inbound" else Stage.RESULTS,
            reason=self.reason,
            at=message.stored_at,
            trigger=undecodable_digest(message.body, message.stored_at),
            body=message.body,
            detail=self.detail,
            log=message.log,
            partition=message.partition,
            sequence=message.sequence,
            subject=message.subject,
        )
