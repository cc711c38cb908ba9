"""Several ids of one person, and chats whose id changed: resolved before a key is built.

Two kinds of rows, per platform and account. A *person* row leads from one normal form of an id
(`people.person_form`) to the person's canonical id: the name of an identity (`identities`), which is
the first id it was seen under, or one that nobody ever had. A name is given once: an id that changes
hands gets the name of another identity, and the time that is over is kept as a `FormerId`. A *chat*
row leads from a newer id of a chat to its first one. The rows with one canonical id are its *group*.

Only keys and digests are built from canonical ids. An answer goes to the source of its turn,
which keeps the form the last message came with.

An account learns links between ids from its own events only. A number belongs to one person on all
accounts of a platform, though, so a change of hands counts on all of them: a partner that another
account knows contradicts an event, and the event that tells of a change changes the rows of the
number on every account. That is why the groups of an id are read on all accounts.

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

from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.addressing.keys import escaped, unescaped
from chatlane.domain.addressing.people import (
    belonging_together,
    contradicts,
    is_lasting,
    names_nobody,
    partner_in,
    people_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from chatlane.domain.addressing.sources import Address


class Holder(NamedTuple):
    """An identity that had an id before, and when; `since` None if it was the first one."""

    identity: str
    since: datetime | None
    until: datetime


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
        held_since: When the id came to this person; None if it never was another one's.
        taken_from: The identity that had it before: known to be another person.
        former: The identities that had it, as far as `FormerId` says; not written with the row.
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
        """What the row is found by."""
        return AliasId(self.platform, self.account, self.kind, self.alias)

    def former_holder(self, at: datetime | None) -> Holder | None:
        """Return who had the id at a time, where that is not who has it now."""
        if at is None or self.held_since is None or at >= self.held_since:
            return None
        return next(
            (
                one
                for one in self.former
                if (one.since is None or one.since <= at) and at < one.until
            ),
            None,
        )

    @property
    def begins_at(self) -> datetime:
        """Since when this account knows the present holder."""
        return self.held_since or self.first_seen_at

    def is_handed_on(self, at: datetime | None) -> bool:
        """Return whether somebody else had the id before whoever had it at a time."""
        before = self.former_holder(at)
        since = self.held_since if before is None else before.since
        return since is not None


class FormerId(NamedTuple):
    """A time, now over, in which an id belonged to an identity; `since` None for always."""

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
    """What an event taught.

    Attributes:
        merges: Canonical ids that are no more.
        refused_move: A migration to an id that is known as another chat's; nothing changed.
    """

    merges: tuple[Merge, ...] = ()
    refused_move: bool = False


class Changes(NamedTuple):
    """What a batch writes: each row once, as it is at the end; updates with what was read.

    Attributes:
        merges: Of persons, in order: what was recorded of the newer is the older's.
        former: Times that are over, each with the identity that it is of at the end.
    """

    inserted: tuple[AliasRow, ...] = ()
    updated: tuple[tuple[AliasRow, AliasRow], ...] = ()
    merges: tuple[Merge, ...] = ()
    former: tuple[FormerId, ...] = ()


class Resolved(NamedTuple):
    """An address with canonical ids.

    Attributes:
        address: What the key is built from.
        person: Canonical id of the person whose DM it is, for the second digest.
        former: Addresses under which the same conversation may have begun.
        is_handed_on: Whether somebody else had the DM's id before. Then the platform's numbers of
            messages there may be of that person's messages.
    """

    address: Address
    person: str | None = None
    former: tuple[Address, ...] = ()
    is_handed_on: bool = False


_NOTHING_LEARNED: Final = Learned()
# What a time in the database can tell apart.
_INSTANT: Final = timedelta(microseconds=1)


def chat_alias(chat_id: str, scope: str | None) -> str:
    """Return a chat id as alias; with the scope, without which it is not unique."""
    return escaped(chat_id) if scope is None else f"{escaped(chat_id)}:{escaped(scope)}"


def _chat_id_of(alias: str) -> str:
    return unescaped(alias.partition(":")[0])


def _in_chat(address: Address, chat_id: str) -> Address:
    return address.with_ids(chat_id, address.sender_id, address.sender_alt_id)


def lookups(address: Address, *, persons: bool) -> set[AliasId]:
    """Return the aliases whose groups an event needs.

    Args:
        address: Of the event, not resolved.
        persons: Whether the platform knows one person under several ids. Where it does not, ids
            of people are looked up only if `are_handed_over` says that there are any.
    """
    platform, account = address.platform, address.account
    if persons:
        peer, sender = people_in(address)
        people = sender if peer is None else (peer, *sender)
        found = {AliasId(platform, account, AliasKind.PERSON, form) for form in people}
    else:
        peer, found = None, {_handed_over_mark(platform, account)}
    if peer is None:
        for chat in (address.chat_id, address.migrate_to):
            if chat is not None:
                alias = chat_alias(chat, address.scope)
                found.add(AliasId(platform, account, AliasKind.CHAT, alias))
    return found


@lru_cache(maxsize=1024)
def _handed_over_mark(platform: str, account: str) -> AliasId:
    """Return what is known of an account on which an operator has handed an id over."""
    return AliasId(platform, account, AliasKind.PERSON, "")


def are_handed_over(rows: Iterable[AliasRow]) -> set[tuple[str, str]]:
    """Return the accounts, with their platforms, on which ids have been handed over."""
    return {(row.platform, row.account) for row in rows if not row.alias}


def person_lookups(address: Address) -> set[AliasId]:
    """Return the aliases of the people of an event, where an id names one person."""
    # A DM may come without a sender.
    dm_chat = address.chat_id if address.chat_class == "dm" else None
    ids = {address.sender_alt_id, address.sender_id, *address.sender_aliases, dm_chat}
    return {AliasId(address.platform, address.account, AliasKind.PERSON, raw) for raw in ids if raw}


def _took_from(ours: Iterable[AliasRow], theirs: Sequence[AliasRow]) -> bool:
    """Return whether an id of one identity is known to have been the other's before."""
    names = {row.canonical for row in theirs}
    names |= {row.alias for row in theirs if row.held_since is None}
    return any(
        row.taken_from in names or any(one.identity in names for one in row.former) for row in ours
    )


