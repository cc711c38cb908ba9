"""Settings of the Matrix adapter."""

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, model_validator

from chatlane_adapters.kit.settings import AdapterSettings

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
