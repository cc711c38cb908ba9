"""Settings of the console, from environment variables `CHATLANE_CONSOLE_*`."""

import json
import re
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address
from os import environ
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)
from typing_extensions import override

from chatlane_client.media.store import MediaSettings
from chatlane_client.transport.connection import checked_servers
from chatlane_schemas.fields import Name, PlatformName
from chatlane_schemas.session_api.people import MAX_OTHER_IDS

_FURTHER_ACCOUNT: Final = re.compile(r"([a-z0-9_-]+)/([a-z0-9_-]+)(?:/([^=,\s]+))?=(\S+)")

_SECRETS_DIR: Final = "CHATLANE_CONSOLE_SECRETS_DIR"
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

Network: TypeAlias = IPv4Network | IPv6Network


class SignInKind(StrEnum):
    """How people sign in.

    `link`: with the token of a local link. `oidc`: at a provider of OpenID Connect. `proxy`: a
    trusted proxy names the person in a header of each request.
    """

    LINK = "link"
    OIDC = "oidc"
    PROXY = "proxy"


class FurtherAccount(NamedTuple):
    """An account on which people of the console may have another id.

    Attributes:
        platform: Declared platform.
        account: Declared account.
        scope: Workspace or guild of the people, if there is one.
        source: The claim or header with the id.
    """

    platform: str
    account: str
    scope: str | None
    source: str