class AliasBook:
    """The alias rows a batch has read, and what it learns on the way.

    Args:
        rows: The whole groups of every alias that was looked up; of people, on all accounts.
    """

    def __init__(self, rows: Iterable[AliasRow] = ()) -> None:
        self._rows: dict[AliasId, AliasRow] = {}
        self._groups: dict[AliasId, dict[AliasId, None]] = {}
        self._read: dict[AliasId, AliasRow | None] = {}
        self._merges: list[Merge] = []
        self._former_ids: list[FormerId] = []
        # By platform and id of a person: where the id is known.
        self._accounts: dict[tuple[str, str], dict[AliasId, None]] = {}
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
        people = people_in(address)
        for forms in belonging_together(address.platform, people, own_ids):
            merges += self._learn_person(address, forms, at)
        return Learned(tuple(merges)) if merges else _NOTHING_LEARNED

    def _learn_person(
        self, address: Address, forms: Sequence[str], at: datetime
    ) -> tuple[Merge, ...]:
        ids = [AliasId(address.platform, address.account, AliasKind.PERSON, form) for form in forms]
        for alias_id in ids:
            self._adopt_changes(alias_id, forms, at)
        known = [row for row in map(self._rows.get, ids) if row is not None]
        if any(row.former_holder(at) for row in known):
            self._learn_late(ids, forms, at)
            return ()
        undisputed = [alias_id for alias_id in ids if not self._is_contradicted(alias_id, forms)]
        agreeing = [row for row in known if row.id in undisputed]
        if len(agreeing) == len(ids) == 1:
            return ()
        is_contradicted = len(undisputed) < len(ids)
        if not self._prove_a_person(agreeing, undisputed, forms, is_contradicted=is_contradicted):
            agreeing = [row for row in agreeing if self._is_back(row, forms)]
        if agreeing:
            eldest = min(agreeing, key=lambda row: (row.first_seen_at, row.canonical))
            canonical, since = eldest.canonical, eldest.first_seen_at
        else:
            canonical, since = self._new_canonical(ids, at), at
        newer = {row.canonical: None for row in agreeing if row.canonical != canonical}
        merges = tuple(self._merge(ids[0], other, canonical, since) for other in newer)
        was_handed_over = [self._link(alias_id, canonical, since, forms, at) for alias_id in ids]
        for alias_id in ids:
            is_change = is_contradicted or any(was_handed_over)
            self._tell_accounts(alias_id, forms, at, is_change=is_change)
        return merges

    def _is_contradicted(self, alias_id: AliasId, forms: Sequence[str]) -> bool:
        """Return whether an id was known with another partner than the one it came with."""
        row = self._rows.get(alias_id)
        if len(forms) == 1 or (row is not None and row.partner in forms):
            return False
        known = [row] if row is not None else []
        return any(
            contradicts(one.platform, one.alias, one.partner, forms)
            for one in [*known, *self._elsewhere(alias_id)]
        )

    def _elsewhere(self, alias_id: AliasId) -> list[AliasRow]:
        """Return what other accounts know of an id of a person."""
        known = self._accounts.get((alias_id.platform, alias_id.alias), {})
        return [self._rows[other] for other in known if other.account != alias_id.account]

    def _adopt_changes(self, alias_id: AliasId, forms: Sequence[str], at: datetime) -> None:
        """Take over when a number changed hands, where only other accounts know that.

        Args:
            alias_id: Of a person on the account of an event.
            forms: All ids that came.
            at: When the event was stored.
        """
        others = self._elsewhere(alias_id)
        if not others or is_lasting(alias_id.platform, alias_id.alias):
            return
        row = self._rows.get(alias_id)
        contradicting = [
            other
            for other in others
            if contradicts(other.platform, other.alias, other.partner, forms)
        ]
        changes = {other.begins_at for other in contradicting if other.begins_at > at}
        if row is None:
            changes |= {other.held_since for other in others if other.held_since is not None}
            changes |= {holder.until for other in others for holder in other.former}
            if all(other.partner in forms for other in others) and not changes:
                return
            # The first holder is the one whose name is the number.
            row = AliasRow(*alias_id, alias_id.alias, at)
            self._put(row)
        elif row.partner in forms:
            return
        for changed_at in sorted(changes):
            if row.held_since is None or row.held_since < changed_at:
                name = self._name(alias_id, alias_id.alias, changed_at)
                row = self._hand_over(row, name, changed_at, changed_at)

    def _tell_accounts(
        self, alias_id: AliasId, forms: Sequence[str], at: datetime, *, is_change: bool
    ) -> None:
        """Hand a number over on the other accounts that know it.

        There it becomes the number of a new identity, also if that account knows the id that it
        came with: an adapter may say who reads a conversation on its own account only.

        Args:
            alias_id: Of a person on the account of an event.
            forms: All ids that came.
            at: When the event was stored.
            is_change: Whether the event told that an id changed hands.
        """
        partner = partner_in(alias_id.platform, alias_id.alias, forms)
        if partner is None or is_lasting(alias_id.platform, alias_id.alias):
            return
        for row in self._elsewhere(alias_id):
            is_known = row.partner == partner or (
                row.canonical == self._canonical(row.id._replace(alias=partner))
            )
            if is_known or (row.partner is None and not is_change) or row.begins_at >= at:
                # The last one is of an account that knows a later holder.
                continue
            handed_over = self._hand_over(row, self._name(row.id, row.alias, at), at, at)
            self._put(handed_over._replace(partner=partner))

    def _learn_late(self, ids: Sequence[AliasId], forms: Sequence[str], at: datetime) -> None:
        """Take in an event of before one of its ids was handed on: nothing of who has it now.

        Partitions are read independently of each other, so another one may tell of the change
        first. An account that is not known yet is a person of its own, and not who had the number.
        """
        for one in ids:
            if one not in self._rows and is_lasting(one.platform, one.alias):
                partner = partner_in(one.platform, one.alias, forms)
                self._put(AliasRow(*one, one.alias, at, partner))

    def _prove_a_person(
        self,
        rows: Sequence[AliasRow],
        ids: Sequence[AliasId],
        forms: Sequence[str],
        *,
        is_contradicted: bool,
    ) -> bool:
        """Return whether ids that came together are those of one known person.

        Args:
            rows: Of the ids that were not known with other partners.
            ids: Those ids, also where this account does not know them.
            forms: All ids that came.
            is_contradicted: Whether another of them was. Then a number that was never seen
                with a partner may be the former number of somebody else.
        """
        if len(rows) == len(forms) and len({row.canonical for row in rows}) == 1:
            return True
        if is_contradicted and not any(
            row.partner in forms or is_lasting(row.platform, row.alias) for row in rows
        ):
            return False
        elsewhere: dict[str, list[AliasRow]] = {}
        for alias_id in ids:
            for row in self._elsewhere(alias_id):
                elsewhere.setdefault(row.account, []).append(row)
        return not self._are_apart(rows) and not any(map(self._are_apart, elsewhere.values()))

    def _is_back(self, row: AliasRow, forms: Sequence[str]) -> bool:
        """Return whether an account comes with the number that it had here, as others tell, too."""
        if row.partner is None or row.partner not in forms:
            return False
        if not is_lasting(row.platform, row.alias):
            return False
        number = self._rows.get(row.id._replace(alias=row.partner))
        return number is not None and number.partner == row.alias

    def _are_apart(self, rows: Sequence[AliasRow]) -> bool:
        """Return whether ids on one account are known to be those of different people."""
        groups = {
            row.canonical: [self._rows[member] for member in self._members(row.id, row.canonical)]
            for row in rows
        }
        return any(
            _took_from(ours, theirs)
            for ours in groups.values()
            for theirs in groups.values()
            if ours is not theirs
        )

    def _new_canonical(self, ids: Sequence[AliasId], at: datetime) -> str:
        """Return a name for a person never seen: one that never named anybody else."""
        for alias_id in ids:
            if alias_id not in self._rows:
                return alias_id.alias
        # All ids are known from other people, as when numbers change hands in a circle.
        return self._name(ids[0], "~".join(sorted(alias_id.alias for alias_id in ids)), at)

    def _name(self, of: AliasId, forms: str, at: datetime) -> str:
        """Return a name that is no id, with a row of its own as every other name has."""
        name = f"{forms}~{at:%Y%m%dT%H%M%S.%f}"
        self._put(AliasRow(*of._replace(alias=name), name, at))
        return name

    def _link(
        self, alias_id: AliasId, canonical: str, since: datetime, forms: Sequence[str], at: datetime
    ) -> bool:
        """Let an id lead to an identity, and return whether it belonged to another one."""
        row = self._rows.get(alias_id)
        if row is not None and row.canonical == canonical and row.partner in forms:
            return False
        partner = partner_in(alias_id.platform, alias_id.alias, forms)
        if row is None:
            self._put(AliasRow(*alias_id, canonical, since, partner))
            return False
        if row.canonical == canonical:
            self._put(row._replace(partner=partner or row.partner))
            return False
        # Another person's from now on; what was said under it stays where it is.
        self._put(self._hand_over(row, canonical, since, at)._replace(partner=partner))
        return True

    def _hand_over(self, row: AliasRow, canonical: str, since: datetime, at: datetime) -> AliasRow:
        # Partitions are read independently: an event may be older than the change before it.
        until = at if row.held_since is None else max(at, row.held_since + _INSTANT)
        self._former_ids.append(
            FormerId(row.platform, row.account, row.alias, row.canonical, row.held_since, until)
        )
        handed_over = AliasRow(
            *row.id,
            canonical,
            since,
            held_since=until,
            taken_from=row.canonical,
            former=row.former | {Holder(row.canonical, row.held_since, until)},
        )
        self._put(handed_over)
        return handed_over

    def accounts_with(self, alias_id: AliasId) -> set[str]:
        """Return the accounts of a platform on which an id of a person is known."""
        known = self._accounts.get((alias_id.platform, alias_id.alias), {})
        return {other.account for other in known}

    def hand_over(self, alias_id: AliasId, at: datetime) -> AliasRow:
        """Give an id on one account to a new identity, and return its row.

        Args:
            alias_id: Of a person; its group, if it has one, was read, and that of `lookups` for
                an event that names nobody.
            at: Since when it is another person's.
        """
        mark = _handed_over_mark(alias_id.platform, alias_id.account)
        if mark not in self._rows:
            self._put(AliasRow(*mark, mark.alias, at))
        row = self._rows.get(alias_id)
        if row is None:
            # An id without a row is its own identity's.
            row = AliasRow(*alias_id, alias_id.alias, at)
            self._put(row)
        return self._hand_over(row, self._name(alias_id, alias_id.alias, at), at, at)

    def split(self, alias_id: AliasId, at: datetime) -> AliasRow | None:
        """Take an id out of an identity that it was merged into wrongly, and return its row.

        Its person gets back what was theirs before the two were found to be one; what was said
        since stays with the other one. None if the identity is named by this id, or not merged.

        Args:
            alias_id: Of a person; its group was read.
            at: Since when they are two.
        """
        row = self._rows.get(alias_id)
        if row is None or row.canonical == row.alias:
            return None
        if row.held_since is not None:
            # The name of its first identity is somebody else's.
            self._hand_over(row, self._name(alias_id, alias_id.alias, at), at, at)
        else:
            self._put(AliasRow(*alias_id, row.alias, row.first_seen_at, taken_from=row.canonical))
        return self._rows[alias_id]

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
        merge = Merge(of.platform, of.account, of.kind, newer, older)
        if of.kind is AliasKind.PERSON:
            self._merges.append(merge)
            self._former_ids = [
                former._replace(identity=older) if former.identity == newer else former
                for former in self._former_ids
            ]
        for alias_id in list(self._members(of, newer)):
            row = self._rows[alias_id]
            self._put(
                row._replace(
                    canonical=older,
                    first_seen_at=since,
                    was_canonical=row.was_canonical or row.alias == newer,
                )
            )
        return merge

    def resolve(self, address: Address, *, persons: bool, at: datetime | None = None) -> Resolved:
        """Return an address with canonical ids; the same object where there are no aliases.

        Args:
            address: Of the event.
            persons: Whether the platform knows one person under several ids.
            at: When the event was stored: an id is of whoever had it then. None for now.
        """
        if not persons and not self._rows:
            return Resolved(address)
        peer, forms = people_in(address)
        if not persons:
            dm_chat = address.chat_id if address.chat_class == "dm" else None
            peer = dm_chat if dm_chat is not None and self._is_person(address, dm_chat) else None
            if peer is None and not any(self._is_person(address, form) for form in forms):
                return self._resolve_chat(address)
        if peer is not None:
            return self._resolve_peer(address, peer, forms, at)
        if address.chat_id is not None and names_nobody(address.platform, address.chat_id):
            address = address.with_ids(None, address.sender_id, address.sender_alt_id)
        sender = self._find_person(address, forms, at)
        if sender is None:
            return self._resolve_chat(address)
        resolved = self._resolve_chat(address.with_ids(address.chat_id, sender.alias, None))
        named = self._rows.get(sender._replace(alias=forms[0]))
        is_handed_on = named is not None and named.is_handed_on(at)
        return self._with_former_senders(resolved, sender, is_handed_on=is_handed_on)

    def _is_person(self, address: Address, form: str) -> bool:
        return AliasId(address.platform, address.account, AliasKind.PERSON, form) in self._rows

    def _find_person(
        self, address: Address, forms: Sequence[str], at: datetime | None
    ) -> AliasId | None:
        """Return the canonical id of a person, as the id of its group."""
        if not forms:
            return None
        ids = [AliasId(address.platform, address.account, AliasKind.PERSON, form) for form in forms]
        known = [row for row in map(self._rows.get, ids) if row is not None]
        if not known:
            return ids[0]
        named = known[0]
        if any(row.former_holder(at) for row in known):
            # Nothing was learned, so they may lead to several people. A number proves the least.
            lasting = (row for row in known if is_lasting(row.platform, row.alias))
            named = next(lasting, named)
        return ids[0]._replace(alias=self._holder(named, at))

    def _holder(self, row: AliasRow, at: datetime | None) -> str:
        """Return the name of the identity that had an id at a time."""
        before = row.former_holder(at)
        name = row.canonical if before is None else before.identity
        for merge in self._merges:
            if (merge.platform, merge.account, merge.newer) == (row.platform, row.account, name):
                name = merge.older
        return name

    def _resolve_peer(
        self, address: Address, peer: str, forms: Sequence[str], at: datetime | None
    ) -> Resolved:
        person = AliasId(address.platform, address.account, AliasKind.PERSON, peer)
        row = self._rows.get(person)
        group = person._replace(alias=self._canonical(person))
        is_handed_on = row is not None and row.is_handed_on(at)
        if row is not None and row.former_holder(at) is not None:
            named = (peer, *(form for form in forms if form != peer))
            group = self._find_person(address, named, at) or group
        return Resolved(
            _in_chat(address, group.alias),
            group.alias,
            tuple(_in_chat(address, alias) for alias in self._former(group)),
            is_handed_on,
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
            _in_chat(address, _chat_id_of(canonical)),
            None,
            tuple(_in_chat(address, _chat_id_of(alias)) for alias in former),
        )

    def _with_former_senders(
        self, resolved: Resolved, sender: AliasId, *, is_handed_on: bool
    ) -> Resolved:
        """Add the addresses under former ids of the sender, in the chat and in former ones."""
        chats = (resolved.address, *resolved.former)
        former = tuple(
            chat.with_ids(chat.chat_id, alias, None)
            for alias in self._former(sender)
            for chat in chats
        )
        if resolved.address.chat_id is not None:
            return Resolved(resolved.address, None, resolved.former + former)
        return Resolved(resolved.address, sender.alias, resolved.former + former, is_handed_on)

    def changes(self) -> Changes:
        """Return what the batch has to write, sorted by id."""
        inserted, updated = [], []
        for alias_id in sorted(self._read):
            before, row = self._read[alias_id], self._rows[alias_id]
            if before is None:
                inserted.append(row)
            elif before != row:
                updated.append((before, row))
        return Changes(
            tuple(inserted), tuple(updated), tuple(self._merges), tuple(self._former_ids)
        )

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
        if before is None and row.kind is AliasKind.PERSON:
            self._accounts.setdefault((row.platform, row.alias), {})[alias_id] = None
        if before is not None:
            del self._groups[alias_id._replace(alias=before.canonical)][alias_id]
        self._rows[alias_id] = row
        self._groups.setdefault(alias_id._replace(alias=row.canonical), {})[alias_id] = None
