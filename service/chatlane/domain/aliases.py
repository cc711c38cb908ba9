"""Several ids of one person, and chats whose id changed: resolved before a key is built.

Two kinds of rows, per platform and account. A *person* row leads from one normal form of an id
(`person_form`) to the person's canonical id: the first one seen, which never changes. A *chat*
row leads from a newer id of a chat to its first one. Every canonical id has a row of its own,
so the rows with one canonical id, its *group*, are all that is known of it.

Only keys and digests are built from canonical ids. An answer goes to the source of its turn,
which keeps the form the last message came with.

For one batch, in log order: read the groups of all `lookups`, make an `AliasBook` of them,
then for each event `learn` and `resolve`, and at the end write `changes`. Two routers can
learn about one person at once; inserts that meet a row, and updates that miss theirs, mean
that the batch has to start again from what the other one wrote.

When `learn` finds that two canonical ids are one, it returns a `Merge`, and lanes may exist
under the newer one. `resolve` therefore returns, besides the address to build the key from,
the *former* addresses of the same conversation: a lane found under one of their keys belongs
to it, and is bound or merged when the conversation is next spoken in. They stay known, so no
lane has to be searched for at the time of the merge.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.keys import escaped, unescaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from chatlane.domain.sources import Address

_WHATSAPP: Final = "whatsapp"
_SIGNAL: Final = "signal"

_JID: Final = re.compile(
    r"\+?([0-9]+)(?:\.[0-9]+)?(?::[0-9]+)?@(s\.whatsapp\.net|c\.us|lid)|\+?([0-9]+)"
)
_NUMBER: Final = re.compile(r"\+[0-9]+")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class AliasKind(StrEnum):
    """What an alias is an id of."""

    PERSON = "person"
    CHAT = "chat"


class AliasId(NamedTuple):
    """What an alias row is found by."""

    platform: str
    account: str
    kind: AliasKind
    alias: str


class AliasRow(NamedTuple):
    """One known id and the canonical one it leads to.

    Attributes:
        alias: Normal form of a person's id, or `chat_alias` of a chat.
        canonical: In the same form as the alias.
        partner: The id of another form it was last seen together with.
        first_seen_at: When the canonical id was first seen.
        was_canonical: Lanes may exist under the alias: it was a canonical id itself before
            the two were found to be one.
    """

    platform: str
    account: str
    kind: AliasKind
    alias: str
    canonical: str
    first_seen_at: datetime
    partner: str | None = None
    was_canonical: bool = False

    @property
    def id(self) -> AliasId:
        """What the row is found by."""
        return AliasId(self.platform, self.account, self.kind, self.alias)


class Merge(NamedTuple):
    """Two canonical ids that turned out to be one; the older one stays."""

    platform: str
    account: str
    kind: AliasKind
    newer: str
    older: str


class Learned(NamedTuple):
    """What an event taught.

    Attributes:
        merges: Canonical ids that are no more.
        refused_move: A migration to an id that is known as another chat's; nothing changed.
    """

    merges: tuple[Merge, ...] = ()
    refused_move: bool = False


class Changes(NamedTuple):
    """What a batch writes: each row once, as it is at the end; updates with what was read."""

    inserted: tuple[AliasRow, ...]
    updated: tuple[tuple[AliasRow, AliasRow], ...]


class Resolved(NamedTuple):
    """An address with canonical ids.

    Attributes:
        address: What the key is built from.
        person: Canonical id of the person whose DM it is, for the second digest.
        former: Addresses under which the same conversation may have begun.
    """

    address: Address
    person: str | None = None
    former: tuple[Address, ...] = ()


_NOTHING_LEARNED: Final = Learned()


@lru_cache(maxsize=8192)
def person_form(platform: str, raw: str) -> str | None:
    """Return the normal form of a person's id; None if it is not one.

    WhatsApp: `N` for the phone and `N@lid` for the hidden id, without device. Signal: `+N`
    or a lower-case UUID. On other platforms an id is its own and only form.
    """
    if platform == _WHATSAPP:
        match = _JID.fullmatch(raw)
        if match is None:
            return None
        return f"{match[1]}@lid" if match[2] == "lid" else match[1] or match[3]
    if platform == _SIGNAL:
        return raw.lower() if _UUID.fullmatch(raw) or _NUMBER.fullmatch(raw) else None
    return raw


def _form_kind(platform: str, form: str) -> str:
    """Return which of a person's ids a form is; a person has one of each."""
    if platform == _WHATSAPP:
        return "lid" if form.endswith("@lid") else "phone"
    if platform == _SIGNAL:
        return "number" if form.startswith("+") else "uuid"
    return ""


