"""Settings of an application service."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from chatlane_adapters.matrix.appservice.registration import load_registration
from chatlane_adapters.matrix.settings import HomeserverSettings


class AppserviceSettings(HomeserverSettings):
    """Settings of an application service, which has several accounts.

    In `principal`, `nkey_seed_file` and `credentials_file`, `{account}` is the name of an account.
    """

    account: Annotated[
        str, Field(description="Declared names of the accounts, separated by commas.")
    ]
    registration: Annotated[
        Path, Field(description="The registration file, which the homeserver reads as well.")
    ]
    listen_host: Annotated[str, Field(description="Address on which transactions are taken.")] = (
        "127.0.0.1"
    )
    listen_port: Annotated[int, Field(ge=0, le=65535, description="Its port.")] = 8009

    @property
    def accounts(self) -> tuple[str, ...]:
        """Names of the accounts."""
        return tuple(dict.fromkeys(filter(None, map(str.strip, self.account.split(",")))))

    def of_account(self, name: str) -> Self:
        """Return the settings of one of the accounts."""

        def named(value: object) -> str | None:
            return None if value is None else str(value).replace("{account}", name)

        seed, credentials = named(self.nkey_seed_file), named(self.credentials_file)
        return self.model_copy(
            update={
                "account": name,
                "principal": named(self.principal),
                "nkey_seed_file": seed and Path(seed),
                "credentials_file": credentials and Path(credentials),
            }
        )

    @model_validator(mode="after")
    def _has_accounts(self) -> Self:
        if not self.accounts:
            raise ValueError("name at least one account")
        load_registration(self.registration)
        return self
