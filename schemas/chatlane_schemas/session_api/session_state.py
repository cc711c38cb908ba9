"""State of a session besides its transcript: its model override and its interruption mark."""

from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from chatlane_schemas.credentials import is_credential
from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import Instant, Name, Text

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
        description="Who runs it, by the agent's name for them.",
    )
    base_url: (
        Annotated[Text, Field(min_length=1, max_length=2048), AfterValidator(_plain_url)] | None
    ) = Field(
        default=None,
        description="Where it is reached: http(s), without user, query and fragment.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.model is None and self.provider is None and self.base_url is None:
            raise PydanticCustomError("override_empty", "an override that says nothing")
        return self


class ResumeMark(Record):
    """Mark of a session that was interrupted and is to continue."""

    reason: Name = Field(description="What interrupted it, such as `restart`.")
    marked_at: Instant = Field(description="When it was marked; the newest mark counts.")
