"""Represent a rejected message, which is kept as a dead letter with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chatlane.domain.addressing.dedupe import undecodable_digest
from chatlane.domain.dead import bury
from chatlane_schemas.dead import Stage

if TYPE_CHECKING:
    from chatlane.domain.effects import Effects
    from chatlane.domain.log import LogMessage
    from chatlane_schemas.dead import DeadReason


@dataclass(frozen=True, slots=True)
class Refused:
    """A rejected message and the reason; `detail` never contains any part of its body."""

    message: LogMessage
    reason: DeadReason
    detail: str | None = None

    def bury(self, effects: Effects) -> None:
        """Add the dead letter; reading the same log position again yields the same one."""
        message = self.message
        bury(
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