def chat_alias(chat_id: str, scope: str | None) -> str:
    """Return a chat id as alias; with the scope, without which it is not unique."""
    return escaped(chat_id) if scope is None else f"{escaped(chat_id)}:{escaped(scope)}"


def _chat_id_of(alias: str) -> str:
    return unescaped(alias.partition(":")[0])


def _sender_forms(address: Address) -> tuple[str, ...]:
    """Return every form of the sender's ids, without repeats, the most stable id first."""
    ids = (address.sender_alt_id, address.sender_id, *address.sender_aliases)
    forms = (person_form(address.platform, raw) for raw in ids if raw)
    return tuple(dict.fromkeys(form for form in forms if form))


def _peer_form(address: Address, sender_forms: Sequence[str]) -> str | None:
    """Return the form of a DM's chat id where it names the person at the other end."""
    if address.chat_id is None or address.chat_class != "dm":
        return None
    form = person_form(address.platform, address.chat_id)
    if address.platform in {_WHATSAPP, _SIGNAL}:
        return form
    return form if form in sender_forms else None


def _people(address: Address, own_ids: frozenset[str]) -> list[tuple[str, ...]]:
    """Return the forms that belong together: those of each person in an event."""
    sender_forms = _sender_forms(address)
    peer = _peer_form(address, sender_forms)
    if peer is None or peer in sender_forms:
        return [sender_forms] if sender_forms else []
    if not sender_forms or _is_sender(address.platform, peer, sender_forms, own_ids):
        return [(peer, *sender_forms)]
    return [(peer,), sender_forms]


def _is_sender(
    platform: str, peer: str, sender_forms: Sequence[str], own_ids: frozenset[str]
) -> bool:
    """Return whether the other end of a DM wrote the message, and not we ourselves."""
    own_forms = {person_form(platform, raw) for raw in own_ids}
    kind = _form_kind(platform, peer)
    return own_forms.isdisjoint(sender_forms) and all(
        _form_kind(platform, form) != kind for form in sender_forms
    )


def _partner_in(platform: str, form: str, forms: Sequence[str]) -> str | None:
    """Return the id of another kind that a form was seen with."""
    kind = _form_kind(platform, form)
    for other in forms:
        if other != form and (not kind or _form_kind(platform, other) != kind):
            return other
    return None


def _contradicts(row: AliasRow, forms: Sequence[str]) -> bool:
    """Return whether an id turned up with a partner that is not the known one."""
    if row.partner is None or row.partner in forms:
        return False
    kind = _form_kind(row.platform, row.partner)
    return any(form != row.alias and _form_kind(row.platform, form) == kind for form in forms)


def _names_nobody(platform: str, chat_id: str) -> bool:
    return platform == _WHATSAPP and chat_id.startswith("@")


def lookups(address: Address, *, persons: bool) -> set[AliasId]:
    """Return the aliases whose groups an event needs.

    Args:
        address: Of the event, not resolved.
        persons: Whether the platform knows one person under several ids.
    """
    platform, account = address.platform, address.account
    sender_forms = _sender_forms(address) if persons else ()
    peer = _peer_form(address, sender_forms) if persons else None
    people = sender_forms if peer is None else (peer, *sender_forms)
    chats = [chat for chat in (address.chat_id, address.migrate_to) if chat and peer is None]
    found = {AliasId(platform, account, AliasKind.PERSON, form) for form in people}
    found.update(
        AliasId(platform, account, AliasKind.CHAT, chat_alias(chat, address.scope))
        for chat in chats
    )
    return found


