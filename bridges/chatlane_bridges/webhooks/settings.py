"""Settings of the process that sends webhooks, and the file with its endpoints."""

import os
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_settings import SettingsConfigDict

from chatlane_bridges.http.settings import read_file
from chatlane_bridges.nats_settings import NatsSettings
from chatlane_bridges.webhooks.signatures import signing_key
from chatlane_schemas.fields import Name

_MAX_SECRETS: Final = 3

KindPattern = Annotated[str, StringConstraints(pattern=r"^(\*|[a-z]{1,64}\.(\*|[a-z]{1,64}))$")]


class WebhookSettings(NatsSettings):
    """Settings of one process, from variables `CHATLANE_WEBHOOKS_*`."""

    model_config = SettingsConfigDict(env_prefix="CHATLANE_WEBHOOKS_")

    file: Annotated[
        Path, Field(description="TOML file with the endpoints, or a folder with several.")
    ] = Path("webhooks.toml")
    host: Annotated[str, Field(description="Address of the health endpoint.")] = "127.0.0.1"
    port: Annotated[
        int | None, Field(ge=0, le=65535, description="Its port; none serves no health endpoint.")
    ] = None
    principal: Annotated[Name, Field(description="User of NATS with the role `webhooks`.")] = (
        "webhooks"
    )


class DeclaredEndpoint(BaseModel):
    """An address that gets events."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: str
    """HTTPS address."""
    events: Annotated[tuple[KindPattern, ...], Field(min_length=1)]
    """Kinds of events: `turn.ended`, `session.*` or `*`."""
    secret_file: Path | None = None
    """File with the secret `whsec_...`; several, one a line, while it is changed."""
    secret_env: str | None = None
    """Variable with the secret, instead of a file."""
    include_text: bool = False
    """Whether `turn.ended` has the rows of the turn, with what was said."""
    allow_private: bool = False
    """Whether the address may be private, or without TLS."""

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        address = urlsplit(self.url)
        if address.scheme not in ({"http", "https"} if self.allow_private else {"https"}):
            raise ValueError("url is an https:// address")
        if not address.hostname or address.username is not None or address.fragment:
            raise ValueError("url has a host, and neither a user nor a fragment")
        if (self.secret_file is None) == (self.secret_env is None):
            raise ValueError("an endpoint has either secret_file or secret_env")
        return self

    def keys(self) -> tuple[bytes, ...]:
        """Return the keys that sign, newest first.

        Raises:
            OSError: The file cannot be read.
            ValueError: There is no secret, there are too many, or one cannot be used.
        """
        if self.secret_file is not None:
            text = self.secret_file.read_text("utf-8")
        else:
            text = os.environ.get(self.secret_env or "", "")
        keys = tuple(signing_key(secret) for secret in text.split())
        if not 1 <= len(keys) <= _MAX_SECRETS:
            raise ValueError(f"an endpoint has 1 to {_MAX_SECRETS} secrets")
        return keys


class Declarations(BaseModel):
    """The file: endpoints by their names."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    endpoints: Annotated[dict[Name, DeclaredEndpoint], Field(min_length=1)]


def read_declarations(path: Path) -> Declarations:
    """Return the endpoints of a file, or of all files `*.toml` of a folder.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is no TOML, has values that are not allowed, or an endpoint twice.
    """
    paths = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    if not paths:
        raise ValueError(f"{path} has no files *.toml")
    endpoints: dict[str, DeclaredEndpoint] = {}
    for declared in (read_file(it, Declarations) for it in paths):
        if doubles := sorted(endpoints.keys() & declared.endpoints.keys()):
            raise ValueError(f"endpoints are declared twice: {', '.join(doubles)}")
        endpoints |= declared.endpoints
    return Declarations(endpoints=endpoints)
