"""Record dead letters: the row with the body, and the announcement to operators without it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from chatlane.domain.addressing.dedupe import undecodable_digest
from chatlane.domain.counts import CountName
from chatlane.domain.effects import DeadRow, Effects, Publication
from chatlane.domain.ids import derived_id
from chatlane_schemas.codec import encode
from chatlane_schemas.dead import DeadLetter, DeadReason, Stage
from chatlane_schemas.fields import scrubbed
from chatlane_schemas.topology.subjects import dead as dead_subject

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.log import LogMessage


def add_dead_letter(
    effects: Effects,
    *,
    stage: Stage,
    reason: DeadReason,
    at: datetime,
    trigger: bytes,
    body: bytes,
    detail: str | None = None,
    log: str | None = None,
    partition: int | None = None,
    sequence: int | None = None,
    subject: str | None = None,
    session_id: UUID | None = None,
) -> None:
    """Add a dead letter and its announcement; the same trigger gives the same id again.

    Args:
        at: Time the message was stored in its log.
        trigger: Identifies the fault: a digest, a result id, a turn id.
        detail: Field and kind of error; never any part of the body.
    """
    letter_id = derived_id(at, trigger, f"dead:{stage}:{reason}")
    digest = sha256(body).digest()
    effects.dead.append(
        DeadRow(
            id=letter_id,
            stage=stage,
            reason=reason,
            log=log,
            partition=partition,
            sequence=sequence,
            stored_at=at,
            # The received text may contain a NUL, which no column accepts.
            subject=None if subject is None else scrubbed(subject),
            session_id=session_id,
            digest=digest,
            size_bytes=len(body),
            detail=detail,
            body=body,
        )
    )
    letter = DeadLetter(
        id=str(letter_id),
        at=at,
        stage=stage,
        reason=reason,
        log=log,
        partition=partition,
        sequence=sequence,
        digest=digest.hex(),
        size_bytes=len(body),
        detail=detail,
    )
    effects.publications.append(
        Publication(None, "DEAD", dead_subject(stage), letter.id, encode(letter))
    )
    effects.count((CountName.DEAD_LETTERS, stage, reason))


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
