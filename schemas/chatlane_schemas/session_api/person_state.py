"""Requests about what a person has typed and read in a session.

Each has to name the person, also if an operator makes it. Nothing else changes, and nothing is
announced.
"""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from chatlane_schemas.fields import MAX_INT64, BigNumber, Instant
from chatlane_schemas.session_api.people import PersonRequest
from chatlane_schemas.session_api.session_marks import DraftText
from chatlane_schemas.session_api.sessions import ApiReply


class SessionDraft(PersonRequest):
    """Keeps what a person has typed in a session and not sent; the last text counts.

    Refused as `stale` if another text is stored than the one that this text replaces: so a window
    never overwrites words that it has not shown.
    """

    session_id: UUID = Field(description="Session in which the person types.")
    text: DraftText = Field(description='The words; `""` removes the draft.')
    replaces: Instant | None = Field(
        default=None,
        description="`changed_at` of the draft that this one replaces; none if there was none.",
    )


class SessionDraftReply(ApiReply):
    """Reply to `SessionDraft`."""

    changed_at: Instant | None = Field(
        default=None, description="`changed_at` of the draft; none if there is no draft now."
    )


class SessionRead(PersonRequest):
    """Marks up to which row a person has read a session; the mark never goes back."""

    session_id: UUID = Field(description="Session that the person reads.")
    through_seq: Annotated[int, Field(strict=True, ge=0, le=MAX_INT64)] = Field(
        description="Place of the last row that the person has seen; 0 for none.",
    )


class SessionReadReply(ApiReply):
    """Reply to `SessionRead`."""

    through_seq: BigNumber = Field(
        default=0, description="Place up to which the person has read the session."
    )
