"""Rows of aliases and former ids, and the aliases that an event needs."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.addressing.keys import escaped
from chatlane.domain.addressing.people import people_in

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from chatlane.domain.addressing.sources import Address


class Holder(NamedTuple):
    """An identity that had an id before, and when; `since` is None if it was the first one."""

    identity: str
    since: datetime | None
    until: datetime


class AliasKind(StrEnum):
    """The kind of entity that an alias identifies."""

    PERSON = "person"
    CHAT = "chat"


class AliasId(NamedTuple):
    """The primary key of an alias row."""

    platform: str
    account: str
    kind: AliasKind
    alias: str


class AliasRow(NamedTuple):
    """One known id and the canonical id that it maps to.

    Attributes:
        alias: Normal form of a person's id, or `chat_alias` of a chat.
        canonical: In the same form as the alias.
        partner: The id of another form it was last seen together with.
        first_seen_at: When the canonical id was first seen.
        was_canonical: Lanes may exist under the alias: it was a canonical id itself before
            the two were merged.
        held_since: When the id came to this person; None if it never belonged to another one.
        taken_from: The identity that had it before: known to be another person.
        former: Its former identities, from `FormerId`; not written with the row.
    """

    platform: str
    account: str
    kind: AliasKind
    alias: str
    canonical: str
    first_seen_at: datetime
    partner: str | None = None
    was_canonical: bool = False
    held_since: datetime | None = None
    taken_from: str | None = None
    former: frozenset[Holder] = frozenset()

    @property
    def id(self) -> AliasId:
        """Return the primary key of the row."""
        return AliasId(self.platform, self.account, self.kind, self.alias)

    def former_holder(self, at: datetime | None) -> Holder | None:
        """Return the holder of the id at a time, if it was not the present one."""
        if at is None or self.held_since is None or at >= self.held_since:
            return None
        return next(
            (
                holder
                for holder in self.former
                if (holder.since is None or holder.since <= at) and at < holder.until
            ),
            None,
        )

    @property
    def begins_at(self) -> datetime:
        """Return since when this account knows the present holder."""
        return self.held_since or self.first_seen_at

    def is_handed_on(self, at: datetime | None) -> bool:
        """Return whether the holder of the id at a time had a predecessor."""
        before = self.former_holder(at)
        since = self.held_since if before is None else before.since
        return since is not None


class FormerId(NamedTuple):
    """A past span in which an id belonged to an identity; `since` is None if it has no begin."""

    platform: str
    account: str
    form: str
    identity: str
    since: datetime | None
    until: datetime


class Merge(NamedTuple):
    """Two canonical ids that turned out to be one; the older one stays."""

    platform: str
    account: str
    kind: AliasKind
    newer: str
    older: str


class Learned(NamedTuple):
    """The knowledge gained from one event.

    Attributes:
        merges: Canonical ids that were merged into others.
        refused_move: The event is a migration to the known id of another chat; nothing changed.
    """

    merges: tuple[Merge, ...] = ()
    refused_move: bool = False


class Changes(NamedTuple):
    """The writes of a batch: the final state of each row; for updates with the state that was read.

    Attributes:
        merges: Of persons, in order: records of the newer id now belong to the older one.
        former: Past spans, each with its identity at the end of the batch.
    """

    inserted: tuple[AliasRow, ...] = ()
    updated: tuple[tuple[AliasRow, AliasRow], ...] = ()
    merges: tuple[Merge, ...] = ()
    former: tuple[FormerId, ...] = ()


class Resolved(NamedTuple):
    """An address with canonical ids.

    Attributes:
        address: Input of the session key.
        person: Canonical id of the person whose DM it is, for the second digest.
        former: Addresses under which the same conversation may have begun.
        is_handed_on: Whether the id of the DM had another holder before. Then the platform's
            message numbers there may belong to messages of that person.
    """

    address: Address
    person: str | None = None
    former: tuple[Address, ...] = ()
    is_handed_on: bool = False


def chat_alias(chat_id: str, scope: str | None) -> str:
    """Return the alias of a chat id; it includes the scope, without which the id is not unique."""
    return escaped(chat_id) if scope is None else f"{escaped(chat_id)}:{escaped(scope)}"


def lookups(address: Address, *, persons: bool) -> set[AliasId]:
    """Return the aliases whose groups an event needs.

    Args:
        address: Of the event, not resolved.
        persons: Whether the platform has several ids for one person. If not, ids of people are
            looked up only if `are_handed_over` returns any.
    """
    platform, account = address.platform, address.account
    if persons:
        peer, sender = people_in(address)
        people = sender if peer is None else (peer, *sender)
        found = {AliasId(platform, account, AliasKind.PERSON, form) for form in people}
    else:
        peer, found = None, {handed_over_mark(platform, account)}
    if peer is None:
        for chat in (address.chat_id, address.migrate_to):
            if chat is not None:
                alias = chat_alias(chat, address.scope)
                found.add(AliasId(platform, account, AliasKind.CHAT, alias))
    return found


@lru_cache(maxsize=1024)
def handed_over_mark(platform: str, account: str) -> AliasId:
    """Return the id of the row that marks an account on which an operator handed an id over."""
    return AliasId(platform, account, AliasKind.PERSON, "")


def are_handed_over(rows: Iterable[AliasRow]) -> set[tuple[str, str]]:
    """Return the accounts, with their platforms, on which ids were handed over."""
    return {(row.platform, row.account) for row in rows if not row.alias}


def person_lookups(address: Address) -> set[AliasId]:
    """Return the aliases of the people in an event, on a platform with one id per person."""
    # A DM may come without a sender.
    dm_chat = address.chat_id if address.chat_class == "dm" else None
    ids = {address.sender_alt_id, address.sender_id, *address.sender_aliases, dm_chat}
    return {AliasId(address.platform, address.account, AliasKind.PERSON, raw) for raw in ids if raw}
