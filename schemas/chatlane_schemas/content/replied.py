"""The message that a reply answers, as the service knows it."""

from typing import Final
from uuid import UUID

from pydantic import Field

from chatlane_schemas.content.elements import StoredContent
from chatlane_schemas.fields import BigNumber, Flag, Text
from chatlane_schemas.inbound import Attachments, Sender
from chatlane_schemas.results import Role

MAX_EXCERPT: Final = 1000


class RepliedMessage(StoredContent):
    """A row of a transcript to which another one replies, as it is now."""

    session_id: UUID = Field(description="Session of the row; it may be an earlier one.")
    seq: BigNumber | None = Field(
        default=None, description="Its place in the transcript, once it has one."
    )
    role: Role = Field(description="Who wrote it: a person or the agent.")
    sender: Sender | None = Field(default=None, description="Its author, if a person wrote it.")
    sender_prefix: Text | None = Field(
        default=None, description="Its sender, as in `TurnMessage`, where several people talk."
    )
    text: Text | None = Field(
        default=None, description=f"Its text, at most the first {MAX_EXCERPT} characters."
    )
    attachments: Attachments = Field(default=(), description="References to its files.")
    is_deleted: Flag = Field(default=False, description="Whether its author deleted it.")
