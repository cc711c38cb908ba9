"""Transcripts: how they are read and what they show."""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from chatlane_schemas.envelope import Envelope, Record
from chatlane_schemas.fields import BigNumber, Flag, Instant, PlatformId, Text, ToolCalls
from chatlane_schemas.inbound import Attachments
from chatlane_schemas.results import Role
from chatlane_schemas.sessions import ApiReply

ChainCursor = Annotated[str, Field(pattern=r"^[0-9a-f]{32}\.[0-9]{1,19}$")]
"""A place in a chain of sessions: a session and a row of it."""


class TranscriptLoad(Envelope):
    """Asks for the newest rows of a transcript, or those before a row.

    A call and its results come on one page, and a call whose results are not there is left
    out, so that every page can be given to a model as it is.
    """

    session_id: UUID = Field(description="Session to read.")
    limit: Annotated[int, Field(strict=True, ge=1, le=500)] = Field(
        default=100,
        description="How many rows to show; a page may be longer to keep results with their call.",
    )
    before_seq: BigNumber | None = Field(default=None, description="Only rows below this one.")
    whole_chain: Flag = Field(
        default=False,
        description="Whether to go on with the sessions that this one continues.",
    )
    cursor: ChainCursor | None = Field(
        default=None,
        description="`next_cursor` of the page before, of a whole chain; instead of `before_seq`.",
    )
    as_stored: Flag = Field(
        default=False,
        description="Whether to show every row, calls without results included.",
    )


class TranscriptEntry(Record):
    """A row of a transcript, as shown to people."""

    seq: BigNumber = Field(description="Place in the transcript.")
    role: Role = Field(description="Who speaks.")
    content: Text | None = Field(default=None, description="What was said.")
    author: Text | None = Field(default=None, description="Person who wrote it.")
    platform_message_id: PlatformId | None = Field(
        default=None,
        description="The platform's message id.",
    )
    turn_id: UUID | None = Field(default=None, description="Turn the row belongs to.")
    tool_calls: ToolCalls | None = Field(default=None, description="Calls the model asked for.")
    tool_call_id: Text | None = Field(default=None, description="Call this row answers.")
    tool_name: Text | None = Field(default=None, description="Tool this row is from.")
    attachments: Attachments = Field(default=(), description="References to files.")
    created_at: Instant = Field(description="When the row was written.")
    session_id: UUID | None = Field(
        default=None,
        description="Session the row is of; only in a whole chain.",
    )


class TranscriptReply(ApiReply):
    """Answer to `TranscriptLoad`."""

    session_id: UUID | None = Field(default=None, description="Session the rows are of.")
    rows: tuple[TranscriptEntry, ...] = Field(default=(), description="Rows, oldest first.")
    next_before_seq: BigNumber | None = Field(
        default=None,
        description="`before_seq` of the page before this one; none when there is no more.",
    )
    next_cursor: ChainCursor | None = Field(
        default=None,
        description="The same for a whole chain, as `cursor`; none when there is no more.",
    )
