"""Whose session it is: the one person behind its key, or nobody where several people talk."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from chatlane.domain.aliases import AliasId, AliasKind
from chatlane.domain.keys import escaped, is_shared, parse_session_key
from chatlane.domain.people import person_form

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chatlane.domain.aliases import AliasRow
    from chatlane.domain.keys import ParsedKey
    from chatlane_schemas.people import Person


def owner_text(platform: str, account: str, scope: str | None, person: str) -> str:
    """Return a person as a session names its owner; injective."""
    names = [platform, account, person] if scope is None else [platform, account, person, scope]
    return ":".join(map(escaped, names))


def owner_of(session_key: str, person: str | None) -> str | None:
    """Return the owner of a session in which a person was the first to write.

    Args:
        session_key: Key of its lane.
        person: Their canonical id, if they have one.
    """
    key = None if person is None else _unshared(session_key)
    if key is None or person is None:
        return None
    return owner_text(key.platform, key.account, key.scope, person)


# Asked for every message of a session that several people share.
@lru_cache(maxsize=8192)
def _unshared(session_key: str) -> ParsedKey | None:
    key = parse_session_key(session_key)
    return None if is_shared(key) else key


def alias_of(person: Person) -> AliasId | None:
    """Return where all ids of a person are found; None if theirs is the id of no person."""
    form = person_form(person.platform, person.id)
    if form is None:
        return None
    return AliasId(person.platform, person.account, AliasKind.PERSON, form)


def owners_of(person: Person, known: Iterable[AliasRow]) -> set[str]:
    """Return every text under which sessions may name a person as their owner.

    A session keeps the id that was the canonical one when it began.

    Args:
        person: Whom a caller acts for.
        known: The whole group of `alias_of(person)`.
    """
    alias = alias_of(person)
    ids = {row.alias for row in known} | ({alias.alias} if alias else set())
    scope = person.scope or None
    return {owner_text(person.platform, person.account, scope, one) for one in ids}
