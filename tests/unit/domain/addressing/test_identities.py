"""Whose a session is, whatever becomes of ids: an identity and the ids it had, each for a time."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import pytest

from chatlane.domain.addressing.alias_rows import (
    AliasId,
    AliasKind,
    AliasRow,
    FormerId,
    Holder,
    Resolved,
    lookups,
)
from chatlane.domain.addressing.aliases import AliasBook
from chatlane.domain.addressing.dedupe import digests
from chatlane.domain.addressing.keys import session_key
from chatlane.domain.addressing.owners import Identity, Span, identity_with, owner_of
from chatlane.domain.addressing.people import person_form
from chatlane.domain.addressing.sources import Address
from chatlane.domain.policy import KeyRules
from chatlane.privacy.erasure_rules import Ids
from chatlane_schemas.inbound import InboundEvent, Kind
from tests.support.people_world import (
    Arrive,
    Ask,
    Change,
    HandOver,
    Say,
    Somebody,
    Split,
    Step,
    World,
)

START: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
RUNS: Final = 2000
STEPS: Final = 50


class Memory:
    """What the database holds of people and sessions, and the readers of it."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.now = START
        self.rows: dict[AliasId, AliasRow] = {}
        self.former: list[FormerId] = []
        #: By session: owner and words of each message.
        self.sessions: dict[str, tuple[str, list[list[str]]]] = {}
        self.lanes: dict[str, str] = {}
        #: Of a room: what a row names its sender, when, and what was said.
        self.room: list[tuple[dict[str, object], datetime, list[str]]] = []
        #: By what tells a repeat: who wrote a message, and its words.
        self.homes: dict[bytes, tuple[Somebody, list[str]]] = {}
        #: By word: when what is not decided was stored.
        self.stored_at: dict[str, datetime] = {}

    def book(self, ids: Iterable[AliasId]) -> AliasBook:
        """As `store/aliases.find_groups` does: groups of the ids, on every account."""
        forms = {one.alias for one in ids}
        groups = {(row.account, row.canonical) for row in self.rows.values() if row.alias in forms}
        return AliasBook(
            self.read(row) for row in self.rows.values() if (row.account, row.canonical) in groups
        )

    def read(self, row: AliasRow) -> AliasRow:
        former = frozenset(
            Holder(one.identity, one.since, one.until)
            for one in self.former
            if (one.account, one.form) == (row.account, row.alias)
        )
        return row._replace(former=former)

    def write(self, book: AliasBook) -> None:
        changes = book.changes()
        for row in changes.inserted:
            assert row.id not in self.rows
            self.rows[row.id] = row
        for before, row in changes.updated:
            assert self.read(self.rows[row.id]) == before
            self.rows[row.id] = row
        for merge in changes.merges:
            self.former = [
                one._replace(identity=merge.older)
                if (one.account, one.identity) == (merge.account, merge.newer)
                else one
                for one in self.former
            ]
        self.former += changes.former
        for held in {(one.account, one.form) for one in self.former}:
            ends = sorted(
                (one.since or START, one.until)
                for one in self.former
                if (one.account, one.form) == held
            )
            assert all(since < until for since, until in ends)
            # Spans of one id follow each other.
            assert all(end[1] <= begin[0] for end, begin in pairwise(ends))

    def alias(self, raw: str, account: str = "bot") -> AliasId:
        form = person_form(self.platform, raw)
        assert form is not None
        return AliasId(self.platform, account, AliasKind.PERSON, form)

    def whose(self, raw: str, at: datetime | None = None, account: str = "bot") -> Identity:
        """As `store/identities.find` does."""
        alias = self.alias(raw, account)
        past = [
            one.identity
            for one in self.former
            if at
            and (one.account, one.form) == (account, alias.alias)
            and (one.since or START) <= at < one.until
        ]
        row = self.rows.get(alias)
        return self.named(past[0] if past else row.canonical if row else alias.alias, account)

    def named(self, name: str, account: str) -> Identity:
        spans = [
            Span(row.alias, row.held_since)
            for row in self.rows.values()
            if (row.account, row.canonical) == (account, name)
        ]
        spans += [
            Span(one.form, one.since, one.until)
            for one in self.former
            if (one.account, one.identity) == (account, name)
        ]
        return identity_with(self.platform, account, None, name, spans)

    def say(self, one: Say) -> None:
        self.now += timedelta(minutes=1)
        if one.is_late:
            self.stored_at[one.word] = self.now
        else:
            self.decide(one, self.now)

    def decide(self, one: Say, at: datetime) -> None:
        address, resolved = self.resolve(one, at)
        marks = self.digests(one, address, resolved)
        # It is no repeat of what an earlier holder of the chat's id wrote.
        assert self.homes.keys().isdisjoint(marks), one
        text = [one.word]
        for mark in marks:
            self.homes[mark] = (one.person, text)
        key = session_key(resolved.address, KeyRules())
        assert isinstance(key, str)
        if one.place == "room":
            sender = {
                "id": one.number or one.lasting,
                "alt_id": one.lasting if one.number else None,
            }
            source: dict[str, object] = {
                "platform": self.platform,
                "account": one.account,
                "sender": sender,
            }
            self.room.append((source, at, text))
            return
        person = resolved.person or resolved.address.participant
        owner = owner_of(key, person)
        assert owner is not None
        session = self.lanes.setdefault(key, key)
        known = self.sessions.setdefault(session, (owner, []))
        if known[0] not in self.named(person or "", one.account).owners:
            # The lane leads to another person's session.
            raise AssertionError(key)
        known[1].append(text)

    def resolve(self, one: Say, at: datetime) -> tuple[Address, Resolved]:
        """Resolve a message as `inbound_decoder.arrive` does."""
        address = Address(
            self.platform,
            one.account,
            chat_id=one.chat,
            chat_kind="dm" if one.place == "dm" else "group",
            thread_id="7" if one.place == "room" else None,
            sender_id=one.number or one.lasting,
            sender_alt_id=one.lasting if one.number else None,
        )
        book = self.book(lookups(address, persons=True))
        book.learn(address, at, persons=True)
        resolved = book.resolve(address, persons=True, at=at)
        self.write(book)
        return address, resolved

    @staticmethod
    def digests(one: Say, address: Address, resolved: Resolved) -> tuple[bytes, ...]:
        """As `decisions/inbound_decoder` counts the messages of a chat."""
        if resolved.is_handed_on and resolved.person is not None:
            address = address._replace(chat_id=resolved.person)
        said = InboundEvent.model_construct(
            id="",
            at=START,
            platform=address.platform,
            account=address.account,
            kind=Kind.MESSAGE,
            message_id=one.message_id,
        )
        return digests(said, address, resolved.person)

    def change(self, one: Change) -> None:
        self.now += timedelta(minutes=1)
        message = one.message
        address, resolved = self.resolve(message, self.now)
        found = [
            self.homes[mark]
            for mark in self.digests(message, address, resolved)
            if mark in self.homes
        ]
        for person, text in found[:1]:
            assert person is message.person
            if one.word is None:
                text.clear()
            else:
                text.append(one.word)

    def hand_over(self, raw: str, accounts: Iterable[str] = ("bot",)) -> None:
        """As `store/identities.hand_over` does."""
        self.now += timedelta(minutes=1)
        ids = [self.alias(raw, account) for account in accounts]
        book = self.book([*ids, ids[0]._replace(alias="")])
        for alias in ids:
            book.hand_over(alias, self.now)
        self.write(book)

    def split(self, raw: str, accounts: Iterable[str] = ("bot",)) -> bool:
        """As `store/identities.split` does."""
        self.now += timedelta(minutes=1)
        ids = [self.alias(raw, account) for account in accounts]
        book = self.book(ids)
        is_split = [book.split(alias, self.now) is not None for alias in ids]
        self.write(book)
        return any(is_split)

    def new(self, raw: str, account: str) -> None:
        """Let the lanes of a person lead to new sessions."""
        owners = self.whose(raw, account=account).owners
        for key, session in self.lanes.items():
            if self.sessions[session][0] in owners:
                self.lanes[key] = f"{key} {len(self.sessions)}"
                self.sessions[self.lanes[key]] = (self.sessions[session][0], [])

    def seen_by(self, raw: str, account: str = "bot") -> set[str]:
        """Every word that readers show who is named by an id, rooms left out."""
        owners = self.whose(raw, account=account).owners
        return {
            word
            for owner, said in self.sessions.values()
            if owner in owners
            for text in said
            for word in text
        }

    def said_by(self, raw: str, account: str = "bot") -> int:
        """How many messages a person has written in conversations of their own."""
        owners = self.whose(raw, account=account).owners
        return sum(len(said) for owner, said in self.sessions.values() if owner in owners)

    def exported(self, raw: str, account: str = "bot") -> set[str]:
        """Every word in rooms that an export holds and an erasure deletes."""
        ids = Ids(self.whose(raw, account=account))
        return {
            word
            for source, at, text in self.room
            if source["account"] == account and ids.is_sender(source, at)
            for word in text
        }


