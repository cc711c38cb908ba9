"""Resolve several ids of one person, and changed ids of chats, before a key is built.

There are two kinds of rows, per platform and account. A *person* row maps one normal form of an id
(`people.person_form`) to the person's canonical id. That is the name of an identity (`owners`):
the first id it was seen under, or a generated name. A name is never reused: an id that changes
hands gets the name of another identity, and the past span is kept as a `FormerId`. A *chat* row
maps a newer id of a chat to its first one. The rows with one canonical id are its *group*.

Only keys and digests use canonical ids. An answer goes to the source of its turn, which keeps the
form in the last message.

An account learns links between ids from its own events only. But a number belongs to one person on
all accounts of a platform, so a change of hands applies to all of them: a partner that another
account knows contradicts an event, and the event that reveals a change changes the rows of the
number on every account. That is why the groups of an id are read on all accounts.

Callers process a batch in log order: they read the groups of all `lookups`, make an `AliasBook` of
them, `learn` and `resolve` each event, and at the end write `changes`. Two routers can learn about
one person at the same time. If an insert finds a row, or an update misses its row, the batch
restarts from what the other router wrote.

When `learn` finds that two canonical ids are one, it returns a `Merge`, and lanes may exist under
the newer one. Therefore `resolve` returns the *former* addresses of the same conversation in
addition to the address for the key. A lane found under one of their keys belongs to the
conversation and is bound or merged at its next message. The former addresses stay known, so the
merge itself does not have to search for lanes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.addressing.alias_rows import (
    AliasId,
    AliasKind,
    AliasRow,
    Changes,
    FormerId,
    Holder,
    Learned,
    Merge,
    Resolved,
    chat_alias,
    handed_over_mark,
)
from chatlane.domain.addressing.keys import unescaped
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


_NOTHING_LEARNED: Final = Learned()
# The resolution of timestamps in the database.
_INSTANT: Final = timedelta(microseconds=1)


def _chat_id_of(alias: str) -> str:
    return unescaped(alias.partition(":")[0])


def _in_chat(address: Address, chat_id: str) -> Address:
    return address.with_ids(chat_id, address.sender_id, address.sender_alt_id)


def _took_from(newer: Iterable[AliasRow], older: Sequence[AliasRow]) -> bool:
    """Return whether an id of the first identity is known to be a former id of the second."""
    names = {row.canonical for row in older}
    names |= {row.alias for row in older if row.held_since is None}
    return any(
        row.taken_from in names or any(holder.identity in names for holder in row.former)
        for row in newer
    )


class AliasBook:
    """The alias rows that a batch has read, with what it learns.

    Args:
        rows: The complete groups of every alias that was looked up; of people, on all accounts.
    """

    def __init__(self, rows: Iterable[AliasRow] = ()) -> None:
        self._rows: dict[AliasId, AliasRow] = {}
        self._groups: dict[AliasId, dict[AliasId, None]] = {}
        self._read: dict[AliasId, AliasRow | None] = {}
        self._merges: list[Merge] = []
        self._former_ids: list[FormerId] = []
        # By platform and id of a person: the rows of the id on all accounts.
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
        """Learn from an event which ids belong together.

        Learning the same again changes nothing.

        Args:
            address: Of the event, not resolved.
            persons: Whether the platform has several ids for one person.
            own_ids: Sender ids of the bot: its messages do not link it with the peer.
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
        row = self._rows.get(alias_id)
        if len(forms) == 1 or (row is not None and row.partner in forms):
            return False
        known = [row] if row is not None else []
        return any(
            contradicts(other.platform, other.alias, other.partner, forms)
            for other in [*known, *self._elsewhere(alias_id)]
        )

    def _elsewhere(self, alias_id: AliasId) -> list[AliasRow]:
        known = self._accounts.get((alias_id.platform, alias_id.alias), {})
        return [self._rows[other] for other in known if other.account != alias_id.account]

    def _adopt_changes(self, alias_id: AliasId, forms: Sequence[str], at: datetime) -> None:
        """Adopt changes of hands of a number that only other accounts know about."""
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

        There it goes to a new identity, even if that account knows the id that it came with: an
        adapter may decide who reads a conversation on its own account only.

        Args:
            is_change: Whether the event reveals that an id changed hands.
        """
        partner = partner_in(alias_id.platform, alias_id.alias, forms)
        if partner is None or is_lasting(alias_id.platform, alias_id.alias):
            return
        for row in self._elsewhere(alias_id):
            is_known = row.partner == partner or (
                row.canonical == self._canonical(row.id._replace(alias=partner))
            )
            if is_known or (row.partner is None and not is_change) or row.begins_at >= at:
                # The last case: that account knows a later holder.
                continue
            handed_over = self._hand_over(row, self._name(row.id, row.alias, at), at, at)
            self._put(handed_over._replace(partner=partner))

    def _learn_late(self, ids: Sequence[AliasId], forms: Sequence[str], at: datetime) -> None:
        """Learn from an event older than a hand-over of one of its ids; never touch the new holder.

        Partitions are read independently, so another one may reveal the change first. An unknown
        account id is a separate person and not the former holder of the number.
        """
        for alias_id in ids:
            if alias_id not in self._rows and is_lasting(alias_id.platform, alias_id.alias):
                partner = partner_in(alias_id.platform, alias_id.alias, forms)
                self._put(AliasRow(*alias_id, alias_id.alias, at, partner))

    def _prove_a_person(
        self,
        rows: Sequence[AliasRow],
        ids: Sequence[AliasId],
        forms: Sequence[str],
        *,
        is_contradicted: bool,
    ) -> bool:
        """Return whether ids that came together belong to one known person.

        Args:
            rows: Of the ids that were not known with other partners.
            ids: Those ids, including those that this account does not know.
            is_contradicted: Whether another one of the ids was known with another partner. Then a
                number that was never seen with a partner may be the former number of another
                person.
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
        """Return whether a person came with their known number, and its row confirms that."""
        if row.partner is None or row.partner not in forms:
            return False
        if not is_lasting(row.platform, row.alias):
            return False
        number = self._rows.get(row.id._replace(alias=row.partner))
        return number is not None and number.partner == row.alias

    def _are_apart(self, rows: Sequence[AliasRow]) -> bool:
        """Return whether ids on one account are known to belong to different people."""
        groups = {
            row.canonical: [self._rows[member] for member in self._members(row.id, row.canonical)]
            for row in rows
        }
        return any(
            _took_from(group, other)
            for group in groups.values()
            for other in groups.values()
            if group is not other
        )

    def _new_canonical(self, ids: Sequence[AliasId], at: datetime) -> str:
        """Return a name for a new person; it never named another one."""
        for alias_id in ids:
            if alias_id not in self._rows:
                return alias_id.alias
        # All ids are known from other people, for example when numbers change hands in a circle.
        return self._name(ids[0], "~".join(sorted(alias_id.alias for alias_id in ids)), at)

    def _name(self, of: AliasId, forms: str, at: datetime) -> str:
        """Return a generated name, and add a row for it as for every other name."""
        name = f"{forms}~{at:%Y%m%dT%H%M%S.%f}"
        self._put(AliasRow(*of._replace(alias=name), name, at))
        return name

    def _link(
        self, alias_id: AliasId, canonical: str, since: datetime, forms: Sequence[str], at: datetime
    ) -> bool:
        """Map an id to an identity, and return whether it belonged to another one."""
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
        # From now on it belongs to another person; its messages stay with the old one.
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
            alias_id: Of a person. Its group, if any, was read, and so was that of `lookups` for an
                event that names no person.
            at: Since when it belongs to another person.
        """
        mark = handed_over_mark(alias_id.platform, alias_id.account)
        if mark not in self._rows:
            self._put(AliasRow(*mark, mark.alias, at))
        row = self._rows.get(alias_id)
        if row is None:
            # An id without a row belongs to the identity of that name.
            row = AliasRow(*alias_id, alias_id.alias, at)
            self._put(row)
        return self._hand_over(row, self._name(alias_id, alias_id.alias, at), at, at)

    def split(self, alias_id: AliasId, at: datetime) -> AliasRow | None:
        """Split an id off an identity that it was merged into wrongly, and return its row.

        The person of the id gets back what belonged to them before the merge. Later messages stay
        with the other one. None if the identity is named by this id, or if the id was not merged.

        Args:
            alias_id: Of a person; its group was read.
            at: Since when they are two.
        """
        row = self._rows.get(alias_id)
        if row is None or row.canonical == row.alias:
            return None
        if row.held_since is not None:
            # The name of its first identity belongs to another person.
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
        """Map every id of the newer canonical id to the older one."""
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
        """Return an address with canonical ids; the same object if it has no aliases.

        Args:
            address: Of the event.
            persons: Whether the platform has several ids for one person.
            at: When the event was stored, to find the holder of an id at that time. None for now.
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
            # Nothing was learned, so the ids may map to several people. A number is the weakest
            # evidence.
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
        """Add the addresses under former ids of the sender, in the chat and in its former ids."""
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
        """Return the writes of the batch, sorted by id."""
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
