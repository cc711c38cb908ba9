"""Routes about all data of a person: export them, and ask for their erasure."""

from http import HTTPStatus
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from starlette.responses import StreamingResponse

from chatlane_console.console_state import ConsoleState
from chatlane_console.conversations import Conversations
from chatlane_console.person_export import export_lines
from chatlane_console.routes.bodies import PersonOfAccount
from chatlane_console.routes.callers import (
    Operator,
    RequestId,
    SignedIn,
    State,
    all_conversations,
    own_conversations,
    person_of,
)
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.person_state import Erasure

router = APIRouter()
operator_router = APIRouter()

_LINES: Final = "application/x-ndjson"
_EXPORT: Final[dict[int | str, dict[str, Any]]] = {
    HTTPStatus.OK: {
        "description": "Lines of JSON; without a last line of the record `end` it is incomplete.",
        "content": {_LINES: {"schema": {"type": "string"}}},
    }
}


@router.get(
    "/export",
    summary="Export the own conversations",
    response_class=StreamingResponse,
    responses=_EXPORT,
)
async def export_own(
    visitor: SignedIn, conversations: Annotated[Conversations, Depends(own_conversations)]
) -> StreamingResponse:
    """Return the folders and conversations of the person as JSON Lines.

    `record` is the kind of a line: `person`, `folder`, `session`, `row`, `revision`, `removed_row`,
    and `end`.
    """
    return _exported(conversations, visitor.person)


@router.post("/erasures", status_code=HTTPStatus.ACCEPTED, summary="Ask for an erasure")
async def erase_own(
    visitor: SignedIn,
    conversations: Annotated[Conversations, Depends(own_conversations)],
    request_id: RequestId,
    state: State,
) -> Erasure:
    """Ask for the erasure of all data of the person; it cannot be undone."""
    return await _ask_for_erasure(state, conversations, visitor.person, request_id)


@router.get("/erasures/{erasure_id}", summary="Get an erasure")
async def get_erasure(
    conversations: Annotated[Conversations, Depends(own_conversations)], erasure_id: UUID
) -> Erasure:
    """Return an erasure; once it is finished, this is the receipt."""
    return await conversations.people.erasure(erasure_id)


@operator_router.get(
    "/people/export",
    summary="Export the conversations of a person",
    response_class=StreamingResponse,
    responses=_EXPORT,
)
async def export_person(
    _: Operator, state: State, person: Annotated[PersonOfAccount, Query()]
) -> StreamingResponse:
    """Return the folders and conversations of a person as JSON Lines; each read is audited."""
    whom = person_of(state, person)
    return _exported(state.conversations_for(whom), whom)


@operator_router.post(
    "/erasures", status_code=HTTPStatus.ACCEPTED, summary="Ask for the erasure of a person"
)
async def erase_person(
    _: Operator, state: State, body: PersonOfAccount, request_id: RequestId
) -> Erasure:
    """Ask for the erasure of all data of a person; it cannot be undone."""
    whom = person_of(state, body)
    return await _ask_for_erasure(state, state.conversations_for(whom), whom, request_id)


@operator_router.get("/erasures/{erasure_id}", summary="Get an erasure of a person")
async def get_erasure_of_person(
    conversations: Annotated[Conversations, Depends(all_conversations)], erasure_id: UUID
) -> Erasure:
    """Return an erasure; once it is finished, this is the receipt."""
    return await conversations.people.erasure(erasure_id)


async def _ask_for_erasure(
    state: ConsoleState, conversations: Conversations, person: Person, request_id: str | None
) -> Erasure:
    erasure = await conversations.people.erase(request_id=request_id)
    if state.files is not None:
        await state.files.delete_all(person)
    return erasure


def _exported(conversations: Conversations, person: Person) -> StreamingResponse:
    return StreamingResponse(
        export_lines(conversations, person),
        media_type=_LINES,
        headers={"Content-Disposition": 'attachment; filename="conversations.jsonl"'},
    )
