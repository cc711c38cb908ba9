"""Routes of what the person who has signed in has typed and read."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends

from chatlane_console.conversations import Conversations
from chatlane_console.routes.bodies import KeptDraft, NewDraft, ReadMark
from chatlane_console.routes.callers import RequestId, own_conversations

router = APIRouter()

Own = Annotated[Conversations, Depends(own_conversations)]


@router.put("/sessions/{session_id}/draft", summary="Keep a draft")
async def keep_draft(
    conversations: Own, session_id: UUID, body: NewDraft, request_id: RequestId
) -> KeptDraft:
    """Keep what the person has typed and not sent; a session has it in `draft`.

    Refused with 412 if another draft is stored than the one that this one replaces.
    """
    changed_at = await conversations.sessions.keep_draft(
        session_id, body.text, replaces=body.replaces, request_id=request_id
    )
    return KeptDraft(changed_at=changed_at)


@router.put("/sessions/{session_id}/read-mark", summary="Mark what was read")
async def mark_read(
    conversations: Own, session_id: UUID, body: ReadMark, request_id: RequestId
) -> ReadMark:
    """Mark up to which row the person has read; a mark never goes back."""
    place = await conversations.sessions.mark_read(
        session_id, body.through_seq, request_id=request_id
    )
    return ReadMark(through_seq=place)
