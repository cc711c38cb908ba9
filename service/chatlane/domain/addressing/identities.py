"""Identities: who a person is to us, and which ids belonged to them when.

An identity is ours and has a name that is given once. It begins as the first id that it was seen
under, and keeps that name when the id is handed on: the next person with that id gets another
one (`aliases`). Sessions name the identity as their owner (`owners`), never an id.

An id belongs to one identity at a time, from `since` up to, not including, `until`. An id that
never was another person's needs no row: its identity has its name. Identities that turned out to
be one keep all their names, so that sessions owned under any of them stay their person's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.addressing.owners import owner_text
from chatlane.domain.addressing.people import person_form

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


class Span(NamedTuple):
    """A time in which an id belonged to an identity.

    Attributes:
        form: Normal form of the id.
        since: Part of it; None if the identity was the first one to have the id.
        until: Not part of it; None if it lasts.
    """

    form: str
    since: datetime | None = None
    until: datetime | None = None

    def covers(self, at: datetime) -> bool:
        """Return whether a time is in it."""
        is_begun = self.since is None or self.since <= at
        return is_begun and (self.until is None or at < self.until)


@dataclass(frozen=True)
class Identity:
    """One person on one account of a platform.

    Attributes:
        name: Of the identity; what keys of their conversations are made of.
        names: This one, and those of identities that turned out to be this one.
        spans: Their ids; several for an id that came back to them.
    """

    platform: str
    account: str
    scope: str | None
    name: str
    names: frozenset[str]
    spans: tuple[Span, ...]

    @property
    def owners(self) -> frozenset[str]:
        """What sessions of this person name as their owner."""
        return frozenset(
            owner_text(self.platform, self.account, self.scope, name) for name in self.names
        )

    @property
    def owner(self) -> str:
        """What a new session of this person names as its owner."""
        return owner_text(self.platform, self.account, self.scope, self.name)

    @property
    def forms(self) -> frozenset[str]:
        """All ids they ever had."""
        return frozenset(span.form for span in self.spans)

    def spans_of(self, raw: str) -> list[Span]:
        """Return when an id, as an event may spell it, was theirs."""
        form = person_form(self.platform, raw)
        return [span for span in self.spans if span.form in {raw, form}]

    def has(self, raw: str, at: datetime) -> bool:
        """Return whether an id, as an event may spell it, was theirs at a time."""
        return any(span.covers(at) for span in self.spans_of(raw))

    def has_any(self, at: datetime) -> bool:
        """Return whether any id was theirs at a time."""
        return any(span.covers(at) for span in self.spans)


def identity_with(
    platform: str, account: str, scope: str | None, name: str, spans: Iterable[Span]
) -> Identity:
    """Return an identity from what is recorded of it.

    Args:
        name: Its name.
        spans: All of its spans, past ones included; without any, the name is the one id.
    """
    known = tuple(spans) or (Span(name),)
    # The name of an id's first identity is the id. Whoever was the first to have an id is that
    # identity, or another one that it turned out to be.
    names = {span.form for span in known if span.since is None}
    return Identity(platform, account, scope, name, frozenset({name, *names}), known)