class ConsoleSettings(BaseSettings):
    """Settings of the HTTP server, its connection to NATS, and sign-in.

    A value comes from its variable, or from the file of that name, in lower case, in the directory
    that `CHATLANE_CONSOLE_SECRETS_DIR` names.
    """

    model_config = SettingsConfigDict(
        env_prefix="CHATLANE_CONSOLE_",
        # `media_max_bytes` is `max_bytes` of `media`.
        env_nested_delimiter="_",
        env_nested_max_split=1,
        extra="ignore",
        hide_input_in_errors=True,
    )

    @classmethod
    @override
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return where values come from, the first source that has one counts."""
        files = SecretsSettingsSource(settings_cls, environ.get(_SECRETS_DIR))
        return init_settings, env_settings, files

    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    ] = 8090
    public_url: Annotated[
        str | None,
        Field(
            pattern=r"^https?://[^/?#]+$",
            description="Address under which browsers reach the console, without a path. Requests "
            "to another host are refused. With `https`, cookies are sent over TLS only.",
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Lowest level of a log.")
    ] = "info"

    nats_url: Annotated[
        str,
        AfterValidator(checked_servers),
        Field(description="Addresses of NATS, separated by commas."),
    ] = "nats://127.0.0.1:4222"
    tls_ca_file: Annotated[
        Path | None, Field(description="Certificates of the authority that verifies NATS.")
    ] = None
    principal: Annotated[
        Name, Field(description="User of NATS with the role `front_end`, who acts for people.")
    ] = "console"
    nkey_seed_file: Annotated[
        Path | None, Field(description="File with the seed of the nkey of `principal`.")
    ] = None
    credentials_file: Annotated[
        Path | None, Field(description="A `.creds` file of `principal`.")
    ] = None
    operator_principal: Annotated[
        Name | None,
        Field(
            description="User of NATS with the role `operator`, for people who are operators. "
            "Without it the console has no routes for operators.",
        ),
    ] = None
    operator_nkey_seed_file: Annotated[
        Path | None, Field(description="File with the seed of the nkey of `operator_principal`.")
    ] = None
    operator_credentials_file: Annotated[
        Path | None, Field(description="A `.creds` file of `operator_principal`.")
    ] = None

    platform: Annotated[
        PlatformName, Field(description="Declared platform that the people belong to.")
    ] = "console"
    account: Annotated[
        Name, Field(description="Declared account of the platform that the people talk to.")
    ] = "web"
    scope: Annotated[
        str | None, Field(description="Workspace or guild of the people, if there is one.")
    ] = None

    further_accounts: Annotated[
        tuple[FurtherAccount, ...],
        NoDecode,
        Field(
            max_length=MAX_OTHER_IDS,
            description="Other accounts whose sessions people see as well, each with the claim, or the "
            "header of the proxy, that has the id of the person there: "
            "`telegram/bot=telegram_id,discord/guild=discord.id`. After a second `/`, the scope.",
        ),
    ] = ()

    sign_in: Annotated[SignInKind, Field(description="How people sign in.")] = SignInKind.LINK
    secret: Annotated[
        SecretStr | None,
        Field(
            min_length=32,
            description="Key that signs cookies, the same in all processes of the console. Without "
            "it, a restart signs everybody out.",
        ),
    ] = None
    session_hours: Annotated[
        float, Field(gt=0, le=720, description="Hours until a person has to sign in again.")
    ] = 12.0
    person_claim: Annotated[
        str, Field(description="Claim with the id of the person on the platform.")
    ] = "sub"
    name_claim: Annotated[str, Field(description="Claim with the name that pages show.")] = "name"
    roles_claim: Annotated[
        str, Field(description="Claim with the roles or groups of the person.")
    ] = "roles"
    person_role: Annotated[
        str | None,
        Field(description="Role that may use the console; without it everybody who signs in."),
    ] = None
    operator_role: Annotated[
        str | None, Field(description="Role of operators; without it there are none.")
    ] = None

    link_token: Annotated[
        SecretStr | None,
        Field(min_length=16, description="Token of the local link; a random one by default."),
    ] = None
    link_person: Annotated[
        str, Field(min_length=1, description="Id of the person whom the local link signs in.")
    ] = "me"

    oidc_issuer: Annotated[
        str | None, Field(pattern=r"^https?://", description="Issuer of the provider.")
    ] = None
    oidc_client_id: Annotated[str | None, Field(description="Id of the console there.")] = None
    oidc_client_secret: Annotated[
        SecretStr | None, Field(description="Secret of the console there, if it has one.")
    ] = None
    oidc_scope: Annotated[str, Field(description="Scopes to ask for.")] = "openid profile"

    proxy_addresses: Annotated[
        tuple[Network, ...],
        NoDecode,
        Field(description="Networks of the trusted proxy, separated by commas."),
    ] = ()
    proxy_person_header: Annotated[str, Field(description="Header with the id of the person.")] = (
        "x-forwarded-user"
    )
    proxy_name_header: Annotated[
        str, Field(description="Header with the name that pages show.")
    ] = "x-forwarded-preferred-username"
    proxy_roles_header: Annotated[
        str, Field(description="Header with the roles or groups, separated by commas.")
    ] = "x-forwarded-groups"

    max_body_bytes: Annotated[
        int, Field(ge=1024, description="Largest body of a request, in bytes.")
    ] = 256 * 1024
    max_streams: Annotated[
        int, Field(ge=1, description="Most event streams that a person may have open.")
    ] = 20

    media: Annotated[MediaSettings, Field(description="The store for files that people send.")] = (
        MediaSettings()
    )

    @model_validator(mode="before")
    @classmethod
    def _split_networks(cls, values: dict[str, object]) -> dict[str, object]:
        networks = values.get("proxy_addresses")
        if isinstance(networks, str):
            parts = (part.strip() for part in networks.split(","))
            values = {**values, "proxy_addresses": [part for part in parts if part]}
        return values

    @field_validator("further_accounts", mode="before")
    @classmethod
    def _split_accounts(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        found = [
            _FURTHER_ACCOUNT.fullmatch(part.strip()) for part in value.split(",") if part.strip()
        ]
        if None in found:
            raise PydanticCustomError(
                "account", "each account is written as platform/account=claim"
            )
        return [match.groups() for match in found if match is not None]

    @model_validator(mode="after")
    def _check_sign_in(self) -> Self:
        match self.sign_in:
            case SignInKind.LINK if not _is_loopback(self.host):
                # Who has the link is an operator, and nothing encrypts it.
                raise PydanticCustomError("sign_in", "sign_in `link` needs a loopback host")
            case SignInKind.OIDC if self.oidc_issuer is None or self.oidc_client_id is None:
                raise PydanticCustomError(
                    "sign_in", "sign_in `oidc` needs oidc_issuer and oidc_client_id"
                )
            case SignInKind.OIDC if self.public_url is None:
                raise PydanticCustomError("sign_in", "sign_in `oidc` needs public_url")
            case SignInKind.PROXY if not self.proxy_addresses:
                raise PydanticCustomError("sign_in", "sign_in `proxy` needs proxy_addresses")
            case _:
                return self

    @property
    def is_encrypted(self) -> bool:
        """Return whether browsers reach the console over TLS."""
        return (self.public_url or "").startswith("https://")

    @property
    def hosts(self) -> frozenset[str]:
        """Return the host names that requests may be for, without ports."""
        name = urlsplit(self.public_url or "").hostname
        return _LOOPBACK if name is None else frozenset({name})


def _is_loopback(host: str) -> bool:
    if host in _LOOPBACK:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def settings_table() -> str:
    """Return all settings as a Markdown table."""
    fields = {**ConsoleSettings.model_fields}
    del fields["media"]
    fields |= {f"media_{name}": field for name, field in MediaSettings.model_fields.items()}
    rows = [
        f"| `{name}` | {_shown(field.default)} | {field.description} |"
        for name, field in fields.items()
    ]
    return "\n".join(["| name | default | meaning |", "|---|---|---|", *rows])


def _shown(default: object) -> str:
    if default is None or default == ():
        return ""
    return f"`{json.dumps(default)}`" if isinstance(default, tuple) else f"`{default}`"
