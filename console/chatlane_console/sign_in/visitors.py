"""Visitors: people who signed in, with their roles."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from chatlane_console.settings import ConsoleSettings, FurtherAccount
from chatlane_schemas.session_api.people import Person, PersonId

_MAX_NAME: Final = 100


class VisitorRole(StrEnum):
    """The rights of a visitor: to see the own conversations, or all."""

    PERSON = "person"
    OPERATOR = "operator"


class Visitor(BaseModel):
    """A person who signed in.

    Attributes:
        id: Of this sign-in; every sign-in has another one.
        person: The person whose sessions are visible.
        name: Name for people.
        roles: What the person may do.
        expires_at: When the person has to sign in again.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    person: Person
    name: str
    roles: frozenset[VisitorRole]
    expires_at: datetime

    @property
    def is_operator(self) -> bool:
        """Return whether the visitor is an operator."""
        return VisitorRole.OPERATOR in self.roles


class NotAdmittedError(Exception):
    """A person who signed in may not use the console."""


class Admission:
    """Makes visitors from what a provider or a proxy says about a person."""

    def __init__(self, settings: ConsoleSettings) -> None:
        """Create it from the settings of the console."""
        self._settings = settings

    def visitor(
        self,
        person_id: object,
        name: object,
        roles: Collection[str],
        find: Callable[[str], object],
    ) -> Visitor:
        """Return the visitor of an id.

        Args:
            person_id: The id of the person on the account of the console.
            name: Name for people.
            roles: What the provider or proxy says of the rights of the person.
            find: Returns a claim or header by its name, for the ids on further accounts.

        Raises:
            NotAdmittedError: The id names no person, or the roles do not admit the person.
        """
        settings = self._settings
        if settings.person_role is not None and settings.person_role not in roles:
            raise NotAdmittedError
        is_operator = settings.operator_role is not None and settings.operator_role in roles
        also = tuple(
            other
            for account in settings.further_accounts
            if (other := _id_on(account, find(account.source))) is not None
        )
        return self._visitor(person_id, name, is_operator=is_operator, also=also)

    def visitor_of_claims(self, claims: Mapping[str, JsonValue]) -> Visitor:
        """Return the visitor of the claims of a provider.

        Raises:
            NotAdmittedError: The claims name no person, or the roles do not admit the person.
        """
        settings = self._settings
        return self.visitor(
            _claim(claims, settings.person_claim),
            _claim(claims, settings.name_claim),
            _words(_claim(claims, settings.roles_claim)),
            lambda path: _claim(claims, path),
        )

    def visitor_of_link(self) -> Visitor:
        """Return the visitor whom the local link signs in, who is an operator as well."""
        return self._visitor(self._settings.link_person, None, is_operator=True)

    def _visitor(
        self,
        person_id: object,
        name: object,
        *,
        is_operator: bool,
        also: tuple[PersonId, ...] = (),
    ) -> Visitor:
        settings = self._settings
        if not _is_id(person_id):
            raise NotAdmittedError
        try:
            person = Person(
                platform=settings.platform,
                account=settings.account,
                scope=settings.scope,
                id=str(person_id),
                also=also or None,
            )
        except ValidationError:
            raise NotAdmittedError from None
        has_operators = settings.operator_principal is not None
        roles = {VisitorRole.PERSON}
        if is_operator and has_operators:
            roles.add(VisitorRole.OPERATOR)
        return Visitor(
            id=uuid4().hex,
            person=person,
            name=(name if isinstance(name, str) and name else person.id)[:_MAX_NAME],
            roles=frozenset(roles),
            expires_at=datetime.now(UTC) + timedelta(hours=settings.session_hours),
        )


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _id_on(account: FurtherAccount, value: object) -> PersonId | None:
    """Return the id of a person on a further account; None if the person has none there."""
    if not _is_id(value) or not value:
        return None
    try:
        return PersonId(
            platform=account.platform, account=account.account, scope=account.scope, id=str(value)
        )
    except ValidationError:
        return None


def _claim(claims: Mapping[str, JsonValue], path: str) -> JsonValue:
    """Return a claim; dots lead into objects, as in `realm_access.roles`."""
    if path in claims:
        return claims[path]
    value: JsonValue = dict(claims)
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def _words(value: JsonValue) -> set[str]:
    if isinstance(value, str):
        return set(value.split())
    return {word for word in value if isinstance(word, str)} if isinstance(value, list) else set()
