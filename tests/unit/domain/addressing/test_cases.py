"""Cases C01 to C14 as far as a key, an address or a digest decides them.

Each event is one line of its case: kind of chat, chat, thread, user, and what is special.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from chatlane.domain.addressing.aliases import AliasBook
from chatlane.domain.addressing.dedupe import digests
from chatlane.domain.addressing.keys import NoConversation, parse_session_key, session_key
from chatlane.domain.addressing.sources import address_of
from chatlane.domain.policy import KeyRules
from chatlane_schemas.inbound import Chat, InboundEvent, Kind, Sender
from chatlane_schemas.source import source_of

AT: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
PERSONAL: Final = frozenset({"whatsapp", "signal"})


@dataclass
class Case:
    """Handles the events of a case in order and remembers what became of them."""

    platform: str
    rules: KeyRules = field(default_factory=KeyRules)

    def __post_init__(self) -> None:
        self.book = AliasBook()
        self.keys: list[str | NoConversation] = []
        self.digests: list[tuple[bytes, ...]] = []
        self.events: list[InboundEvent] = []

    def event(
        self,
        chat_kind: str,
        chat: str | None,
        thread: str | None = None,
        user: str | None = None,
        **more: Any,  # noqa: ANN401
    ) -> None:
        number = len(self.keys) + 1
        fields: dict[str, Any] = {"platform": self.platform, "message_id": str(number)}
        event = InboundEvent(
            id=f"e{number}",
            at=AT,
            account="bot",
            chat=Chat(id=chat, kind=chat_kind, is_forum=more.pop("is_forum", None)),
            thread_id=thread,
            sender=Sender(id=user, aliases=more.pop("aliases", ())),
            **(fields | more),
        )
        address = address_of(event)
        persons = event.platform in PERSONAL
        self.book.learn(address, AT + timedelta(seconds=number), persons=persons)
        resolved = self.book.resolve(address, persons=persons)
        self.events.append(event)
        self.keys.append(session_key(resolved.address, self.rules))
        self.digests.append(digests(event, address, resolved.person))

    def key(self, number: int) -> str:
        key = self.keys[number - 1]
        assert isinstance(key, str)
        return key

    def distinct(self, *numbers: int) -> int:
        return len({self.key(number) for number in numbers})


def test_c01_separator_inside_an_id() -> None:
    case = Case("custom")
    case.event("group", "a:b", "c", "1")
    case.event("group", "a", "b:c", "1")
    case.event("dm", "x", None, "3")
    case.event("dm", "x:", None, "4")
    case.event("dm", "%3A", None, "5")
    case.event("dm", ":", None, "6")

    assert case.distinct(1, 2, 3, 4, 5, 6) == 6
    assert [parse_session_key(case.key(n)).chat for n in (1, 2, 5, 6)] == ["a:b", "a", "%3A", ":"]
    assert parse_session_key(case.key(2)).thread == "b:c"


def test_c02_ids_that_differ_only_by_case() -> None:
    case = Case("matrix")
    case.event("group", "!AbC:ex.org", None, "@u:ex.org")
    case.event("group", "!abc:ex.org", None, "@u:ex.org")
    case.event("group", "!AbC:ex.org", "$ThR1", "@u:ex.org")
    case.event("group", "!AbC:ex.org", "$thr1", "@u:ex.org")
    case.event("dm", None, None, "Ann", platform="custom")
    case.event("dm", None, None, "ann", platform="custom")

    assert case.distinct(1, 2, 3, 4, 5, 6) == 6
    chat = source_of(case.events[0]).chat
    assert chat is not None
    assert chat.id == "!AbC:ex.org"


def test_c02_platform_names_are_folded() -> None:
    case = Case("Telegram")
    case.event("dm", "7")
    case.event("dm", "7", platform="telegram")

    assert case.key(1) == case.key(2)


def test_c03_two_workspaces_with_the_same_channel_id() -> None:
    case = Case("slack")
    case.event("group", "C9", None, "U1", scope="T_ACME", message_id="1770.000100")
    case.event("group", "C9", None, "U1", scope="T_OTHER", message_id="1770.000100")
    case.event("group", "C8", "1770.000100", "U1", scope="T_ACME")
    case.event("group", "C9", "1770.000100", "U1", scope="T_ACME")

    assert case.distinct(1, 2, 3, 4) == 4
    assert case.digests[0] != case.digests[1]


def test_c04_profiles_never_share_a_key() -> None:
    case = Case("telegram")
    case.event("dm", "700", None, "700", profile="sales")
    case.event("dm", "700", None, "700", profile="support")
    case.event("dm", "700", None, "700", profile="sales")
    case.event("dm", "700", None, "700")

    assert case.key(1) == case.key(3)
    assert case.distinct(1, 2, 4) == 3


def test_c05_dm_without_chat_id() -> None:
    case = Case("custom")
    case.event("dm", None, None, "5")
    case.event("dm", None, None, "6")
    case.event("dm", "", None, "5")
    case.event("dm", None)
    case.event("dm", None, None, "")
    case.event("dm", "701", None, "701", platform="telegram", message_id="9")
    case.event("dm", "702", None, "702", platform="telegram", message_id="9")

    assert case.key(1) != case.key(2)
    assert case.key(1) == case.key(3)
    assert isinstance(case.keys[3], NoConversation)
    assert isinstance(case.keys[4], NoConversation)
    assert case.key(6) != case.key(7)


def test_c06_the_word_for_a_chat_flips() -> None:
    case = Case("slack")
    case.event("channel", "C7", None, "U1")
    case.event("group", "C7", None, "U1")
    case.event("group", "-9", None, "1", platform="telegram")
    case.event("supergroup", "-9", None, "1", platform="telegram")
    case.event("dm", "-9", None, "1", platform="telegram")

    assert case.key(1) == case.key(2)
    assert case.key(3) == case.key(4)
    assert case.key(5) != case.key(4)


@pytest.mark.parametrize("per_user", [True, False])
def test_c07_one_person_in_two_channels(per_user: bool) -> None:  # noqa: FBT001
    case = Case("discord", KeyRules(group_sessions_per_user=per_user))
    case.event("group", "111", None, "5")
    case.event("group", "222", None, "5")
    case.event("dm", "333", None, "5")
    case.event("group", "111", None, "6")

    assert case.distinct(1, 2, 3) == 3
    assert (case.key(4) != case.key(1)) is per_user


def test_c08_missing_or_placeholder_sender_in_a_group() -> None:
    case = Case("telegram")
    case.event("group", "-50", None, "1087968824", message_id="1")
    case.event("group", "-51", None, "1087968824", message_id="1")
    case.event("group", "-50", None, None, message_id="2")
    case.event("group", "-50", None, "7", message_id="3")

    assert case.distinct(1, 2, 3, 4) == 4
    assert case.digests[0] != case.digests[1]


def test_c09_reply_chain_in_a_plain_group() -> None:
    case = Case("telegram")
    case.event("group", "-60", None, "7", is_forum=False)
    case.event("group", "-60", "41", "7", is_forum=False)
    case.event("group", "-60", "43", "7", is_forum=False)
    case.event("dm", "7", "9", "7")
    case.event("dm", "7", None, "7")

    assert case.distinct(1, 2, 3) == 1
    assert case.key(4) != case.key(5)
    assert source_of(case.events[1]).thread_id == "41"


def test_c10_topics_of_a_forum() -> None:
    case = Case("telegram")
    case.event("group", "-70", "10", "7", is_forum=True)
    case.event("group", "-70", "11", "7", is_forum=True)
    case.event("group", "-70", None, "7", is_forum=True)
    case.event("group", "-70", "1", "7", is_forum=True)
    case.event("group", "-70", "10", "8", is_forum=True)
    case.event("group", "-70", "", "7", is_forum=True)
    case.event("group", "-70", "0", "7", is_forum=True)

    assert case.distinct(1, 2, 3) == 3
    assert case.distinct(3, 4, 6, 7) == 1
    assert case.key(1) == case.key(5)
    assert source_of(case.events[2]).thread_id is None


def test_c12_group_becomes_supergroup() -> None:
    case = Case("telegram")
    case.event("group", "-4518", None, "7", message_id="150")
    case.event("group", "-4518", None, "8", message_id="151")
    case.event("group", "-4518", message_id="153", migrate_to="-1002471", kind=Kind.MIGRATION)
    case.event("supergroup", "-1002471", None, "7", message_id="1")
    case.event("supergroup", "-1002471", None, "8", message_id="150")

    assert case.key(4) == case.key(1)
    assert case.key(5) == case.key(2)
    assert case.digests[4] != case.digests[0]


@pytest.mark.parametrize("first", [("15550001", ("9990001@lid",)), ("9990001@lid", ("+15550001",))])
def test_c13_one_person_under_two_ids(first: tuple[str, tuple[str, ...]]) -> None:
    """The link is known from either side; the answer keeps the form of the last event."""
    case = Case("whatsapp")
    phone, lid, laptop = "15550001@s.whatsapp.net", "9990001@lid", "15550001:12@s.whatsapp.net"
    case.event("dm", first[0], None, first[0], aliases=first[1])
    case.event("dm", phone, None, phone)
    case.event("dm", lid, None, lid)
    case.event("dm", laptop, None, laptop)
    case.event("group", "1203@g.us", None, lid)
    case.event("group", "1203@g.us", None, "+15550001")
    case.event("dm", "15550002@s.whatsapp.net", None, "15550002@s.whatsapp.net")
    case.event("dm", "8880007@lid", None, "8880007@lid")

    assert case.distinct(1, 2, 3, 4) == 1
    assert case.key(5) == case.key(6)
    assert case.distinct(1, 5, 7, 8) == 4
    chat = source_of(case.events[3]).chat
    assert chat is not None
    assert chat.id == laptop


def test_c14_message_number_is_unique_inside_one_chat_only() -> None:
    case = Case("telegram")
    case.event("dm", "701", None, "701", message_id="250")
    case.event("dm", "702", None, "702", message_id="250")
    case.event("group", "-80", None, "701", message_id="250")
    case.event("dm", "701", None, "701", message_id="250", platform="discord")
    case.event("dm", "701", None, "701", message_id="250")
    case.event("dm", "701", None, "701", message_id=None)
    case.event("dm", "701", None, "701", message_id=None)

    assert case.digests[4] == case.digests[0]
    assert len(set(case.digests)) == 6


def test_source_is_never_rewritten() -> None:
    """What keys leave out or rename stays in the address an answer goes to."""
    case = Case("telegram")
    case.event("group", "-4518", migrate_to="-1002471", kind=Kind.MIGRATION)
    case.event("supergroup", "-1002471", "1", "7", is_forum=True)
    source = source_of(case.events[1])
    assert source.chat is not None

    assert (source.chat.id, source.thread_id) == ("-1002471", "1")
    assert address_of(case.events[1])._replace(thread_id=None).chat_id == "-1002471"
