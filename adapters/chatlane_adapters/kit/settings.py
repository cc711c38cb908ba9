"""Settings that all adapters share, from environment variables `CHATLANE_ADAPTER_*`."""

from os import environ
from pathlib import Path
from shutil import which
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)
from typing_extensions import override

from chatlane_client.media.store import MediaSettings
from chatlane_client.transport.connection import checked_servers

_SECRETS_DIR: Final = "CHATLANE_ADAPTER_SECRETS_DIR"


def _runnable(command: tuple[str, ...]) -> tuple[str, ...]:
    if command and which(command[0]) is None:
        raise ValueError(f"there is no program {command[0]}")
    return command


class AdapterSettings(BaseSettings):
    """Settings of the connection, the account and the reports of an adapter.

    A value comes from its variable, or from the file of that name, in lower case, in the directory
    that `CHATLANE_ADAPTER_SECRETS_DIR` names.
    """

    model_config = SettingsConfigDict(
        env_prefix="CHATLANE_ADAPTER_", extra="ignore", hide_input_in_errors=True
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

    account: Annotated[str, Field(description="Declared name of the account.")]
    platform: Annotated[
        str | None, Field(description="Declared name of the platform, if it is another one.")
    ] = None
    nats_url: Annotated[
        str,
        AfterValidator(checked_servers),
        Field(description="Addresses of NATS, separated by commas."),
    ] = "nats://127.0.0.1:4222"
    principal: Annotated[
        str | None, Field(description="Name that the permissions of this process are bound to.")
    ] = None
    nkey_seed_file: Annotated[
        Path | None, Field(description="File with the seed of the nkey of the principal.")
    ] = None
    credentials_file: Annotated[Path | None, Field(description="A `.creds` file.")] = None
    tls_ca_file: Annotated[
        Path | None, Field(description="Certificates of the authority that verifies NATS.")
    ] = None
    health_host: Annotated[str, Field(description="Address of the health endpoint.")] = "127.0.0.1"
    health_port: Annotated[
        int | None, Field(ge=0, le=65535, description="Its port; none serves no health endpoint.")
    ] = None
    voice_command: Annotated[
        tuple[str, ...],
        AfterValidator(_runnable),
        Field(
            description="Program that prints the words of a voice message, and its arguments, as JSON "
            "list; the path of the file is added."
        ),
    ] = ()
    voice_seconds: Annotated[float, Field(gt=0, description="How long it may take.")] = 50.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Lowest level of a log.")
    ] = "info"


class AdapterMediaSettings(
    BaseSettings,
    MediaSettings,
    env_prefix="CHATLANE_ADAPTER_MEDIA_",
    extra="ignore",
    hide_input_in_errors=True,
):
    """Settings of the store for files, from environment variables `CHATLANE_ADAPTER_MEDIA_*`."""
