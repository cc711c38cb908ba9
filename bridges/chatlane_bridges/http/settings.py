"""Settings that all bridges over HTTP share, and the keys of their files."""

import tomllib
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_settings import SettingsConfigDict

from chatlane_bridges.nats_settings import NatsSettings
from chatlane_schemas.fields import Name, PlatformName

HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$", to_lower=True)]
PersonId = Annotated[str, StringConstraints(min_length=1, max_length=256)]

FileT = TypeVar("FileT", bound=BaseModel)


class HttpSettings(NatsSettings):
    """Settings of one process that serves people over HTTP."""

    model_config = SettingsConfigDict()

    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    ]
    file: Annotated[Path, Field(description="TOML file with what is served, and keys.")]
    principal: Annotated[
        Name, Field(description="User of NATS with the role `front_end`, who acts for people.")
    ]
    platform: Annotated[
        PlatformName, Field(description="Platform on which the people of the keys have their ids.")
    ]
    account: Annotated[
        Name | None, Field(description="Account that they talk to; else the principal.")
    ] = None
    max_body_bytes: Annotated[
        int, Field(ge=1024, description="Largest body of a request, in bytes.")
    ] = 1024 * 1024


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

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.sha256 is None) == (self.token_file is None):
            raise ValueError("a key has either sha256 or token_file")
        if (self.person is None) == (self.person_header is None):
            raise ValueError("a key has either person or person_header")
        return self


def read_file(path: Path, kind: type[FileT]) -> FileT:
    """Return the content of a TOML file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no TOML, or has values that are not allowed.
    """
    return kind.model_validate(tomllib.loads(path.read_text("utf-8")))
