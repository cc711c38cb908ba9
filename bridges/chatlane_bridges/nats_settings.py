"""Settings that all bridges share: their connection to NATS and their log."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Literal

from nats.aio.client import Client
from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from chatlane_client import OnRefused, open_connection
from chatlane_client.transport.connection import checked_servers
from chatlane_schemas.fields import Name


class NatsSettings(BaseSettings):
    """The connection of one process to NATS, and its log."""

    model_config = SettingsConfigDict(extra="ignore", hide_input_in_errors=True)

    nats_url: Annotated[
        str,
        AfterValidator(checked_servers),
        Field(description="Addresses of NATS, separated by commas."),
    ] = "nats://127.0.0.1:4222"
    principal: Annotated[Name, Field(description="User of NATS.")]
    nkey_seed_file: Annotated[
        Path | None, Field(description="File with the seed of the nkey of the principal.")
    ] = None
    credentials_file: Annotated[
        Path | None, Field(description="A `.creds` file of the principal.")
    ] = None
    tls_ca_file: Annotated[
        Path | None, Field(description="Certificates of the authority that verifies NATS.")
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Lowest level of a log.")
    ] = "info"

    def connection(
        self, name: str, on_refused: OnRefused | None = None
    ) -> AbstractAsyncContextManager[Client]:
        """Return a connection to NATS.

        Args:
            name: Shown by NATS.
            on_refused: Called with each request that the user has no right for.
        """
        return open_connection(
            self.nats_url.split(","),
            name=name,
            principal=self.principal,
            nkey_seed_file=_text(self.nkey_seed_file),
            credentials_file=_text(self.credentials_file),
            tls_ca_file=_text(self.tls_ca_file),
            on_refused=on_refused,
        )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
