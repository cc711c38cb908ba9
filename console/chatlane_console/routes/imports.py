"""Route by which a person imports conversations of other programs.

The page reads the file of the other program and sends one conversation in each request, so the
console keeps nothing, and a broken upload goes on where it stopped.
"""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from chatlane_console.conversations import Conversations
from chatlane_console.routes.bodies import Body
from chatlane_console.routes.callers import RequestId, own_conversations
from chatlane_schemas.fields import Name, Text
from chatlane_schemas.session_api.session_openings import (
    MAX_IMPORT_CHARACTERS,
    ImportOmission,
    ImportOutcome,
    ImportSource,
)

router = APIRouter()

IMPORT_PATH: Final = "/imports"
MAX_IMPORT_BODY_BYTES: Final = MAX_IMPORT_CHARACTERS + 4096
"""Largest body of an import."""


class ForeignConversation(Body):
    """A conversation of another program."""

    source: ImportSource = Field(description="The program that wrote it.")
    name: Text = Field(
        min_length=1,
        max_length=200,
        description="Name for the report; of a session of Claude Code the name of its file.",
    )
    content: Text = Field(
        min_length=1,
        max_length=MAX_IMPORT_CHARACTERS,
        description="The conversation, compressed with gzip, in base64: an object of the export, or "
        "the file of a session of Claude Code; at most 16 MiB without compression.",
    )
    profile: Name | None = Field(default=None, description="Persona; the default one by default.")
    is_continued: bool = Field(
        default=False, description="Whether the session is open; otherwise it is read only."
    )


class ImportedConversation(BaseModel):
    """The outcome of an import."""

    session_id: UUID | None = Field(default=None, description="The session.")
    outcome: ImportOutcome | None = Field(
        default=None, description="Whether the session is new, grew, or is as it was."
    )
    rows: int = Field(description="Rows that were added.")
    left_out: tuple[ImportOmission, ...] = Field(description="What was left out, and why.")


@router.post(IMPORT_PATH, summary="Import a conversation")
async def import_conversation(
    conversations: Annotated[Conversations, Depends(own_conversations)],
    body: ForeignConversation,
    request_id: RequestId,
) -> ImportedConversation:
    """Import a conversation of another program, which the person then owns.

    The same conversation, imported again, adds what is new.
    """
    reply = await conversations.sessions.import_conversation(
        body.source,
        body.name,
        body.content,
        profile=body.profile,
        is_continued=body.is_continued,
        request_id=request_id,
    )
    return ImportedConversation(
        session_id=reply.session_id,
        outcome=reply.outcome,
        rows=reply.rows,
        left_out=reply.left_out,
    )
