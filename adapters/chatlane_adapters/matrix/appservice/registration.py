"""The registration file by which a homeserver knows an application service."""

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_NAME: Final = "chatlane"
_TOKEN_BYTES: Final = 32


class Namespace(BaseModel):
    """A pattern of ids that belong to the application service alone."""

    regex: str
    exclusive: bool = True


class Registration(BaseModel):
    """Registration that an application service and a homeserver share.

    Attributes:
        id: Name of the application service on the homeserver.
        url: Where the homeserver reaches the adapter.
        as_token: With which the adapter makes calls.
        hs_token: With which the homeserver sends transactions.
        sender_localpart: Its own user, and what the users of its accounts begin with.
        namespaces: Ids of these users.
        rate_limited: Whether the homeserver limits how fast they write.
        makes_devices: Whether users get devices without a login.
    """

    model_config = ConfigDict(populate_by_name=True)

    id: str
    url: str
    as_token: str = Field(min_length=1, repr=False)
    hs_token: str = Field(min_length=1, repr=False)
    sender_localpart: str
    namespaces: dict[str, Sequence[Namespace]]
    rate_limited: bool = False
    makes_devices: bool = Field(default=True, alias="io.element.msc4190")

    @classmethod
    def new(cls, url: str, server_name: str) -> Self:
        """Return a registration with new tokens.

        Args:
            url: Where the homeserver reaches the adapter.
            server_name: What user ids of the homeserver end with.
        """
        users = Namespace(regex=f"@{_NAME}_.*:{re.escape(server_name)}")
        return cls(
            id=_NAME,
            url=url,
            as_token=secrets.token_hex(_TOKEN_BYTES),
            hs_token=secrets.token_hex(_TOKEN_BYTES),
            sender_localpart=_NAME,
            namespaces={"users": [users]},
        )

    def localpart(self, account: str) -> str:
        """Return the name of the user of an account, such as `chatlane_sales`."""
        return f"{self.sender_localpart}_{account}"

    def owns(self, user_id: str) -> bool:
        """Return whether a user is the one of an account."""
        patterns = self.namespaces.get("users", ())
        return any(re.match(pattern.regex, user_id) for pattern in patterns)

    def save(self, path: Path) -> None:
        """Write a new file that only its owner may read.

        It is JSON, which is YAML as well, as homeservers expect it.

        Raises:
            OSError: It cannot be written, or exists.
        """
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{self.model_dump_json(indent=2, by_alias=True)}\n")


def load_registration(path: Path) -> Registration:
    """Return the registration of a file.

    Raises:
        ValueError: The file cannot be read.
    """
    try:
        return Registration.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        # The error of a wrong file would show the tokens in it.
        raise ValueError(
            "cannot be read; `chatlane adapter matrix-registration` writes this file"
        ) from None
