"""Requests that open a session or submit a message to one without a chat."""

from typing import Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from chatlane_schemas.envelope import Envelope
from chatlane_schemas.fields import Name, Text
from chatlane_schemas.inbound import Attachments
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_changes import (
    ChosenModel,
    Config,
    Directory,
    SessionChange,
)
from chatlane_schemas.session_api.sessions import CallerOrigin, SessionKey


class SessionCreate(Envelope):
    """Opens a session on a lane or without a lane; the reply shows it.

    A session without a lane is reached by its id only.
    """

    origin: CallerOrigin = Field(
        default="api",
        description="Kind of caller, such as `acp`; what `SessionCleanup` goes by.",
    )
    session_key: SessionKey | None = Field(
        default=None,
        description="Key of the lane that shall lead to it; refused as `conflict` if the lane "
        "leads to a session that has not ended.",
    )
    profile: Name | None = Field(
        default=None,
        description="Persona of a session without a lane; the default one if none is named.",
    )
    cwd: Directory | None = Field(
        default=None,
        description="Directory in which tools of the agent work.",
    )
    model: ChosenModel | None = Field(default=None, description="Model that is to answer.")
    config: Config | None = Field(
        default=None,
        description="Whatever else the agent reads, as one object; never credentials.",
    )
    acting_for: Person | None = Field(
        default=None,
        description="Whose it shall be; their lane must have led to a session of theirs before.",
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

    text: Text = Field(description="What is said; empty only with attachments.")
    attachments: Attachments = Field(default=(), description="References to files.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.text and not self.attachments:
            raise PydanticCustomError("nothing", "neither text nor attachments")
        return self
