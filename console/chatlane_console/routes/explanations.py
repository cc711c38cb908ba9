"""Routes by which operators ask what the service would decide, and what a session waits for."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends
from pydantic import AwareDatetime, BaseModel, Field

from chatlane_client.api.explanations import ExplanationApi
from chatlane_console.conversations import PATIENCE
from chatlane_console.routes.bodies import Body
from chatlane_console.routes.callers import Operator, State
from chatlane_schemas.session_api.operators.explanations import ExplainedFact

router = APIRouter()


class PastedEvent(Body):
    """An event to explain."""

    event: str = Field(
        max_length=200_000, description="The event as JSON, as an adapter publishes it."
    )


class EventExplanation(BaseModel):
    """The conversation that an event would reach."""

    facts: tuple[ExplainedFact, ...] = Field(
        description="Decisions, in the order in which a router makes them."
    )
    session_id: UUID | None = Field(default=None, description="Session that it would reach.")
    refusal: str | None = Field(default=None, description="Why it would become a dead letter.")
    unknown_fields: tuple[str, ...] = Field(description="Fields that routers ignore.")


class SessionExplanation(BaseModel):
    """The state of a session, and the reasons why it waits."""

    state: str = Field(description="What it waits for; others may come.")
    why: str = Field(description="The same, as a sentence.")
    next: str | None = Field(default=None, description="What happens next, as a sentence.")
    next_at: AwareDatetime | None = Field(default=None, description="When that happens.")
    facts: tuple[ExplainedFact, ...] = Field(description="What else is known.")


def explanation_api(_: Operator, state: State) -> ExplanationApi:
    """Return the requests for explanations."""
    return ExplanationApi(
        state.operator_client,
        principal=state.operator_principal,
        is_operator=True,
        patience=PATIENCE,
    )


Explanations = Annotated[ExplanationApi, Depends(explanation_api)]


@router.post("/explain", summary="Explain an event")
async def explain_event(explanations: Explanations, body: PastedEvent) -> EventExplanation:
    """Return where an event would go if it were published now; nothing is stored."""
    reply = await explanations.event(body.event)
    return EventExplanation(
        facts=reply.facts,
        session_id=reply.session_id,
        refusal=reply.refusal,
        unknown_fields=reply.unknown_fields,
    )


@router.get("/sessions/{session_id}/explanation", summary="Explain a session")
async def explain_session(explanations: Explanations, session_id: UUID) -> SessionExplanation:
    """Return why a session has no answer yet, what happens next, and when."""
    reply = await explanations.session(session_id)
    return SessionExplanation(
        state=reply.state or "unknown",
        why=reply.why or "",
        next=reply.next,
        next_at=reply.next_at,
        facts=reply.facts,
    )
