"""Determine the owner of a session: the identity of its only person, or None if it is shared.

The owner of a session is an identity (`identities`), never an id: an id can be handed on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from chatlane.domain.addressing.aliases import AliasId, AliasKind
from chatlane.domain.addressing.keys import (
    escaped,
    is_shared,
    key_text,
    parse_session_key,
    unescaped,
)
from chatlane.domain.addressing.people import person_form

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from chatlane.domain.addressing.keys import ParsedKey
    from chatlane_schemas.session_api.people import Person


def owner_text(platform: str, account: str, scope: str | None, name: str) -> str:
    """Return an identity in the form in which sessions store their owner; injective.

    Args:
        name: Of the identity.
    """
    names = [platform, account, name] if scope is None else [platform, account, name, scope]
    return ":".join(map(escaped, names))


def parse_owner_text(owner: str) -> tuple[str, str, str | None, str]:
    """Return platform, account, scope and name of an identity; the inverse of `owner_text`."""
    platform, account, name, *scope = map(unescaped, owner.split(":"))
    return platform, account, scope[0] if scope else None, name


# Runs several times for every message.
@lru_cache(maxsize=8192)
def owner_of(session_key: str, person: str | None) -> str | None:
    """Return the owner of a session in which a person was the first to write.

    Args:
        session_key: Key of its lane.
        person: Name of their identity, if they have one.
    """
    key = None if person is None else _unshared(session_key)
    if key is None or person is None:
        return None
    return owner_text(key.platform, key.account, key.scope, person)


def is_shared_lane(session_key: str) -> bool:
    """Return whether several people may write on a lane."""
    return _unshared(session_key) is None


def shared_key(session_id: UUID, session_key: str, lane_keys: Iterable[str]) -> str:
    """Return a key without a person for a session of one person in which others wrote.

    Args:
        session_id: Of the session.
        session_key: Its current key.
        lane_keys: Keys of the lanes that point to it.
    """
    shared = next(filter(is_shared_lane, lane_keys), None)
    if shared is not None:
        return shared
    key = parse_session_key(session_key)
    chat = key.chat if key.chat_class == "group" else str(session_id)
    return key_text(key._replace(chat_class="group", chat=chat, user=None))


# Runs for every message.
@lru_cache(maxsize=8192)
def _unshared(session_key: str) -> ParsedKey | None:
    key = parse_session_key(session_key)
    return None if is_shared(key) else key


def alias_of(person: Person) -> AliasId | None:
    """Return the alias that leads to all ids of a person; None if the id is no person's."""
    form = person_form(person.platform, person.id)
    if form is None:
        return None
    return AliasId(person.platform, person.account, AliasKind.PERSON, form)