KIM, LEE = "3fa85f64-5717-4562-b3fc-2c963f66afa6", "7d444840-9dc0-11d1-b245-5ffdce74fad2"
NUMBER: Final = "+155509"


def writes(memory: Memory, number: str | None, lasting: str | None, account: str = "bot") -> None:
    message_id = f"m{len(memory.homes)}"
    somebody = Somebody("kim", KIM, NUMBER)
    memory.say(Say(somebody, account, number, lasting, "dm", "word", message_id))


def test_f01_a_first_message_with_both_ids_ends_the_time_of_the_one_before() -> None:
    memory = Memory("signal")
    writes(memory, NUMBER, KIM)
    writes(memory, NUMBER, LEE)
    kim, lee = memory.whose(KIM), memory.whose(NUMBER)
    assert lee.owners == {f"signal:bot:{LEE}"}
    # Whoever was the first to have an id is who its name names.
    assert kim.owners == {f"signal:bot:{NUMBER}", f"signal:bot:{KIM}"}
    assert Span(NUMBER, None, memory.now) in kim.spans
    assert Span(NUMBER, memory.now) in lee.spans
    before = memory.now - timedelta(seconds=1)
    assert memory.whose(NUMBER, before) == kim
    assert memory.whose(NUMBER, memory.now) == lee


