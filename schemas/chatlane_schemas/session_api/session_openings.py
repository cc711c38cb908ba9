"""Requests that open a session, import one, or submit a message to one without a chat."""

from enum import StrEnum
from typing import Final, Self
from uuid import UUID

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from chatlane_schemas.content.front_end import FrontEnd
from chatlane_schemas.envelope import Envelope, Record
from chatlane_schemas.fields import BigNumber, Flag, Name, Text, is_left_out
from chatlane_schemas.inbound import Attachments
from chatlane_schemas.session_api.people import Person, PersonRequest
from chatlane_schemas.session_api.session_changes import (
    ChosenModel,
    Config,
    Directory,
    SessionChange,
)
from chatlane_schemas.session_api.sessions import ApiReply, CallerOrigin, SessionKey

MAX_IMPORT_CHARACTERS: Final = 960_000
"""Most characters of a compressed conversation in base64: it fits into one message of NATS."""
MAX_IMPORT_BYTES: Final = 16 * 1024 * 1024
"""Largest conversation to import, without compression."""


class SessionCreate(Envelope):
    """Opens a session on a lane or without a lane; the reply shows it.

    A session without a lane is reached by its id only.
    """

    origin: CallerOrigin = Field(
        default="api",
        description="Kind of caller, such as `acp`; `SessionCleanup` selects sessions by it.",
    )
    session_key: SessionKey | None = Field(
        default=None,
        description="Key of the lane to point to the session; refused as `conflict` if the lane points "
        "to a session that has not ended.",
    )
    profile: Name | None = Field(
        default=None,
        description="Persona of a session without a lane; the default persona if omitted.",
    )
    cwd: Directory | None = Field(
        default=None,
        description="Working directory of the agent's tools.",
    )
    model: ChosenModel | None = Field(default=None, description="Model that answers.")
    config: Config | None = Field(
        default=None,
        description="Other settings for the agent, as one object; never credentials.",
    )
    acting_for: Person | None = Field(
        default=None,
        description="Owner of the session; the lane must have pointed to a session of this person.",
    )

    @model_validator(mode="after")
    def _names_one_profile(self) -> Self:
        if self.session_key is not None and self.profile is not None:
            raise PydanticCustomError("profile", "the key of the lane says the profile")
        return self


class SessionSubmit(SessionChange):
    """Submits a message to a session by its id; queued like a message of a chat.

    If the session was compacted, the message goes to the session in which the conversation
    continues, and the reply shows that session. Refused as `conflict` if that session has ended or
    is suspended. The answer of the agent goes to the chat of the last message.
    """

    text: Text = Field(description="Text of the message; empty only with attachments.")
    attachments: Attachments = Field(default=(), description="References to files.")
    front_end: FrontEnd | None = Field(
        default=None,
        exclude_if=is_left_out,
        description="Tools, context and state of the front end, for the turn that answers the "
        "message.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.text and not self.attachments:
            raise PydanticCustomError("nothing", "neither text nor attachments")
        return self


class ImportSource(StrEnum):
    """A program whose conversations can be imported."""

    CLAUDE_CODE = "claude_code"
    CHATGPT = "chatgpt"
    OPEN_WEBUI = "open_webui"


class SessionImport(PersonRequest):
    """Imports one conversation of another program for a person, who owns the session.

    The session is ended and read only, unless it is to be continued. The same conversation, imported
    again, adds what is new. Refused as `invalid` for content that is no conversation.
    """

    source: ImportSource = Field(description="The program that wrote the conversation.")
    name: Text = Field(
        min_length=1,
        max_length=200,
        description="Name for the report; the id of a session of Claude Code is the name of its file.",
    )
    content: Text = Field(
        min_length=1,
        max_length=MAX_IMPORT_CHARACTERS,
        repr=False,
        description="The conversation, compressed with gzip, in base64: the object of an export, or the "
        "file of a session of Claude Code.",
    )
    profile: Name | None = Field(
        default=None, description="Persona of the session; the default persona if omitted."
    )
    is_continued: Flag = Field(
        default=False, description="Whether the session is open, so that it can go on."
    )


class ImportOutcome(StrEnum):
    """The effect of an import on its session."""

    NEW = "new"
    CONTINUED = "continued"
    UNCHANGED = "unchanged"


class ImportOmission(Record):
    """A part of a conversation that was left out."""

    what: Text = Field(description="Kind of what was left out, such as `message`.")
    reason: Text = Field(description="The reason.")
    count: BigNumber = Field(description="How many.")


class SessionImportReply(ApiReply):
    """The outcome of an import."""

    session_id: UUID | None = Field(default=None, description="The session of the conversation.")
    outcome: ImportOutcome | None = Field(
        default=None, description="Whether the session is new, grew, or is as it was."
    )
    rows: BigNumber = Field(default=0, description="Rows that were added.")
    left_out: tuple[ImportOmission, ...] = Field(
        default=(), description="What was left out, most frequent first."
    )
