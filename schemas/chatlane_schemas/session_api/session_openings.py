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

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.text and not self.attachments:
            raise PydanticCustomError("nothing", "neither text nor attachments")
        return self
