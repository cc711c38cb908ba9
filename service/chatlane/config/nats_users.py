"""NATS users: the reviewed file of users, their keys, and the server configuration from it.

The file names environments, and in each the users with role and public keys. The contract
(`chatlane_schemas.topology.permissions`) defines what a role may publish and subscribe to. Neither holds
seeds: they stay with the connecting process.

An environment becomes an account with the streams, the routers and the other trusted roles. Every
other user becomes a separate account, which imports only what its role may use: the server
publishes the answer to a request without checking permissions, so the subject that a requester
chooses for it must not exist in the account of the streams.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from datetime import date, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, Self

import nkeys  # type: ignore[import-untyped]
from pydantic import ByteSize, Field, StringConstraints, ValidationError, model_validator
from typing_extensions import override

from chatlane.config.declarations import AccountName, ClosedModel, Name, account_pair
from chatlane.config.settings import SettingsError, problem_sentences
from chatlane.domain.catalog import Agent, Delivery
from chatlane_schemas.topology import permissions
from chatlane_schemas.topology.streams import DEFAULT_SLOTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from chatlane_schemas.topology.permissions import Permissions

SYSTEM_ACCOUNT: Final = "SYS"
# Limits of a separate account: far above a user's needs, and too low to exhaust a server.
MAX_CONNECTIONS: Final = 256
MAX_SUBSCRIPTIONS: Final = 10_000
# The server remembers the reply subject of a request this long after the request or its last
# answer. A request for messages takes some 750 bytes, so this bounds the memory that a user with
# thousands of requests a second can fill. It is longer than any request of the client package
# waits.
ANSWERED_WITHIN: Final = timedelta(seconds=30)
# The server gives an account that imports this subject no JetStream of its own. That JetStream
# would also answer every other request to JetStream, with the error that it is not enabled.
_JETSTREAM_OF_ITS_OWN: Final = "$JS.API.INFO"
# A subject without subscribers.
_NOTHING: Final = "chatlane.nothing"
SEED_SUFFIX: Final = ".nk"
PUBLIC_SUFFIX: Final = ".pub"

_SEED_BYTES: Final = 32
_PRIVATE: Final = 0o600
_DIRECTORY: Final = 0o700
_PUBLIC_KEY: Final = re.compile(r"U[A-Z2-7]{55}")

# Two while a key is being replaced: the old one until the new one is in use.
PublicKey = Annotated[str, StringConstraints(pattern=f"^{_PUBLIC_KEY.pattern}$")]
PublicKeys = Annotated[tuple[PublicKey, ...], Field(max_length=2)]


_OF_ROLE: Final[Mapping[str, Callable[[str], Permissions]]] = MappingProxyType(
    {
        "router": permissions.router,
        "operator": permissions.operator,
        "provisioner": permissions.provisioner,
        "observer": permissions.observer,
        "eraser": permissions.eraser,
        "backup": permissions.backup,
        "restorer": permissions.restorer,
    }
)


class User(ClosedModel):
    """A user that may connect; its name is its principal.

    Attributes:
        nkeys: Public keys; the user proves that it has the seed of one of them.
        until: The last day, in UTC, on which it is in the server's configuration.
    """

    nkeys: PublicKeys = ()
    until: date | None = None

    @property
    def is_trusted(self) -> bool:
        """The user shares the account of the streams."""
        return False

    def is_current(self, day: date) -> bool:
        """Return whether the user may still connect on a day."""
        return self.until is None or day <= self.until


class PlainUser(User):
    """A user whose permissions follow from its role alone."""

    role: Literal["router", "operator", "provisioner", "observer", "eraser", "backup", "restorer"]

    @property
    @override
    def is_trusted(self) -> bool:
        return self.role in permissions.TRUSTED_ROLES

    def permissions(self, name: str) -> Permissions:
        """Return the permissions of the user."""
        return _OF_ROLE[self.role](name)


class AdapterUser(User):
    """A user that publishes and delivers for one account of a platform: `telegram/assistant`."""

    role: Literal["adapter"]
    account: AccountName

    def permissions(self, name: str) -> Permissions:
        """Return the permissions of the user."""
        return permissions.adapter(name, [account_pair(self.account)])


class FrontEndUser(User):
    """A user that acts for the people of some accounts."""

    role: Literal["front_end"]
    accounts: Annotated[tuple[AccountName, ...], Field(min_length=1)]

    def permissions(self, name: str) -> Permissions:
        """Return the permissions of the user."""
        return permissions.front_end(name, [*map(account_pair, self.accounts)])


class WebhooksUser(User):
    """A user that sends events to other systems.

    Attributes:
        reads_text: Whether it may read all transcripts, for endpoints that get text.
    """

    role: Literal["webhooks"]
    reads_text: bool = False

    def permissions(self, name: str) -> Permissions:
        """Return the permissions of the user."""
        return permissions.webhooks(name, reads_text=self.reads_text)


class WorkerUser(User):
    """A user that answers for an agent.

    Attributes:
        slots: As `router.slots`; unused for an agent served by turns.
    """

    role: Literal["worker"]
    agent: Name
    delivery: Delivery = "turns"
    slots: int = Field(default=DEFAULT_SLOTS, ge=1, le=256)

    def permissions(self, name: str) -> Permissions:
        """Return the permissions of the user."""
        return permissions.worker(name, Agent(self.agent, self.delivery), self.slots)


AnyUser = Annotated[
    PlainUser | AdapterUser | FrontEndUser | WebhooksUser | WorkerUser, Field(discriminator="role")
]


class Environment(ClosedModel):
    """Streams and their users in NATS, isolated from every other environment.

    Attributes:
        max_file_store: The most that all of its streams may hold; if not set, the whole store of
            the server.
    """

    max_file_store: ByteSize | None = None
    users: dict[Name, AnyUser]

    @model_validator(mode="after")
    def _no_front_end_named_as_a_foreign_account(self) -> Self:
        front_ends = {
            name: {*user.accounts}
            for name, user in self.users.items()
            if isinstance(user, FrontEndUser)
        }
        adapters = {user.account for user in self.users.values() if isinstance(user, AdapterUser)}
        declared = adapters.union(*front_ends.values())
        for name, accounts in front_ends.items():
            for account in sorted(declared - accounts):
                if account_pair(account)[1] == name:
                    raise ValueError(
                        f"the front end {name} has the name of the account {account}, whose turns it "
                        "would hear: give it another name, or the account"
                    )
        return self

    def current(self, day: date) -> dict[str, AnyUser]:
        """Return the users who may connect on a day."""
        return {name: user for name, user in self.users.items() if user.is_current(day)}


class TlsFiles(ClosedModel):
    """Paths of the certificate on the server."""

    cert_file: str
    key_file: str


class BusUsers(ClosedModel):
    """The reviewed file.

    Attributes:
        tls: If not set, the server accepts unencrypted connections.
        system: The administrator of the servers, who sees no environment.
    """

    tls: TlsFiles | None = None
    system: dict[Name, User] = Field(default_factory=dict)
    environments: Annotated[dict[Name, Environment], Field(min_length=1)]

    @model_validator(mode="after")
    def _no_key_twice(self) -> Self:
        seen: dict[str, str] = {}
        for place, user in self.places():
            for key in user.nkeys:
                if other := seen.get(key):
                    raise ValueError(
                        f"{place} and {other} have the same key, so the server could not tell "
                        "them apart: make another one with `chatlane admin nats-keys`"
                    )
                seen[key] = place
        return self

    def places(self) -> Iterator[tuple[str, User]]:
        """Yield every user with its place in the file: `production/router`."""
        yield from ((f"{SYSTEM_ACCOUNT}/{name}", user) for name, user in self.system.items())
        for environment, declared in self.environments.items():
            yield from ((f"{environment}/{name}", user) for name, user in declared.users.items())

    def with_keys(self, keys: Mapping[str, str]) -> Self:
        """Return the same users with these public keys, by place, instead of their own."""
        document = self.model_dump(exclude_none=True)
        system: dict[str, dict[str, object]] = document["system"]
        for name, user in system.items():
            user["nkeys"] = (keys[f"{SYSTEM_ACCOUNT}/{name}"],)
        for environment, declared in document["environments"].items():
            for name, user in declared["users"].items():
                user["nkeys"] = (keys[f"{environment}/{name}"],)
        return type(self).model_validate(document)


def read_users(path: Path) -> BusUsers:
    """Read and check the file.

    Raises:
        SettingsError: The file is not valid; the text says what to change, and never a value.
    """
    try:
        return parse_users(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"cannot read the users of NATS: {exc}") from exc


def parse_users(text: str) -> BusUsers:
    """Parse the content of a user file.

    Raises:
        SettingsError: The content is not valid; the text says what to change, and never a value.
    """
    try:
        return BusUsers.model_validate(tomllib.loads(text))
    except ValidationError as exc:
        raise SettingsError(*problem_sentences(exc)) from None
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"the file of users is not TOML: {exc}") from exc


def new_seed() -> bytes:
    """Return a new seed for a user."""
    seed: bytes = nkeys.encode_seed(os.urandom(_SEED_BYTES), nkeys.PREFIX_BYTE_USER)
    return seed


def public_key(seed: bytes) -> str:
    """Return the public key of a seed."""
    key: bytes = nkeys.from_seed(bytearray(seed)).public_key
    return key.decode()


def make_keys(users: BusUsers, directory: Path) -> dict[str, str]:
    """Create a key pair for every user without one there; return the public keys by place.

    The seed is in `<directory>/<environment>/<user>.nk`, readable by its owner only; its public key
    is beside it in `<user>.pub`.
    """
    found: dict[str, str] = {}
    for place, _ in users.places():
        seed_path = directory / f"{place}{SEED_SUFFIX}"
        seed_path.parent.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
        if not seed_path.exists():
            seed_path.touch(mode=_PRIVATE)
            seed_path.write_bytes(new_seed() + b"\n")
        found[place] = public_key(seed_path.read_bytes().strip())
        (directory / f"{place}{PUBLIC_SUFFIX}").write_text(f"{found[place]}\n", "ascii")
    return found


def read_public_keys(users: BusUsers, directory: Path) -> dict[str, str]:
    """Return the public keys that `make_keys` wrote to a directory, by place.

    Raises:
        SettingsError: A key is missing or is not a public key.
    """
    found: dict[str, str] = {}
    for place, _ in users.places():
        path = directory / f"{place}{PUBLIC_SUFFIX}"
        try:
            key = path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise SettingsError(
                f"{place} has no public key at {path}: `chatlane admin nats-keys` makes one"
            ) from exc
        if _PUBLIC_KEY.fullmatch(key) is None:
            raise SettingsError(f"{path} does not hold the public key of a user")
        found[place] = key
    return found


def server_config(users: BusUsers, day: date) -> str:
    """Return the part of a nats-server configuration with the accounts and users of a day.

    Raises:
        SettingsError: A user has no key.
    """
    for place, user in users.places():
        if not user.nkeys:
            raise SettingsError(
                f"{place} has no key: `chatlane admin nats-keys` makes one, and its public key "
                "belongs into nkeys"
            )
    return "\n".join((*_config(users, day), ""))


def _config(users: BusUsers, day: date) -> Iterator[str]:
    yield "# The users of NATS and their permissions. Generated by `chatlane admin nats-config`: change"
    yield "# the reviewed file of users, generate this file again and reload the servers."
    expired = [(place, user.until) for place, user in users.places() if not user.is_current(day)]
    yield from (f"# Expired: {place} (until {until})" for place, until in expired)
    if users.tls is not None:
        yield "tls {"
        yield f"  cert_file: {_quoted(users.tls.cert_file)}"
        yield f"  key_file: {_quoted(users.tls.key_file)}"
        yield '  min_version: "1.3"'
        yield "}"
    yield f"system_account: {_quoted(SYSTEM_ACCOUNT)}"
    yield "accounts {"
    yield f"  {_quoted(SYSTEM_ACCOUNT)}: {{"
    yield from _users(
        (name, user, None) for name, user in users.system.items() if user.is_current(day)
    )
    yield "  }"
    for name, environment in users.environments.items():
        yield from _environment(name, environment, day)
    yield "}"


class _Principal(NamedTuple):
    """A user with a separate account, and its permissions."""

    account: str
    name: str
    user: User
    allowed: Permissions


def _environment(name: str, environment: Environment, day: date) -> Iterator[str]:
    """Yield the account of the streams, and one account per user that is not trusted."""
    users = environment.current(day)
    principals = [
        _Principal(account_of(name, user_name, user), user_name, user, user.permissions(user_name))
        for user_name, user in users.items()
        if not user.is_trusted
    ]
    yield f"  {_quoted(name)}: {{"
    yield f"    jetstream: {_jetstream(environment)}"
    yield "    exports: ["
    yield from _exports("service", _importers(principals, lambda allowed: allowed.services))
    yield from _exports("stream", _importers(principals, lambda allowed: allowed.streams))
    listed = ", ".join(_quoted(principal.account) for principal in principals)
    yield f"      {{ service: {_quoted(_NOTHING)}, accounts: [{listed}] }}"
    yield "    ]"
    yield from _users(
        (user_name, user, user.permissions(user_name))
        for user_name, user in users.items()
        if user.is_trusted
    )
    yield "  }"
    for principal in principals:
        yield f"  {_quoted(principal.account)}: {{"
        yield f"    limits: {{ max_connections: {MAX_CONNECTIONS}, max_subs: {MAX_SUBSCRIPTIONS} }}"
        yield from _exports_to_users(principal, principals)
        yield "    imports: ["
        yield from _imports("service", name, principal.allowed.services)
        yield from _imports("stream", name, principal.allowed.streams)
        for other in principals:
            imported = principal.allowed.imported_from(other.allowed)
            yield from _imports("stream", other.account, imported)
        if _JETSTREAM_OF_ITS_OWN not in principal.allowed.services:
            yield _import("service", name, _NOTHING, to=_JETSTREAM_OF_ITS_OWN)
        yield "    ]"
        yield from _users([(principal.name, principal.user, principal.allowed)])
        yield "  }"


def _exports_to_users(principal: _Principal, others: Iterable[_Principal]) -> Iterator[str]:
    """Yield the exports of a user's account to the accounts of other users."""
    heard_by = [other.account for other in others if other.allowed.imported_from(principal.allowed)]
    if heard_by:
        yield "    exports: ["
        exported = principal.allowed.exported_to_users
        yield from _exports("stream", dict.fromkeys(exported, heard_by))
        yield "    ]"


