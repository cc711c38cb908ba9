"""Settings of the bridge for editors, and the choices that it offers."""

import tomllib
from getpass import getuser
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_settings import SettingsConfigDict

from chatlane_bridges.nats_settings import NatsSettings
from chatlane_schemas.fields import Name, PlatformName
from chatlane_schemas.session_api.people import Person

ORIGIN = "acp"
"""Origin of the sessions that editors open."""

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:/-]{1,128}$")]


class EditorSettings(NatsSettings):
    """Settings of one bridge, from variables `CHATLANE_ACP_*`; options of the command override them."""

    model_config = SettingsConfigDict(env_prefix="CHATLANE_ACP_")

    principal: Annotated[
        Name, Field(description="Name that the permissions of this process are bound to.")
    ] = "editor"
    person: Annotated[
        str | None, Field(description="Id of the person who writes; else the user of the system.")
    ] = None
    platform: Annotated[
        PlatformName, Field(description="Platform on which the person has this id.")
    ] = ORIGIN
    account: Annotated[
        Name | None, Field(description="Account that the person talks to; else the principal.")
    ] = None
    profile: Annotated[
        Name | None, Field(description="Profile of new sessions; else the default profile.")
    ] = None
    options_file: Annotated[
        Path | None, Field(description="TOML file with models, modes and options to offer.")
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Lowest level of a log.")
    ] = "warning"

    @property
    def acting_for(self) -> Person:
        """Return the person whose sessions the editor shows."""
        account = self.account or self.principal
        return Person(platform=self.platform, account=account, id=self.person or getuser())


class Choice(BaseModel):
    """A value to choose, such as a model or a mode."""

    model_config = ConfigDict(extra="forbid")

    id: Identifier
    name: str | None = None
    description: str | None = None

    @property
    def shown(self) -> str:
        """Return the name for people."""
        return self.name or self.id


class Option(Choice):
    """A setting of a session: one of its values, or a switch if it has none."""

    category: Literal["model_config", "thought_level"] | None = None
    values: tuple[Choice, ...] = ()
    default: str | bool

    @model_validator(mode="after")
    def _has_its_default(self) -> Self:
        if not self.takes(self.default):
            raise ValueError(f"option {self.id}: default is none of its values")
        return self

    def takes(self, value: str | bool) -> bool:  # noqa: FBT001 - the value of a switch
        """Return whether a value is one of the option."""
        if not self.values:
            return isinstance(value, bool)
        return value in {choice.id for choice in self.values}


class EditorOptions(BaseModel):
    """The choices that an editor offers: models, modes and other options."""

    model_config = ConfigDict(extra="forbid")

    models: tuple[Choice, ...] = ()
    modes: tuple[Choice, ...] = ()
    options: tuple[Option, ...] = ()

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        kinds: tuple[tuple[Choice, ...], ...] = (self.models, self.modes, self.options)
        for choices in kinds:
            ids = [choice.id for choice in choices]
            if len(ids) > len(set(ids)):
                raise ValueError("an id is there twice")
        if any(option.id in {"model", "mode"} for option in self.options):
            raise ValueError("models and modes have lists of their own")
        return self


def read_options(path: Path | None) -> EditorOptions:
    """Return the choices of a file; without a file there are none.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no TOML, or has values that are not allowed.
    """
    if path is None:
        return EditorOptions()
    return EditorOptions.model_validate(tomllib.loads(path.read_text("utf-8")))
