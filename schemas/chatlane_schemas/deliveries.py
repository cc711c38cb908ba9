"""Deliveries of outbound messages: receipts from adapters, and the record of the service."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from chatlane_schemas.envelope import Envelope, Record
from chatlane_schemas.fields import EnvelopeId, Instant, Number, PlatformId, Text

MAX_PIECES: Final = 500
MAX_CURSOR_LENGTH: Final = 30_000
"""Characters of the value of a cursor."""


class Deliverer(Envelope):
    """The lease of the process that delivers for an account: only it sends to the platform.

    The server keeps the newest message of an account for `DELIVERER_LEASE`. A process takes the lease
    with `Nats-Expected-Last-Subject-Sequence: 0`, so only while there is no such message, and renews
    it with the sequence of its last message. A process that ends gives its message a
    `Nats-TTL` of a second.
    """

    process: EnvelopeId = Field(description="Host and number of the process, for operators.")


class Cursor(Envelope):
    """How far an adapter has read its platform; the server keeps the newest of each name."""

    value: Annotated[Text, Field(max_length=MAX_CURSOR_LENGTH)] = Field(
        description="What the adapter needs to go on, in a form of its own; no words of people."
    )


class DeliveryState(StrEnum):
    """How far an outbound message has come.

    `waiting`: no adapter has reported it. `handed`: an adapter works on it, and may have sent some
    of its pieces. `delivered`: the platform has all of it. `failed`: the platform refused it; with
    `retry_at` the adapter tries again, without it never. `unknown`: an adapter ended while it sent
    the message, so the platform may have one piece more than is recorded; or no adapter reported the
    message as long as the server kept it (72 hours), as those of the release without receipts.
    """

    WAITING = "waiting"
    HANDED = "handed"
    DELIVERED = "delivered"
    FAILED = "failed"
    UNKNOWN = "unknown"


class DeliveryFailure(StrEnum):
    """Why a message was not delivered.

    `blocked`: the person does not want messages of this account. `gone`: the chat or the person no
    longer exists. `too_large`: the platform accepts no message of this size. `refused`: the platform
    refuses this message. `rate_limited`: the platform asks to wait. `unknown`: anything else.
    """

    BLOCKED = "blocked"
    GONE = "gone"
    TOO_LARGE = "too_large"
    REFUSED = "refused"
    RATE_LIMITED = "rate_limited"
    UNKNOWN = "unknown"


class Undelivered(Record):
    """A message of the agent that was given up since its last turn in the session."""

    message_id: UUID = Field(description="Id of the `OutboundMessage`.")
    turn_id: UUID | None = Field(default=None, description="Turn the message is from.")
    part: Number = Field(default=0, description="Which part of the answer of that turn.")
    failure: DeliveryFailure = Field(description="Why the platform did not take it.")
    sent: Number = Field(default=0, description="How many of its pieces the platform has.")
    failed_at: Instant = Field(description="When it was given up.")


class Receipt(Record):
    """A report of an adapter about an outbound message.

    Each receipt is complete: it repeats the ids of pieces that earlier receipts reported.
    """

    session_id: UUID = Field(description="Session of the `OutboundMessage`.")
    state: DeliveryState = Field(
        default=DeliveryState.DELIVERED, description="How far the message has come."
    )
    sent: Number = Field(default=0, description="How many of its pieces the platform has.")
    pieces: Number | None = Field(
        default=None, description="How many pieces it has, where the adapter split it."
    )
    message_ids: Annotated[tuple[PlatformId, ...], Field(max_length=MAX_PIECES, fail_fast=True)] = (
        Field(default=(), description="The platform's message ids of the sent pieces, in order.")
    )
    failure: DeliveryFailure | None = Field(
        default=None, description="Why the platform did not take it."
    )
    retry_at: Instant | None = Field(
        default=None,
        description="When the adapter tries again; without it, `failed` is final.",
    )