def account_of(environment: str, name: str, user: User) -> str:
    """Return the name of the account that a user of an environment connects to."""
    return environment if user.is_trusted else f"{environment}/{name}"


def _importers(
    principals: Iterable[_Principal], imported: Callable[[Permissions], Iterable[str]]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for principal in principals:
        for subject in imported(principal.allowed):
            found.setdefault(subject, []).append(principal.account)
    return found


def _exports(kind: str, importers: Mapping[str, Iterable[str]]) -> Iterator[str]:
    for subject, accounts in importers.items():
        answers = _answers(subject) if kind == "service" else ""
        listed = ", ".join(map(_quoted, accounts))
        yield f"      {{ {kind}: {_quoted(subject)},{answers} accounts: [{listed}] }}"


def _answers(service: str) -> str:
    several = ' response_type: "stream",' if permissions.answers_several_times(service) else ""
    return f'{several} response_threshold: "{int(ANSWERED_WITHIN.total_seconds())}s",'


def _imports(kind: str, environment: str, subjects: Iterable[str]) -> Iterator[str]:
    for subject in subjects:
        yield _import(kind, environment, subject)


def _import(kind: str, environment: str, subject: str, to: str | None = None) -> str:
    source = f"account: {_quoted(environment)}, subject: {_quoted(subject)}"
    local = "" if to is None else f", to: {_quoted(to)}"
    return f"      {{ {kind}: {{ {source} }}{local} }}"


def _jetstream(environment: Environment) -> str:
    limit = environment.max_file_store
    return "enabled" if limit is None else f"{{ max_file: {int(limit)} }}"


def _users(users: Iterable[tuple[str, User, Permissions | None]]) -> Iterator[str]:
    yield "    users: ["
    for name, user, allowed in users:
        for key in user.nkeys:
            yield f"      # {name}" + (f", until {user.until}" if user.until else "")
            yield "      {"
            yield f"        nkey: {_quoted(key)}"
            if allowed is not None:
                yield "        permissions: {"
                yield from _subjects("publish", allowed.publish)
                yield from _subjects("subscribe", allowed.subscribe)
                yield "        }"
            yield "      }"
    yield "    ]"


def _subjects(kind: str, allowed: Iterable[str]) -> Iterator[str]:
    yield f"          {kind}: {{ allow: ["
    yield from (f"            {_quoted(subject)}" for subject in allowed)
    yield "          ] }"


def _quoted(text: str) -> str:
    return json.dumps(text)
