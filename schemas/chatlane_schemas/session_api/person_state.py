"""Requests about what a person has typed and read in a session, and about the erasure of a person.

Each that changes something has to name the person, also if an operator makes it. Nothing is
announced.
"""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import MAX_INT64, BigNumber, Instant, Text
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


class Erasure(Record):
    """A requested erasure of all data of a person. It does not name the person."""

    id: UUID = Field(description="Id of the request, with which its state can be asked for.")
    requested_at: Instant = Field(description="When it was requested.")
    finished_at: Instant | None = Field(
        default=None, description="When the data were gone; none as long as it has not ended."
    )
    deleted: dict[str, BigNumber] = Field(
        default={}, description="The receipt: how much was deleted, by the name of the store."
    )
    problem: Text | None = Field(
        default=None, description="Why the last attempt did not end; it is repeated."
    )


class PersonErase(PersonRequest):
    """Asks for the erasure of all data of a person; an erasure job does it, and nothing undoes it.

    An open request for the same person is returned instead of another one. Later messages of the
    person begin new conversations.
    """


class PersonErasure(PersonRequest):
    """Returns a requested erasure, to everybody who knows its id."""

    erasure_id: UUID = Field(description="Id of the request.")


class PersonErasureReply(ApiReply):
    """Reply to `PersonErase` and `PersonErasure`."""

    erasure: Erasure | None = Field(default=None, description="The erasure; none if refused.")
