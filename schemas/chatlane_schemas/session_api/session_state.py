"""State of a session besides its transcript: model override, interruption mark, and opening."""

from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from chatlane_schemas.credentials import is_credential
from chatlane_schemas.envelope import Record, ServiceEnvelope
from chatlane_schemas.events import ResetReason
from chatlane_schemas.fields import Flag, Instant, Name, Text

MAX_NOTE_CHARACTERS: Final = 8000


def _plain_url(value: str) -> str:
    """Reject a URL with parts that could hold a credential: a user, a query, a fragment."""
    try:
        parts = urlsplit(value)
        is_plain = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError as exc:
        raise PydanticCustomError("base_url", "base_url is no URL") from exc
    if not is_plain or "@" in parts.netloc or "?" in value or "#" in value:
        raise PydanticCustomError(
            "base_url", "base_url is not a plain http(s) URL without user, query and fragment"
        )
    return value


def without_credential(text: str) -> str:
    """Return text that holds no credential.

    Raises:
        PydanticCustomError: The text holds a credential.
    """
    if is_credential(text):
        raise PydanticCustomError("credential", "value holds a credential")
    return text


ModelName = Annotated[Text, Field(min_length=1, max_length=256)]

Note = Annotated[Text, Field(max_length=MAX_NOTE_CHARACTERS)]
"""Note from a session that is about to end to the next session; `""` means none."""


class ModelOverride(Record):
    """Model that answers in one session instead of the agent's default; never credentials."""

    model: ModelName | None = Field(default=None, description="Name of the model.")
    provider: Annotated[Text, Field(min_length=1, max_length=256)] | None = Field(
        default=None,
        description="Provider of the model, by the agent's name for it.",
    )
    base_url: (
        Annotated[Text, Field(min_length=1, max_length=2048), AfterValidator(_plain_url)] | None
    ) = Field(
        default=None,
        description="URL of the provider: http(s), without user, query and fragment.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.model is None and self.provider is None and self.base_url is None:
            raise PydanticCustomError("override_empty", "an override without a value")
        return self


class ResumeMark(Record):
    """Mark of a session that was interrupted and is to continue."""

    reason: Name = Field(description="Cause of the interruption, such as `restart`.")
    marked_at: Instant = Field(description="When the session was marked; the newest mark counts.")


class SessionOpening(ServiceEnvelope):
    """Tells an agent how its session began, and with which state it continues."""

    session_is_new: Flag = Field(default=False, description="Whether this opened the session.")
    reset_reason: ResetReason | None = Field(
        default=None,
        description="Why the previous session ended, with the first message of a new one.",
    )
    reset_had_activity: Flag = Field(
        default=False,
        description="With `reset_reason`: whether the agent answered in the previous session.",
    )
    opening_note: Note | None = Field(
        default=None,
        description="Note of the previous session, with the first message of a new one.",
    )
    model_override: ModelOverride | None = Field(
        default=None, description="Model that answers instead of the agent's default."
    )
    resume_pending: ResumeMark | None = Field(
        default=None,
        description="Mark of an interruption; the work may be half done.",
    )
    prompt_context: Text | None = Field(
        default=None,
        description="Description of the chat for a system prompt, if the agent wants it.",
    )
