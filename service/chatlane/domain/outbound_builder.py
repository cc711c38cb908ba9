"""Build the messages of the service to a chat, as rows of the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chatlane.domain.deliveries import NewDelivery
from chatlane.domain.effects import Publication
from chatlane_schemas.codec import encode
from chatlane_schemas.outbound import OutboundKind, OutboundMessage
from chatlane_schemas.topology.subjects import chat_token
from chatlane_schemas.topology.subjects import outbound as outbound_subject

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Session
    from chatlane_schemas.results import Part
    from chatlane_schemas.source import Source


@dataclass(frozen=True, slots=True)
class Speaking:
    """The sender and the target chat of outbound messages; without a target none are sent.

    Attributes:
        is_interim: Whether the messages come before the answer of the turn.
    """

    session: Session
    agent: str
    target: Source | None
    at: datetime
    turn_id: UUID | None = None
    kind: OutboundKind = OutboundKind.ANSWER
    is_interim: bool = False

    def say(
        self,
        said: Part,
        message_id: UUID,
        effects: Effects,
        number: int = 0,
        draft: str | None = None,
    ) -> None:
        """Publish one message, in the order of the session.

        Args:
            said: The content.
            message_id: Id of the message.
            effects: Collects the writes.
            number: Place in the answer.
            draft: Platform's id of the draft that the message replaces.
        """
        target = self.target
        if target is None:
            return
        message = OutboundMessage(
            id=str(message_id),
            at=self.at,
            session_id=self.session.id,
            out_seq=self.session.take_out_seq(),
            agent=self.agent,
            target=target,
            kind=self.kind,
            reply_to=target.message_id if said.reply_to is None else said.reply_to,
            turn_id=self.turn_id,
            part=number,
            is_interim=self.is_interim or None,
            draft=draft,
            text=said.text,
            attachments=said.attachments,
            format=said.format,
            buttons=said.buttons,
            edits=said.edits,
            pause_before_ms=said.pause_before_ms or None,
        )
        # Positional arguments, since this runs for every answer and names cost time.
        delivery = NewDelivery(
            self.session.id,
            message_id,
            target.platform,
            target.account,
            self.agent,
            self.turn_id,
            message.out_seq,
            number,
            self.at,
        )
        effects.new_deliveries.append(delivery)
        effects.publications.append(
            Publication(
                self.session.id, "OUTBOUND", _subject_to(target), message.id, encode(message)
            )
        )


def _subject_to(target: Source) -> str:
    chat, sender = target.chat, target.sender
    token = chat_token(
        chat.id if chat else None,
        sender.id if sender else None,
        sender.alt_id if sender else None,
    )
    return outbound_subject(target.platform, target.account, token)
