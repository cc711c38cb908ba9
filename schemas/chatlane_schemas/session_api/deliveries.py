"""Requests that read what became of outbound messages."""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from chatlane_schemas.deliveries import DeliveryFailure, DeliveryState
from chatlane_schemas.envelope import Envelope, Record
from chatlane_schemas.fields import BigNumber, Flag, Instant, Name, Number, PlatformId, PlatformName
from chatlane_schemas.session_api.people import PersonRequest
from chatlane_schemas.session_api.sessions import ApiReply


class DeliveryGet(PersonRequest):
    """Reads the deliveries of a session, or the delivery of one message."""

    session_id: UUID = Field(description="Session that spoke.")
    message_id: UUID | None = Field(
        default=None,
        description="Id of the `OutboundMessage`. Without it, the reply has the newest messages of "
        "the session.",
    )


class DeliveryFind(Envelope):
    """Reads the delivery of a message for the adapter that is to send it."""

    session_id: UUID = Field(description="Session that spoke.")
    message_id: UUID = Field(description="Id of the `OutboundMessage`.")
    platform: PlatformName = Field(description="Platform of the adapter.")
    account: Name = Field(description="Account of the adapter; only its messages are shown.")
    chat: Annotated[str, Field(pattern=r"^([0-9a-f]{16}|none)$")] = Field(
        description="Last token of the subject of the message, which stands for its chat."
    )


class DeliveryView(Record):
    """The state of the delivery of an outbound message."""

    message_id: UUID = Field(description="Id of the `OutboundMessage`.")
    platform: PlatformName = Field(description="Platform of the message.")
    account: Name = Field(description="Account of the message.")
    turn_id: UUID | None = Field(default=None, description="Turn the message is from.")
    out_seq: BigNumber | None = Field(
        default=None, description="Number of the message in its session."
    )
    part: Number = Field(default=0, description="Which part of the answer of that turn.")
    state: DeliveryState = Field(description="How far the message has come.")
    failure: DeliveryFailure | None = Field(
        default=None, description="Why the platform did not take it."
    )
    retry_at: Instant | None = Field(
        default=None, description="When the adapter tries again; without it, `failed` is final."
    )
    sent: Number = Field(default=0, description="How many of its pieces the platform has.")
    pieces: Number | None = Field(default=None, description="How many pieces the message has.")
    message_ids: tuple[PlatformId, ...] = Field(
        default=(), description="The platform's message ids of the sent pieces, in order."
    )
    created_at: Instant = Field(description="When the service decided to send the message.")
    changed_at: Instant | None = Field(
        default=None, description="When the last receipt was stored."
    )


class DeliveryReply(ApiReply):
    """Reply to a request about deliveries."""

    deliveries: tuple[DeliveryView, ...] = Field(
        default=(), description="The deliveries, oldest message first."
    )
    is_settled: Flag | None = Field(
        default=None,
        description="In the reply to an adapter: whether every receipt of the chat that was stored "
        "before the request is included. If not, ask again.",
    )
