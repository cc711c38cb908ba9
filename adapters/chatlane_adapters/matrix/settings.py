"""Settings of the Matrix adapter."""

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, model_validator

from chatlane_adapters.kit.settings import AdapterSettings
from chatlane_adapters.matrix.registration import load_registration

_DEVICE_FILE: Final = "device.json"


class HomeserverSettings(AdapterSettings):
    """Settings of the homeserver, and of what an account does on it."""

    homeserver: Annotated[
        str, Field(description="Address of the homeserver, such as `https://matrix.example.org`.")
    ]
    invitations_from: Annotated[
        tuple[str, ...],
        Field(
            description="Whose invitations are accepted, as a JSON list of patterns such as "
            '`["*:example.org"]`; by default those from the homeserver of the account.'
        ),
    ] = ()
    room_messages: Annotated[
        Literal["mentions", "all"],
        Field(
            description="Which messages of rooms with several people are answered; the others are "
            "context."
        ),
    ] = "mentions"
    max_file_bytes: Annotated[
        int, Field(gt=0, description="Largest file that an answer may send.")
    ] = 50_000_000


class MatrixSettings(HomeserverSettings):
    """How one account logs in."""

    access_token: Annotated[SecretStr | None, Field(description="Access token of the account.")] = (
        None
    )
    user: Annotated[
        str | None, Field(description="User id for a login with a password instead of a token.")
    ] = None
    password: Annotated[
        SecretStr | None,
        Field(description="Its password; used once, the token is kept in the directory."),
    ] = None
    directory: Annotated[
        Path | None,
        Field(
            description="Directory for the keys of encrypted rooms; without, they are not read. "
            "Processes of one account share it."
        ),
    ] = None
    store_key: Annotated[
        SecretStr | None, Field(description="Encrypts the keys in the directory.")
    ] = None

    @model_validator(mode="after")
    def _can_log_in(self) -> Self:
        if self.access_token is None:
            if self.user is None or self.password is None:
                raise ValueError("set access_token, or user and password")
            if self.directory is None:
                raise ValueError(
                    "a password needs the directory, which keeps the token of the login"
                )
        return self

    @property
    def login(self) -> tuple[Path, str]:
        """The file that keeps the token of a login, and the password of the login."""
        return (self.directory or Path()) / _DEVICE_FILE, (
            self.password.get_secret_value() if self.password else ""
        )


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
