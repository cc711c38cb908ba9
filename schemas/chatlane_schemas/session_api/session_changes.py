"""Requests that change a session, and the search for a session by its title.

Each change is made once: a repeated request with the same id gets the first answer.
"""

from enum import StrEnum
from typing import Annotated, Final, Self
from uuid import UUID

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError, to_json

from chatlane_schemas.content.visible_text import shown_title
from chatlane_schemas.credentials import holds_credential
from chatlane_schemas.envelope import Envelope
from chatlane_schemas.fields import MAX_INT64, Flag, JsonObject, Text, is_left_out, scrubbed_json
from chatlane_schemas.session_api.people import Person, PersonRequest
from chatlane_schemas.session_api.session_state import ModelName, without_credential
from chatlane_schemas.session_api.sessions import SessionKey, SessionVersion

MAX_TITLE_CHARACTERS: Final = 100
MAX_CONFIG_BYTES: Final = 16 * 1024


def checked_config(value: JsonObject) -> JsonObject:
    """Return a config that jsonb accepts.

    Raises:
        PydanticCustomError: It is too large, or holds a credential.
    """
    cleaned = scrubbed_json(value)
    if len(to_json(cleaned)) > MAX_CONFIG_BYTES:
        raise PydanticCustomError("config_size", "config is too large")
    if holds_credential(cleaned):
        raise PydanticCustomError("config_credential", "config holds a credential")
    return cleaned if isinstance(cleaned, dict) else {}


Title = Annotated[Text, Field(max_length=MAX_TITLE_CHARACTERS), AfterValidator(shown_title)]
"""One line of at most 100 characters; `""` means none."""

Config = Annotated[JsonObject, AfterValidator(checked_config)]
"""An object of at most 16 kB for the agent to read; never credentials."""

Directory = Annotated[
    Text, Field(min_length=1, max_length=4096), AfterValidator(without_credential)
]
"""Working directory of the agent's tools."""

ChosenModel = Annotated[ModelName, AfterValidator(without_credential)]
"""A model name that the caller chooses."""


class Preference(StrEnum):
    """Setting of a session that its users choose."""

    CWD = "cwd"
    MODEL = "model"
    CONFIG = "config"


class SessionChange(Envelope):
    """Names the session to change."""

    session_id: UUID = Field(description="Session to change.")
    acting_for: Person | None = Field(
        default=None,
        description="Person who makes the request; only sessions of this person are visible.",
    )


class SettingChange(SessionChange):
    """Replaces a value of a session, on request only if the caller has seen its latest version."""

    expected_version: SessionVersion | None = Field(
        default=None,
        # Left out if None, so that the digest of a request is the same as in older routers.
        exclude_if=is_left_out,
        description="`version` of the session that the request is based on. If the session has another "
        "version, the request is refused as `stale` and the reply shows the session.",
    )


class SessionUpdate(SettingChange):
    """Sets the preferences of a session; those that are left out stay unchanged."""

    cwd: Directory | None = Field(
        default=None,
        description="Working directory of the agent's tools.",
    )
    model: ChosenModel | None = Field(default=None, description="Model that answers.")
    config: Config | None = Field(
        default=None,
        description="Other settings for the agent, as one object; never credentials.",
    )
    config_patch: Config | None = Field(
        default=None,
        exclude_if=is_left_out,
        description="Keys of `config` to change, as a JSON Merge Patch (RFC 7396): objects are "
        "merged, null removes a key, everything else replaces. Instead of `config`.",
    )
    clear: tuple[Preference, ...] = Field(
        default=(),
        max_length=len(Preference),
        description="Settings to clear.",
    )

    @model_validator(mode="after")
    def _says_each_once(self) -> Self:
        given = {name for name in Preference if getattr(self, name) is not None}
        if self.config_patch is not None:
            if Preference.CONFIG in given:
                raise PydanticCustomError("set_and_patched", "config is both set and patched")
            given.add(Preference.CONFIG)
        if not given.isdisjoint(self.clear):
            raise PydanticCustomError("set_and_cleared", "a value is both set and cleared")
        return self


class SessionTitle(SettingChange):
    """Sets or removes the title of a session; each title of one owner is unique."""

    title: Title = Field(description='The title; `""` removes it.')
    by_model: Flag | None = Field(
        default=None,
        exclude_if=is_left_out,
        description="Whether a model made the title. Then it is refused as `conflict` if a person gave "
        "the session a title.",
    )


class SessionArchive(SettingChange):
    """Archives a session or takes it out of the archive; nothing else changes."""

    archived: Flag = Field(
        default=True, description="Whether to archive the session or restore it."
    )


class SessionEnd(SessionChange):
    """Ends a session; the next message opens another session.

    A session that has already ended stays unchanged.
    """


class SessionReopen(SessionChange):
    """Reopens a session that has ended or was suspended.

    The session of its lane stays the same. Refused as `conflict` if the conversation continues in
    another session because of a merge or compaction.
    """


class SessionReset(SessionChange):
    """Ends a session and opens the next session of its lane, which the reply shows."""


class SessionSwitch(SessionChange):
    """Points a lane to an existing session, which the reply shows; reopens it if it has ended.

    The previous session of the lane ends, unless another lane points to it. A later switch can
    return to it.
    """

    session_key: SessionKey = Field(description="Current or old key of the lane.")
    expected_session_id: UUID = Field(
        description="Session that the lane points to now; refused as `stale` if it is another one.",
    )


class SessionFork(SessionChange):
    """Opens a session that begins as a copy of another session; the reply shows the copy."""

    through_seq: Annotated[int, Field(strict=True, ge=1, le=MAX_INT64)] | None = Field(
        default=None,
        description="Last row to copy; all rows if omitted.",
    )
    session_key: SessionKey | None = Field(
        default=None,
        description="Key of a lane that points to the copied session and is to continue in the copy; "
        "refused as `stale` if it points to another session.",
    )


class SessionStop(SessionChange):
    """Ends the running turn and drops pending messages; the session stays open."""


class SessionFind(PersonRequest):
    """Finds the sessions with a title, newest first."""

    title: Annotated[Title, Field(min_length=1)] = Field(description="The complete title.")
