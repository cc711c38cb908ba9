"""One person under several ids, and chats whose id changed."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.addressing.alias_rows import (
    AliasId,
    AliasKind,
    AliasRow,
    Changes,
    Learned,
    Merge,
    chat_alias,
    lookups,
)
from chatlane.domain.addressing.aliases import AliasBook
from chatlane.domain.addressing.keys import session_key
from chatlane.domain.addressing.people import person_form
from chatlane.domain.addressing.sources import Address
from chatlane.domain.policy import KeyRules

START: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
P1: Final = "15550001"
P2: Final = "15550002"
L1: Final = "9990001@lid"
L2: Final = "9990002@lid"
GROUP: Final = "1203@g.us"


class Router:
    """Reads, learns, resolves and writes as a batch of one event would."""

    def __init__(self) -> None:
        self.rows: dict[AliasId, AliasRow] = {}
        self.now = START

    def handle(
        self, address: Address, *, persons: bool = True, own: frozenset[str] = frozenset()
    ) -> tuple[str, Learned]:
        self.now += timedelta(minutes=1)
        book = AliasBook(self._groups(lookups(address, persons=persons)))
        learned = book.learn(address, self.now, persons=persons, own_ids=own)
        changes = book.changes()
        for row in changes.inserted:
            assert row.id not in self.rows
            self.rows[row.id] = row
        for before, row in changes.updated:
            assert self.rows[row.id] == before
            self.rows[row.id] = row
        key = session_key(book.resolve(address, persons=persons).address, KeyRules())
        assert isinstance(key, str)
        return key, learned

    def key(self, address: Address, *, persons: bool = True) -> str:
        return self.handle(address, persons=persons)[0]

    def former(self, address: Address, *, persons: bool = True) -> list[object]:
        book = AliasBook(self._groups(lookups(address, persons=persons)))
        resolved = book.resolve(address, persons=persons)
        return [session_key(former, KeyRules()) for former in resolved.former]

    def _groups(self, ids: set[AliasId]) -> list[AliasRow]:
        wanted = {(row.kind, row.canonical) for alias_id in ids if (row := self.rows.get(alias_id))}
        return [row for row in self.rows.values() if (row.kind, row.canonical) in wanted]


def dm(
    chat: str | None, user: str | None = None, *more: str, platform: str = "whatsapp"
) -> Address:
    return Address(
        platform,
        "bot",
        chat_id=chat,
        chat_kind="dm",
        sender_id=user if user is not None else chat,
        sender_aliases=more,
    )


def group(user: str | None, *more: str, chat: str = GROUP, platform: str = "whatsapp") -> Address:
    return Address(
        platform, "bot", chat_id=chat, chat_kind="group", sender_id=user, sender_aliases=more
    )


def move(old: str, new: str, scope: str | None = None) -> Address:
    return Address("telegram", "bot", chat_id=old, chat_kind="group", migrate_to=new, scope=scope)


@pytest.mark.parametrize(
    ("platform", "raw", "form"),
    [
        ("whatsapp", "15550001@s.whatsapp.net", P1),
        ("whatsapp", "15550001:12@s.whatsapp.net", P1),
        ("whatsapp", "15550001.0:12@s.whatsapp.net", P1),
        ("whatsapp", "15550001@c.us", P1),
        ("whatsapp", "+15550001", P1),
        ("whatsapp", "15550001", P1),
        ("whatsapp", "9990001@lid", L1),
        ("whatsapp", "9990001:3@lid", L1),
        ("whatsapp", GROUP, None),
        ("whatsapp", "status@broadcast", None),
        ("whatsapp", "@lid", None),
        ("whatsapp", "bad id@lid", None),
        ("whatsapp", "15550001@s.whatsapp.net\n", None),
        ("whatsapp", "١٢٣", None),
        ("signal", "+15551234567", "+15551234567"),
        ("signal", "15551234567", None),
        (
            "signal",
            "AB12CD34-0000-4000-8000-0123456789AB",
            "ab12cd34-0000-4000-8000-0123456789ab",
        ),
        ("signal", "aGVsbG8=", None),
        ("feishu", "ou_1", "ou_1"),
    ],
)
def test_normal_form_of_a_persons_id(platform: str, raw: str, form: str | None) -> None:
    assert form == person_form(platform, raw)


def test_phone_and_hidden_id_with_the_same_digits_are_two_people() -> None:
    router = Router()

    assert router.key(dm("222@lid")) != router.key(dm("222@s.whatsapp.net"))


def test_link_given_by_the_adapter_works_in_both_directions() -> None:
    for known, other in ((P1, L1), (L1, P1)):
        router = Router()
        first = router.key(dm(known, known, other))

        assert first == router.key(dm(other))
        assert first == router.key(dm(known))


def test_link_may_come_as_the_stable_id() -> None:
    router = Router()
    linked = dm(f"{P1}@s.whatsapp.net")._replace(sender_alt_id=L1)

    assert router.key(linked) == router.key(dm(L1))


def test_link_may_come_from_the_chat_of_a_dm() -> None:
    router = Router()
    first = router.key(dm(L1, f"{P1}@s.whatsapp.net"))

    assert first == router.key(dm(P1))
    assert router.key(group(P1)) == router.key(group(L1))


def test_link_may_come_from_a_table() -> None:
    book = AliasBook([AliasRow("whatsapp", "bot", AliasKind.PERSON, L1, P1, START)])

    assert book.resolve(dm(L1), persons=True).address.chat_id == P1
    assert book.resolve(dm(P1), persons=True).address.chat_id == P1


def test_canonical_id_is_the_first_one_seen_and_stays() -> None:
    router = Router()
    first = router.key(dm(P1))

    assert first == router.key(dm(P1, P1, L1))
    assert first == router.key(dm(L1, L1, P1))
    assert first == "agent:main:whatsapp:bot:dm:15550001"


def test_late_link_leads_the_newer_id_to_the_older_one() -> None:
    router = Router()
    older = router.key(dm(P1))
    newer = router.key(dm(L1))
    key, learned = router.handle(dm(P1, P1, L1))

    assert older == key
    assert newer != key
    assert learned.merges == (Merge("whatsapp", "bot", AliasKind.PERSON, L1, P1),)
    assert router.former(dm(P1)) == [newer]
    assert router.former(group(L1)) == [f"agent:main:whatsapp:bot:group:{GROUP}:user={L1}"]
    assert older == router.key(dm(L1))


def test_link_at_first_sight_has_no_former_lanes() -> None:
    router = Router()
    router.key(dm(P1, P1, L1))

    assert router.former(dm(L1)) == []


def test_late_link_takes_every_alias_of_the_newer_person_along() -> None:
    router = Router()
    first = router.key(dm(P1))
    newer = router.key(dm(L1, L1, "9990009@lid"))
    router.key(dm(P1, P1, "9990009@lid"))

    assert first == router.key(dm(L1))
    assert router.former(dm(P1)) == [newer]


def test_known_phone_with_another_partner_is_another_person() -> None:
    router = Router()
    old_owner = router.key(dm(P1, P1, L1))
    new_owner, learned = router.handle(dm(P1, P1, L2))

    assert old_owner != new_owner
    assert learned.merges == ()
    assert new_owner == router.key(dm(P1))
    assert new_owner == router.key(dm(L2))
    assert old_owner == router.key(dm(L1))
    assert router.former(dm(P1)) == []


def test_known_hidden_id_with_another_partner_is_another_person() -> None:
    router = Router()
    first = router.key(dm(L1, L1, P1))
    second = router.key(dm(L1, L1, P2))

    assert first != second
    assert second == router.key(dm(P2))
    assert first == router.key(dm(P1))


def test_two_known_ids_of_two_people_make_a_third_person() -> None:
    router = Router()
    first = router.key(dm(P1, P1, L1))
    second = router.key(dm(P2, P2, L2))
    third = router.key(dm(P1, P1, L2))

    assert len({first, second, third}) == 3
    assert third == router.key(dm(L2, L2, P1))
    assert first == router.key(dm(L1))
    assert second == router.key(dm(P2))


def test_merge_never_takes_another_persons_lanes() -> None:
    """The number changed hands; a lane under it is the old owner's, though he has a new id."""
    router = Router()
    router.key(dm(P1))
    router.key(dm(P1, P1, L1))
    router.key(dm(L2))
    router.key(dm(P1, P1, L2))

    assert router.former(dm(P1)) == []
    assert router.former(dm(L2)) == []


