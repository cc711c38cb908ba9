"""Users for an embedded nats-server: one for each part of the service, and one for whoever tests.

Whoever connects without a key is the second, in the account of the streams and without limits. So a
test looks and prepares as it does on a server without users, and the parts it starts have the
rights that they have in production.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from chatlane.config.nats_users import SEED_SUFFIX, BusUsers, make_keys, server_config
from chatlane_schemas.topology.permissions import inbox_prefix

ENVIRONMENT: Final = "tests"
_TESTER: Final = "tester"
_FIRST_USERS: Final = f'  "{ENVIRONMENT}": {{'


@dataclass(frozen=True, slots=True)
class Keys:
    """Seeds of users in a directory."""

    directory: Path

    def seed_file(self, user: str) -> Path:
        """Return the seed of a user."""
        return self.directory / ENVIRONMENT / f"{user}{SEED_SUFFIX}"

    def environment(self, user: str) -> dict[str, str]:
        """Return how a process of the service connects as a user."""
        return {
            "CHATLANE_NATS__NKEY_SEED_FILE": str(self.seed_file(user)),
            "CHATLANE_NATS__PRINCIPAL": user,
        }

    def arguments(self, user: str) -> dict[str, Any]:
        """Return how nats-py connects as a user."""
        return arguments_of(self.seed_file(user))


def arguments_of(seed_file: Path) -> dict[str, Any]:
    """Return how nats-py connects with the seed of a user, whose name the file has."""
    return {"nkeys_seed": str(seed_file), "inbox_prefix": inbox_prefix(seed_file.stem).encode()}


def with_keys(directory: Path, users: Mapping[str, Mapping[str, object]]) -> tuple[Keys, str]:
    """Make the keys of users, and the lines of a server's configuration that let them in.

    Args:
        directory: For the keys.
        users: By name, as the reviewed file has them.
    """
    document = {"environments": {ENVIRONMENT: {"users": users}}}
    declared = BusUsers.model_validate(document)
    known = declared.with_keys(make_keys(declared, directory))
    config = server_config(known, datetime.now(UTC).date())
    head, streams = config.split(_FIRST_USERS)
    tester = f'{{ user: "{_TESTER}", password: "{_TESTER}" }}'
    streams = streams.replace("    users: [", f"    users: [\n      {tester}", 1)
    return Keys(directory), f'no_auth_user: "{_TESTER}"\n{head}{_FIRST_USERS}{streams}'
