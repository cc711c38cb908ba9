"""Determine the owner of a session: the identity of its only person, or None if it is shared.

The owner of a session is an identity, never an id: an id can be handed on. An identity is defined
by the service and has a name that is never reused: the first id that it was seen under. It keeps
the name when the id is handed on, and the next person with that id gets another name (`aliases`).

An id belongs to one identity at a time, from `since` up to, not including, `until`. An id with only
one person so far needs no row: it is the name of its identity. Identities that were merged keep all
their names, so that sessions owned under any of them still belong to the person.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.addressing.alias_rows import AliasId, AliasKind
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
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.addressing.keys import ParsedKey
    from chatlane_schemas.session_api.people import PersonId


def owner_text(platform: str, account: str, scope: str | None, name: str) -> str:
    """Return an identity in the form in which sessions store their owner; injective."""
    names = [platform, account, name] if scope is None else [platform, account, name, scope]
    return ":".join(map(escaped, names))


def parse_owner_text(owner: str) -> tuple[str, str, str | None, str]:
    """Return platform, account, scope and name of an identity; the inverse of `owner_text`."""
    platform, account, name, *scope = map(unescaped, owner.split(":"))
    return platform, account, scope[0] if scope else None, name


# Runs several times for every message.
@lru_cache(maxsize=8192)
def owner_of(session_key: str, person: str | None) -> str | None:
    """Return the owner of a session in which a person was the first to write."""
    key = None if person is None else _unshared(session_key)
    if key is None or person is None:
        return None
    return owner_text(key.platform, key.account, key.scope, person)


def is_shared_lane(session_key: str) -> bool:
    """Return whether several people may write on a lane."""
    return _unshared(session_key) is None


def shared_key(session_id: UUID, session_key: str, lane_keys: Iterable[str]) -> str:
    """Return a key without a person for a session of one person in which others wrote."""
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


def alias_of(person: PersonId) -> AliasId | None:
    """Return the alias that leads to all ids of a person; None if the id is no person's."""
    form = person_form(person.platform, person.id)
    if form is None:
        return None
    return AliasId(person.platform, person.account, AliasKind.PERSON, form)


class Span(NamedTuple):
    """A span of time in which an id belonged to an identity.

    Attributes:
        form: Normal form of the id.
        since: Inclusive begin; None if the identity was the first one to have the id.
        until: Exclusive end; None if it lasts.
    """

    form: str
    since: datetime | None = None
    until: datetime | None = None

    def covers(self, at: datetime) -> bool:
        """Return whether a time is within the span."""
        is_begun = self.since is None or self.since <= at
        return is_begun and (self.until is None or at < self.until)


@dataclass(frozen=True)
class Identity:
    """One person on one account of a platform.

    Attributes:
        name: Of the identity; used in the keys of their conversations.
        names: This name, and those of identities that were merged into this one.
        spans: Their ids; an id that came back to them has several.
    """

    platform: str
    account: str
    scope: str | None
    name: str
    names: frozenset[str]
    spans: tuple[Span, ...]

    @property
    def owners(self) -> frozenset[str]:
        """Return the owner names in sessions of this person."""
        return frozenset(
            owner_text(self.platform, self.account, self.scope, name) for name in self.names
        )

    @property
    def owner(self) -> str:
        """Return the owner name for new sessions of this person."""
        return owner_text(self.platform, self.account, self.scope, self.name)

    @property
    def forms(self) -> frozenset[str]:
        """Return all ids that the person ever had."""
        return frozenset(span.form for span in self.spans)

    def spans_of(self, raw: str) -> list[Span]:
        """Return when an id, in any spelling of an event, belonged to the person."""
        form = person_form(self.platform, raw)
        return [span for span in self.spans if span.form in {raw, form}]

    def has(self, raw: str, at: datetime) -> bool:
        """Return whether an id, in any spelling of an event, belonged to the person at a time."""
        return any(span.covers(at) for span in self.spans_of(raw))

    def has_any(self, at: datetime) -> bool:
        """Return whether any id belonged to the person at a time."""
        return any(span.covers(at) for span in self.spans)


def identity_with(
    platform: str, account: str, scope: str | None, name: str, spans: Iterable[Span]
) -> Identity:
    """Build an identity from its records.

    Args:
        spans: All of its spans, past ones included; without any, the name is its only id.
    """
    known = tuple(spans) or (Span(name),)
    # The first identity of an id is named by the id. So the first holder of an id is the identity
    # of that name, or another one that it was merged into.
    names = {span.form for span in known if span.since is None}
    return Identity(platform, account, scope, name, frozenset({name, *names}), known)