def test_our_own_message_does_not_link_us_with_the_other_end() -> None:
    router = Router()
    peer = router.key(dm(P1))
    own, _ = router.handle(dm(P1, L2), own=frozenset({L2}))

    assert own == peer
    assert router.key(dm(L2)) != peer


def test_sender_of_the_same_kind_of_id_is_not_the_chats_person() -> None:
    router = Router()
    peer = router.key(dm(P1, P2, L2))

    assert peer == router.key(dm(P1))
    assert peer != router.key(dm(L2))


def test_link_counts_for_one_account_only() -> None:
    router = Router()
    router.key(dm(P1, P1, L1))
    elsewhere = dm(L1)._replace(account="other")

    assert router.key(elsewhere) == f"agent:main:whatsapp:other:dm:{L1}"


def test_platform_without_aliases_is_left_alone() -> None:
    address = dm("15550001@s.whatsapp.net", platform="whatsapp_cloud")
    book = AliasBook()

    assert book.resolve(address, persons=False).address is address
    assert book.learn(address, START, persons=False) == Learned()


def test_signal_number_and_uuid_are_one_person() -> None:
    uuid = "ab12cd34-0000-4000-8000-0123456789ab"
    router = Router()
    both = dm(None, "+15551234567", platform="signal")._replace(sender_alt_id=uuid)
    key = router.key(both)

    assert key == router.key(dm(None, "+15551234567", platform="signal"))
    assert key == router.key(dm(uuid.upper(), platform="signal"))
    assert router.key(group("+15551234567", platform="signal")) == router.key(
        group(uuid, platform="signal")
    )


