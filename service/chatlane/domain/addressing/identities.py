"""Represent a person as an identity, with the ids that belonged to it over time.

An identity is defined by the service and has a name that is never reused. The name is the first id
that the identity was seen under. It keeps the name when the id is handed on: the next person with
that id gets another name (`aliases`). Sessions name the identity as their owner (`owners`), never
an id.

An id belongs to one identity at a time, from `since` up to, not including, `until`. An id with only
one person so far needs no row: it is the name of its identity. Identities that were merged keep all
their names, so that sessions owned under any of them still belong to the person.
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
        name: Its name.
        spans: All of its spans, past ones included; without any, the name is its only id.
    """
    known = tuple(spans) or (Span(name),)
    # The first identity of an id is named by the id. So the first holder of an id is the identity
    # of that name, or another one that it was merged into.
    names = {span.form for span in known if span.since is None}
    return Identity(platform, account, scope, name, frozenset({name, *names}), known)
