"""Settings of the endpoint, and the file with its models and keys."""

from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_settings import SettingsConfigDict

from chatlane_bridges.http.settings import DeclaredKey, HeaderName, HttpSettings
from chatlane_schemas.fields import Name, PlatformName

ORIGIN: Final = "openai"
"""Origin of the sessions that the endpoint opens."""

ModelId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:/-]{1,128}$")]


class OpenAiSettings(HttpSettings):
    """Settings of one process, from variables `CHATLANE_OPENAI_*`."""

    model_config = SettingsConfigDict(env_prefix="CHATLANE_OPENAI_")

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
    conversation_header: Annotated[
        HeaderName, Field(description="Header of a request that names its conversation.")
    ] = "x-chatlane-conversation"


class DeclaredModel(BaseModel):
    """A model as clients choose it: an agent, by the profile of its sessions."""

    model_config = ConfigDict(extra="forbid")

    profile: Name = "default"
    """Profile of the sessions; the service knows its agent."""
    model: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """Model that is to answer, for agents that offer several."""


class ModelKey(DeclaredKey):
    """A key, and the models that it may use."""

    models: tuple[ModelId, ...] | None = None
    """Models that the key may use; all if missing."""


class Declarations(BaseModel):
    """The file: models by the ids that clients choose, and keys by names for people."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    models: Annotated[dict[ModelId, DeclaredModel], Field(min_length=1)]
    keys: Annotated[dict[Name, ModelKey], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_known_models(self) -> Self:
        for name, key in self.keys.items():
            if not set(key.models or ()) <= self.models.keys():
                raise ValueError(f"key {name}: a model is not declared")
        return self