def test_any_platform_can_be_told_that_people_have_several_ids() -> None:
    router = Router()
    both = group("ou_1", platform="feishu", chat="oc")._replace(sender_alt_id="on_1")
    first = router.key(both)

    assert first == router.key(group("ou_1", platform="feishu", chat="oc"))
    assert first != router.key(group("ou_2", platform="feishu", chat="oc"))
    # The chat of a DM is not a person there, unless it has the same id.
    assert router.key(dm("oc_5", "ou_1", platform="feishu")) == "agent:main:feishu:bot:dm:oc_5"


def test_group_ids_and_broadcasts_are_untouched() -> None:
    router = Router()

    assert GROUP in router.key(group(P1))
    assert router.key(dm("status@broadcast", P1)).endswith(":dm:status@broadcast")


def test_moved_chat_keeps_the_old_id_in_keys() -> None:
    router = Router()
    ann = group("7", chat="-4518", platform="telegram")
    key, learned = router.handle(move("-4518", "-1002471"), persons=False)
    moved = ann._replace(chat_id="-1002471", chat_kind="supergroup")

    assert learned.merges == (Merge("telegram", "bot", AliasKind.CHAT, "-1002471", "-4518"),)
    assert router.key(ann, persons=False) == router.key(moved, persons=False)
    assert router.former(moved, persons=False) == ["agent:main:telegram:bot:group:-1002471:user=7"]
    assert key == "agent:main:telegram:bot:group:-4518"


@pytest.mark.parametrize("order", [("a", "b", "c"), ("b", "a", "c")], ids=["in order", "late"])
def test_chain_of_moves_leads_to_the_first_id(order: tuple[str, ...]) -> None:
    router = Router()
    moves = {"a": move("A", "B"), "b": move("B", "C"), "c": move("C", "D")}
    for name in order:
        router.handle(moves[name], persons=False)

    keys = {
        router.key(group("7", chat=chat, platform="telegram"), persons=False) for chat in "ABCD"
    }
    assert keys == {"agent:main:telegram:bot:group:A:user=7"}


def test_repeated_or_circular_move_changes_nothing() -> None:
    router = Router()
    router.handle(move("A", "B"), persons=False)
    before = dict(router.rows)

    assert router.handle(move("A", "B"), persons=False)[1] == Learned()
    assert router.handle(move("B", "A"), persons=False)[1] == Learned()
    assert router.handle(move("A", "A"), persons=False)[1] == Learned()
    assert before == router.rows


def test_move_never_takes_an_id_that_belongs_to_another_chat() -> None:
    router = Router()
    router.handle(move("A", "B"), persons=False)
    before = dict(router.rows)
    learned = router.handle(move("X", "B"), persons=False)[1]

    assert learned.refused_move
    assert before == router.rows


def test_move_of_no_chat_says_nothing() -> None:
    router = Router()
    nowhere = move("A", "B")._replace(chat_id=None)

    assert router.handle(nowhere, persons=False)[1] == Learned()
    assert router.rows == {}


def test_event_without_a_chat_is_in_no_moved_one() -> None:
    book = AliasBook([AliasRow("telegram", "bot", AliasKind.CHAT, "B", "A", START)])
    address = dm(None, "7", platform="telegram")

    assert book.resolve(address, persons=False).address is address


def test_move_in_one_workspace_leaves_the_other_alone() -> None:
    router = Router()
    router.handle(move("C1", "C2", scope="T1"), persons=False)
    here = group("7", chat="C2", platform="telegram")._replace(scope="T1")
    there = here._replace(scope="T2")

    assert ":group:C1:" in router.key(here, persons=False)
    assert ":group:C2:" in router.key(there, persons=False)


def test_scope_and_chat_cannot_be_mistaken_for_another_chat() -> None:
    assert chat_alias("a", "b") != chat_alias("a:b", None)


