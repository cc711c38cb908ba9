"""Settings of the endpoint, and the file with its models and keys."""

import tomllib
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_settings import SettingsConfigDict

from chatlane_bridges.nats_settings import NatsSettings
from chatlane_schemas.fields import Name, PlatformName

ORIGIN: Final = "openai"
"""Origin of the sessions that the endpoint opens."""

HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$", to_lower=True)]
ModelId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:/-]{1,128}$")]
PersonId = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class OpenAiSettings(NatsSettings):
    """Settings of one process, from variables `CHATLANE_OPENAI_*`."""

    model_config = SettingsConfigDict(env_prefix="CHATLANE_OPENAI_")

    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    ] = 8091
    file: Annotated[Path, Field(description="TOML file with models and keys.")] = Path(
        "openai.toml"
    )
    principal: Annotated[
        Name, Field(description="User of NATS with the role `front_end`, who acts for people.")
    ] = ORIGIN
    platform: Annotated[
        PlatformName, Field(description="Platform on which the people of the keys have their ids.")
    ] = ORIGIN
    account: Annotated[
        Name | None, Field(description="Account that they talk to; else the principal.")
    ] = None
    conversation_header: Annotated[
        HeaderName, Field(description="Header of a request that names its conversation.")
    ] = "x-chatlane-conversation"
    max_body_bytes: Annotated[
        int, Field(ge=1024, description="Largest body of a request, in bytes.")
    ] = 1024 * 1024


class DeclaredModel(BaseModel):
    """A model as clients choose it: an agent, by the profile of its sessions."""

    model_config = ConfigDict(extra="forbid")

    profile: Name = "default"
    """Profile of the sessions; the service knows its agent."""
    model: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """Model that is to answer, for agents that offer several."""


class DeclaredKey(BaseModel):
    """A bearer token, and the person for whom its requests are made."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Digest of the token, in hexadecimal."""
    token_file: Path | None = None
    """File with the token, instead of its digest."""
    person: PersonId | None = None
    """Id of the person."""
    person_header: HeaderName | None = None
    """Header with the id of the person, for a trusted front end of several people."""
    models: tuple[ModelId, ...] | None = None
    """Models that the key may use; all if missing."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.sha256 is None) == (self.token_file is None):
            raise ValueError("a key has either sha256 or token_file")
        if (self.person is None) == (self.person_header is None):
            raise ValueError("a key has either person or person_header")
        return self


class Declarations(BaseModel):
    """The file: models by the ids that clients choose, and keys by names for people."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    models: Annotated[dict[ModelId, DeclaredModel], Field(min_length=1)]
    keys: Annotated[dict[Name, DeclaredKey], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_known_models(self) -> Self:
        for name, key in self.keys.items():
            if not set(key.models or ()) <= self.models.keys():
                raise ValueError(f"key {name}: a model is not declared")
        return self


def read_declarations(path: Path) -> Declarations:
    """Return the models and keys of a file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no TOML, or has values that are not allowed.
    """
    return Declarations.model_validate(tomllib.loads(path.read_text("utf-8")))