@pytest.mark.parametrize("lasting", [KIM, None])
def test_f01_an_event_of_before_the_change_is_of_who_had_the_number_then(
    lasting: str | None,
) -> None:
    """Partitions are read independently of each other."""
    memory = Memory("signal")
    writes(memory, NUMBER, KIM)
    writes(memory, NUMBER, LEE)
    changed_at, said = memory.now, memory.said_by(KIM)
    memory.now = START + timedelta(seconds=30)
    writes(memory, NUMBER, lasting)
    assert memory.said_by(KIM) == said + 1
    assert [span for span in memory.whose(LEE).spans if span.form == NUMBER] == [
        Span(NUMBER, changed_at)
    ]
    assert memory.whose(NUMBER) == memory.whose(LEE) != memory.whose(KIM)


def test_f01_an_account_first_seen_in_an_older_event_is_a_person_of_its_own() -> None:
    memory = Memory("signal")
    writes(memory, NUMBER, KIM)
    writes(memory, NUMBER, LEE)
    memory.now = START + timedelta(seconds=30)
    other = "0f0e0d0c-0000-4000-8000-000000000001"
    writes(memory, NUMBER, other)
    assert (memory.said_by(KIM), memory.said_by(LEE), memory.said_by(other)) == (1, 1, 1)


def test_f01_numbers_that_change_hands_in_a_circle_name_nobody_by_an_old_name() -> None:
    memory = Memory("signal")
    other = f"{NUMBER}2"
    writes(memory, NUMBER, KIM)
    writes(memory, other, LEE)
    old = memory.whose(KIM).owners | memory.whose(LEE).owners
    writes(memory, NUMBER, LEE)
    writes(memory, other, KIM)
    for raw in (NUMBER, other):
        assert memory.whose(raw).owners.isdisjoint(old)


def test_f11_identities_that_turned_out_to_be_one_keep_their_names() -> None:
    memory = Memory("signal")
    writes(memory, NUMBER, None)
    writes(memory, None, KIM)
    both = memory.whose(NUMBER).owners | memory.whose(KIM).owners
    writes(memory, NUMBER, KIM)
    assert memory.whose(KIM) == memory.whose(NUMBER)
    assert memory.whose(KIM).owners == both
    # Also when the id of the one that was merged is handed on.
    writes(memory, NUMBER, LEE)
    assert memory.whose(KIM).owners == both
    assert memory.whose(LEE).owners.isdisjoint(both)


def test_f01_what_an_operator_has_split_is_not_merged_again() -> None:
    memory = Memory("signal")
    writes(memory, NUMBER, None)
    writes(memory, None, KIM)
    apart = memory.whose(KIM).owners
    writes(memory, NUMBER, KIM)
    assert memory.split(KIM)
    assert memory.whose(KIM).owners == apart
    writes(memory, NUMBER, KIM)
    assert memory.whose(KIM).owners.isdisjoint(apart | {f"signal:bot:{NUMBER}"})


def test_f01_whoever_had_a_number_at_some_time_is_not_who_has_it_now() -> None:
    """Also where others had it in between, and the platform told nothing of any of them."""
    memory = Memory("signal")
    writes(memory, NUMBER, KIM)
    for _ in range(3):
        memory.hand_over(NUMBER)
        writes(memory, NUMBER, None)
    kims, others = memory.whose(KIM).owners, memory.whose(NUMBER).owners
    writes(memory, NUMBER, KIM)
    assert memory.whose(KIM).owners.isdisjoint(kims | others)


def test_an_id_that_is_alone_or_names_its_identity_is_not_split() -> None:
    memory = Memory("signal")
    writes(memory, NUMBER, None)
    assert not memory.split(KIM)
    assert not memory.split(NUMBER)


ACCOUNTS: Final = ("bot", "bot2")