def test_migration_event_may_call_the_chat_what_it_likes() -> None:
    router = Router()
    router.handle(move("A", "B")._replace(chat_kind="dm"), persons=False)

    assert ":group:A:" in router.key(group("7", chat="B", platform="telegram"), persons=False)


def test_moved_whatsapp_group_keeps_its_members() -> None:
    router = Router()
    router.key(group(P1))
    router.key(group(L1))
    first = router.key(group(P1, L1))
    router.handle(move(GROUP, "99@g.us")._replace(platform="whatsapp"))
    moved = group(L1, chat="99@g.us")

    assert first == router.key(moved)
    assert set(router.former(moved)) == {
        f"agent:main:whatsapp:bot:group:{chat}:user={user}"
        for chat, user in (("99@g.us", P1), (GROUP, L1), ("99@g.us", L1))
    }


def test_learning_again_changes_nothing() -> None:
    router = Router()
    router.key(dm(P1, P1, L1))
    book = AliasBook(router.rows.values())
    book.learn(dm(L1, L1, P1), START, persons=True)

    assert book.changes() == Changes()


def test_one_batch_writes_each_row_once() -> None:
    book = AliasBook()
    for address in (dm(P1), dm(L1), dm(P1, P1, L1)):
        book.learn(address, START, persons=True)
    changes = book.changes()

    assert changes.updated == ()
    assert [(row.alias, row.canonical) for row in changes.inserted] == [(P1, P1), (L1, P1)]


def test_order_of_ids_in_an_event_writes_nothing_new() -> None:
    router = Router()
    router.key(dm(P1, P1, L1, L2))
    before = dict(router.rows)
    router.key(dm(P1, P1, L2, L1))

    assert before == router.rows


def test_lookups_name_every_id_of_an_event() -> None:
    assert lookups(dm(P1, P1, L1), persons=True) == {
        AliasId("whatsapp", "bot", AliasKind.PERSON, form) for form in (P1, L1)
    }
    assert lookups(group(P1), persons=True) == {
        AliasId("whatsapp", "bot", AliasKind.PERSON, P1),
        AliasId("whatsapp", "bot", AliasKind.CHAT, GROUP),
    }
    # Whether ids of people were handed over is one lookup for all events of an account.
    assert lookups(move("A", "B"), persons=False) == {
        AliasId("telegram", "bot", AliasKind.PERSON, ""),
        *(AliasId("telegram", "bot", AliasKind.CHAT, chat) for chat in "AB"),
    }


people = st.integers(0, 2)
sightings = st.lists(
    st.tuples(people, st.sampled_from(["phone", "lid", "both"]), st.booleans()), max_size=12
)


def _event(person: int, shown: str, in_group: bool) -> Address:  # noqa: FBT001
    phone, lid = f"1555000{person}", f"999000{person}@lid"
    forms = {"phone": [phone], "lid": [lid], "both": [phone, lid]}[shown]
    return group(*forms) if in_group else dm(forms[0], *forms)


@given(sightings)
def test_everybody_keeps_the_first_id_they_were_seen_with(
    events: list[tuple[int, str, bool]],
) -> None:
    """However links arrive, nobody is mixed up and no canonical id ever changes."""
    router = Router()
    first: dict[int, set[str]] = {}
    linked = set()
    for person, shown, in_group in events:
        router.handle(_event(person, shown, in_group))
        linked |= {person} if shown == "both" else set()
        first.setdefault(
            person, {f"1555000{person}"} if shown != "lid" else {f"999000{person}@lid"}
        )
        canonical = {row.canonical for row in router.rows.values() if f"000{person}" in row.alias}
        assert first[person] <= canonical
        assert len(canonical) == 1 or person not in linked
    owners = {row.canonical: row.alias.removesuffix("@lid")[-1] for row in router.rows.values()}
    assert all(
        row.alias.removesuffix("@lid")[-1] == owners[row.canonical] for row in router.rows.values()
    )


@given(st.lists(st.tuples(people, people), max_size=12))
def test_numbers_may_change_hands_in_any_order(pairs: list[tuple[int, int]]) -> None:
    """The ids of one event lead to one person, and never to one that other ids made."""
    router = Router()
    owners: dict[str, tuple[int, int]] = {}
    for phone, lid in pairs:
        forms = (f"1555000{phone}", f"999000{lid}@lid")
        key = router.key(dm(forms[0], *forms))
        assert owners.setdefault(key, (phone, lid)) == (phone, lid)
        assert key == router.key(dm(forms[0])) == router.key(dm(forms[1]))
        assert router.former(dm(forms[0])) == []