class AliasBook:
    """The alias rows a batch has read, and what it learns on the way.

    Args:
        rows: The whole groups of every alias that was looked up.
    """

    def __init__(self, rows: Iterable[AliasRow] = ()) -> None:
        self._rows: dict[AliasId, AliasRow] = {}
        self._groups: dict[AliasId, dict[AliasId, None]] = {}
        self._read: dict[AliasId, AliasRow | None] = {}
        for row in rows:
            self._put(row)
        self._read.clear()

    def learn(
        self,
        address: Address,
        at: datetime,
        *,
        persons: bool,
        own_ids: frozenset[str] = frozenset(),
    ) -> Learned:
        """Take in what an event says about ids.

        Learning the same again changes nothing.

        Args:
            address: Of the event, not resolved.
            at: When the event was stored.
            persons: Whether the platform knows one person under several ids.
            own_ids: Sender ids of our own: their messages do not link us with the other end.
        """
        if address.migrate_to is not None:
            return self._learn_move(address, address.migrate_to, at)
        if not persons:
            return _NOTHING_LEARNED
        merges: list[Merge] = []
        for forms in _people(address, own_ids):
            merges += self._learn_person(address, forms, at)
        return Learned(tuple(merges)) if merges else _NOTHING_LEARNED

    def _learn_person(
        self, address: Address, forms: Sequence[str], at: datetime
    ) -> tuple[Merge, ...]:
        ids = [AliasId(address.platform, address.account, AliasKind.PERSON, form) for form in forms]
        known = [row for row in map(self._rows.get, ids) if row is not None]
        agreeing = [row for row in known if not _contradicts(row, forms)]
        if agreeing:
            eldest = min(agreeing, key=lambda row: (row.first_seen_at, row.canonical))
            canonical, since = eldest.canonical, eldest.first_seen_at
        else:
            canonical, since = self._new_canonical(ids), at
        newer = {row.canonical: None for row in agreeing if row.canonical != canonical}
        merges = tuple(self._merge(ids[0], other, canonical, since) for other in newer)
        for alias_id in ids:
            self._link(
                alias_id, canonical, since, _partner_in(address.platform, alias_id.alias, forms)
            )
        return merges

    def _new_canonical(self, ids: Sequence[AliasId]) -> str:
        """Return an id for a person never seen: one that never named anybody else."""
        for alias_id in ids:
            if alias_id not in self._rows:
                return alias_id.alias
        # Both ids are known from other people, as when numbers change hands in a circle.
        return "~".join(sorted(alias_id.alias for alias_id in ids))

    def _link(
        self, alias_id: AliasId, canonical: str, since: datetime, partner: str | None
    ) -> None:
        row = self._rows.get(alias_id)
        if row is None:
            self._put(AliasRow(*alias_id, canonical, since, partner))
        elif row.canonical == canonical:
            self._put(row._replace(partner=partner or row.partner))
        else:
            # From now on another person's; what was said under it stays with the one before.
            self._put(AliasRow(*alias_id, canonical, since, partner))

    def _learn_move(self, address: Address, migrate_to: str, at: datetime) -> Learned:
        if address.chat_id is None:
            return _NOTHING_LEARNED
        before, after = (
            AliasId(
                address.platform,
                address.account,
                AliasKind.CHAT,
                chat_alias(chat_id, address.scope),
            )
            for chat_id in (address.chat_id, migrate_to)
        )
        canonical, known = self._canonical(before), self._canonical(after)
        if known == canonical:
            return _NOTHING_LEARNED
        if known != after.alias:
            return Learned(refused_move=True)
        for alias_id in (before, after):
            if alias_id not in self._rows:
                self._put(AliasRow(*alias_id, alias_id.alias, at))
        since = self._rows[before].first_seen_at
        return Learned((self._merge(before, known, canonical, since),))

    def _merge(self, of: AliasId, newer: str, older: str, since: datetime) -> Merge:
        """Lead everything that led to the newer canonical id to the older one."""
        for alias_id in list(self._members(of, newer)):
            row = self._rows[alias_id]
            self._put(
                row._replace(
                    canonical=older,
                    first_seen_at=since,
                    was_canonical=row.was_canonical or row.alias == newer,
                )
            )
        return Merge(of.platform, of.account, of.kind, newer, older)

    def resolve(self, address: Address, *, persons: bool) -> Resolved:
        """Return an address with canonical ids; the same object where there are no aliases.

        Args:
            address: Of the event.
            persons: Whether the platform knows one person under several ids.
        """
        if not persons:
            return self._resolve_chat(address) if self._rows else Resolved(address)
        sender_forms = _sender_forms(address)
        peer = _peer_form(address, sender_forms)
        sender = self._find_person(address, sender_forms)
        address = _cleaned(address)
        if sender is not None:
            address = replace(address, sender_id=sender.alias, sender_alt_id=None)
        if peer is not None:
            return self._resolve_peer(address, peer)
        resolved = self._resolve_chat(address)
        if sender is None:
            return resolved
        return self._with_former_senders(resolved, sender)

    def _find_person(self, address: Address, forms: Sequence[str]) -> AliasId | None:
        """Return the canonical id of a person, as the id of its group."""
        if not forms:
            return None
        ids = [AliasId(address.platform, address.account, AliasKind.PERSON, form) for form in forms]
        known = next((row for row in map(self._rows.get, ids) if row is not None), None)
        return ids[0] if known is None else ids[0]._replace(alias=known.canonical)

    def _resolve_peer(self, address: Address, peer: str) -> Resolved:
        person = AliasId(address.platform, address.account, AliasKind.PERSON, peer)
        canonical = self._canonical(person)
        former = self._former(person._replace(alias=canonical))
        return Resolved(
            replace(address, chat_id=canonical),
            canonical,
            tuple(replace(address, chat_id=alias) for alias in former),
        )

    def _resolve_chat(self, address: Address) -> Resolved:
        if address.chat_id is None:
            return Resolved(address)
        alias = chat_alias(address.chat_id, address.scope)
        chat = AliasId(address.platform, address.account, AliasKind.CHAT, alias)
        if chat not in self._rows:
            return Resolved(address)
        canonical = self._canonical(chat)
        former = self._former(chat._replace(alias=canonical))
        return Resolved(
            replace(address, chat_id=_chat_id_of(canonical)),
            None,
            tuple(replace(address, chat_id=_chat_id_of(alias)) for alias in former),
        )

    def _with_former_senders(self, resolved: Resolved, sender: AliasId) -> Resolved:
        """Add the addresses under former ids of the sender, in the chat and in former ones."""
        chats = (resolved.address, *resolved.former)
        former = tuple(
            replace(chat, sender_id=alias) for alias in self._former(sender) for chat in chats
        )
        person = sender.alias if resolved.address.chat_id is None else None
        return Resolved(resolved.address, person, resolved.former + former)

    def changes(self) -> Changes:
        """Return what the batch has to write, sorted by id."""
        inserted, updated = [], []
        for alias_id in sorted(self._read):
            before, row = self._read[alias_id], self._rows[alias_id]
            if before is None:
                inserted.append(row)
            elif before != row:
                updated.append((before, row))
        return Changes(tuple(inserted), tuple(updated))

    def _canonical(self, alias_id: AliasId) -> str:
        row = self._rows.get(alias_id)
        return alias_id.alias if row is None else row.canonical

    def _members(self, of: AliasId, canonical: str) -> Iterable[AliasId]:
        return self._groups.get(of._replace(alias=canonical), ())

    def _former(self, group: AliasId) -> list[str]:
        return [
            alias_id.alias
            for alias_id in self._members(group, group.alias)
            if self._rows[alias_id].was_canonical
        ]

    def _put(self, row: AliasRow) -> None:
        alias_id = row.id
        before = self._rows.get(alias_id)
        if before == row:
            return
        self._read.setdefault(alias_id, before)
        if before is not None:
            del self._groups[alias_id._replace(alias=before.canonical)][alias_id]
        self._rows[alias_id] = row
        self._groups.setdefault(alias_id._replace(alias=row.canonical), {})[alias_id] = None


def _cleaned(address: Address) -> Address:
    """Return the address without a chat id that names nobody, such as `@lid`."""
    if address.chat_id is not None and _names_nobody(address.platform, address.chat_id):
        return replace(address, chat_id=None)
    return address