@pytest.mark.parametrize("is_known", [True, False])
def test_f01_a_change_of_hands_on_one_account_counts_on_all(*, is_known: bool) -> None:
    """Kim and Lee write to both accounts; the second one is told the number alone."""
    memory = Memory("signal")
    writes(memory, NUMBER, KIM)
    if is_known:
        writes(memory, NUMBER, None, "bot2")
    kims = memory.whose(NUMBER, account="bot2")
    writes(memory, NUMBER, LEE)
    before = memory.now - timedelta(seconds=1)
    writes(memory, NUMBER, None, "bot2")
    lees = memory.whose(NUMBER, account="bot2")
    assert lees.owners.isdisjoint(kims.owners)
    assert memory.said_by(NUMBER, "bot2") == 1
    assert memory.whose(NUMBER, before, "bot2").owners == kims.owners
    writes(memory, NUMBER, LEE, "bot2")
    assert memory.said_by(LEE, "bot2") == 2


def test_f01_a_partner_that_one_account_knows_counts_on_all() -> None:
    """Kim wrote to the first account with the number alone, and to the second with both ids."""
    memory = Memory("signal")
    writes(memory, NUMBER, None)
    writes(memory, NUMBER, KIM, "bot2")
    kims = memory.whose(NUMBER).owners
    writes(memory, NUMBER, LEE)
    assert memory.whose(LEE).owners.isdisjoint(kims)
    assert memory.said_by(LEE) == 1


def test_f01_a_number_that_two_accounts_tell_of_changes_hands_once() -> None:
    memory = Memory("signal")
    for account in ACCOUNTS:
        writes(memory, NUMBER, KIM, account)
    for lasting in (LEE, KIM, LEE):
        for account in ACCOUNTS:
            writes(memory, NUMBER, lasting, account)
    for account in ACCOUNTS:
        assert memory.said_by(LEE, account) == 2
        assert memory.said_by(KIM, account) == 2
        assert memory.whose(NUMBER, account=account) == memory.whose(LEE, account=account)


def test_f01_a_late_message_to_an_account_that_knew_nobody_is_of_who_had_the_number() -> None:
    memory = Memory("signal")
    writes(memory, NUMBER, KIM)
    writes(memory, NUMBER, LEE)
    memory.now = START + timedelta(seconds=30)
    writes(memory, NUMBER, None, "bot2")
    assert memory.said_by(LEE, "bot2") == memory.said_by(NUMBER, "bot2") == 0


def test_f01_a_message_of_before_a_change_that_another_account_told_changes_nothing() -> None:
    memory = Memory("signal")
    writes(memory, NUMBER, None)
    memory.now += timedelta(hours=1)
    writes(memory, NUMBER, LEE, "bot2")
    memory.now -= timedelta(minutes=30)
    writes(memory, NUMBER, KIM)
    assert memory.said_by(NUMBER) == memory.said_by(LEE) == 0
    assert memory.said_by(KIM) == 1
    assert memory.said_by(LEE, "bot2") == 1


def test_f01_an_operator_hands_an_id_over_on_all_accounts_at_once() -> None:
    memory = Memory("signal")
    for account in ACCOUNTS:
        writes(memory, NUMBER, None, account)
    memory.hand_over(NUMBER, ACCOUNTS)
    for account in ACCOUNTS:
        assert memory.said_by(NUMBER, account) == 0
        assert memory.seen_by(NUMBER, account) == set()


@pytest.mark.parametrize("platform", ["signal", "whatsapp"])
@pytest.mark.parametrize(
    "hundred",
    [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, RUNS // 200))],
)
def test_f01_no_reader_shows_a_word_of_somebody_else(platform: str, hundred: int) -> None:
    """2,000 times 50 steps over both platforms, and everybody asked after each of them."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        world, memory = World(seed, platform), Memory(platform)
        for _ in range(STEPS):
            for step in world.step():
                take(world, memory, step)
            for person in world.people:
                for account in world.accounts:
                    check(world, memory, person, account, f"{platform} {seed}")


def take(world: World, memory: Memory, step: Step) -> None:
    match step:
        case Say():
            memory.say(step)
        case Arrive(message):
            memory.decide(message, memory.stored_at.pop(message.word))
        case Change():
            memory.change(step)
        case HandOver(number):
            memory.hand_over(number, world.accounts)
        case Split(lasting):
            memory.split(lasting, world.accounts)
        case Ask(account=account, raw=raw, what="new"):
            memory.new(raw, account)
        case Ask():
            pass


def check(world: World, memory: Memory, person: Somebody, account: str, context: str) -> None:
    raw = world.id_of(person)
    if raw is None:
        return
    seen = memory.seen_by(raw, account)
    assert seen & world.others(person) == set(), context
    exported = memory.exported(raw, account)
    assert exported <= person.said_in_rooms(account), context
    if person.is_continuous and account in person.told_to and world.is_settled(person):
        assert seen == person.said_to(account), context
        assert exported == person.said_in_rooms(account), context
