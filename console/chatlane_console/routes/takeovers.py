"""Routes by which an operator talks to a chat in place of its agent."""

from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends
from pydantic import Field

from chatlane_client import SessionLifeApi
from chatlane_console.conversations import PATIENCE
from chatlane_console.routes.bodies import MAX_MESSAGE_CHARACTERS, Body
from chatlane_console.routes.callers import Operator, RequestId, State
from chatlane_schemas.fields import Text
from chatlane_schemas.session_api.sessions import SessionView

router = APIRouter()

_MAX_AUTHOR_CHARACTERS = 200


class Takeover(Body):
    """How long to talk in place of the agent."""

    minutes: int = Field(
        default=60, ge=1, le=24 * 60, description="Minutes from now until the agent goes on."
    )


class TeamMessage(Body):
    """A message of the team."""

    text: Text = Field(
        min_length=1, max_length=MAX_MESSAGE_CHARACTERS, description="Text of the message."
    )


def takeover_api(_: Operator, state: State) -> SessionLifeApi:
    """Return the requests that take sessions over."""
    return SessionLifeApi(
        state.operator_client,
        principal=state.operator_principal,
        is_operator=True,
        patience=PATIENCE,
    )


Takeovers = Annotated[SessionLifeApi, Depends(takeover_api)]


@router.post("/sessions/{session_id}/takeover", summary="Talk in place of the agent")
async def take_over(
    takeovers: Takeovers, session_id: UUID, body: Takeover, request_id: RequestId, state: State
) -> SessionView:
    """Let the agent wait; messages of the chat wait, and a turn that runs goes on."""
    session = await takeovers.take_over(
        session_id, lasts=timedelta(minutes=body.minutes), request_id=request_id
    )
    await state.feeds.tell(session_id, "session.changed")
    return session


@router.post("/sessions/{session_id}/speak", summary="Write to the chat as the team")
async def speak(
    takeovers: Takeovers,
    operator: Operator,
    session_id: UUID,
    *,
    body: TeamMessage,
    request_id: RequestId,
    state: State,
) -> SessionView:
    """Send a message to the chat of a session that was taken over; the transcript names you."""
    author = (operator.name or operator.person.id)[:_MAX_AUTHOR_CHARACTERS]
    session = await takeovers.speak(session_id, body.text, author=author, request_id=request_id)
    await state.feeds.tell(session_id, "session.changed")
    return session


@router.post("/sessions/{session_id}/handback", summary="Hand back to the agent")
async def hand_back(
    takeovers: Takeovers, session_id: UUID, request_id: RequestId, state: State
) -> SessionView:
    """End a takeover: the agent goes on at once, with the messages that wait."""
    session = await takeovers.hand_back(session_id, request_id=request_id)
    await state.feeds.tell(session_id, "session.changed")
    return session
