"""Requests by which operators ask what the service would decide, and what a session waits for."""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from chatlane_schemas.envelope import MAX_BODY_BYTES, Record
from chatlane_schemas.fields import Instant, Name, Text
from chatlane_schemas.session_api.people import OperatorRequest
from chatlane_schemas.session_api.sessions import ApiReply


class ExplainEvent(OperatorRequest):
    """Explains where an inbound event would go if it were published now; nothing is stored."""

    event: Annotated[Text, Field(max_length=MAX_BODY_BYTES)] = Field(
        description="The event as JSON, as an adapter publishes it."
    )


class ExplainSession(OperatorRequest):
    """Explains why a session has no answer yet, what happens next, and when."""

    session_id: UUID = Field(description="Session to explain.")


class ExplainedFact(Record):
    """A fact of an explanation."""

    name: Name = Field(description="Name of the fact; others may come.")
    values: tuple[Text, ...] = Field(
        default=(), max_length=64, description="Its values, for people; none if there is nothing."
    )


class ExplainEventReply(ApiReply):
    """Reply with the decisions of a router about an event."""

    facts: tuple[ExplainedFact, ...] = Field(
        default=(), description="Decisions, in the order in which a router makes them."
    )
    session_id: UUID | None = Field(default=None, description="Session that it would reach.")
    refusal: Text | None = Field(default=None, description="Why it would become a dead letter.")
    unknown_fields: tuple[Text, ...] = Field(
        default=(), max_length=64, description="Fields that routers of this release ignore."
    )


class ExplainSessionReply(ApiReply):
    """Reply with what a session waits for."""

    state: Name | None = Field(default=None, description="What it waits for; others may come.")
    why: Text | None = Field(default=None, description="The same, as a sentence.")
    next: Text | None = Field(default=None, description="What happens next, as a sentence.")
    next_at: Instant | None = Field(default=None, description="When that happens, if it is known.")
    facts: tuple[ExplainedFact, ...] = Field(default=(), description="What else is known.")
