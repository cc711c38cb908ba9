"""What makes an event a repeat."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.addressing.aliases import AliasBook
from chatlane.domain.addressing.dedupe import digests, former_digests, undecodable_digest
from chatlane.domain.addressing.sources import address_of
from chatlane_schemas.inbound import Chat, InboundEvent, Kind, Sender

AT: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)


def event(
    envelope: str = "e1",
    chat: str | None = "701",
    user: str = "701",
    **more: Any,  # noqa: ANN401
) -> InboundEvent:
    fields: dict[str, Any] = {"platform": "telegram", "account": "bot", "message_id": "250"}
    return InboundEvent(
        id=envelope,
        at=AT,
        chat=Chat(id=chat, kind=more.pop("chat_kind", "dm")),
        sender=Sender(id=user),
        **(fields | more),
    )


def digest(one: InboundEvent) -> bytes:
    (only,) = digests(one, address_of(one))
    return only


def test_copy_in_another_envelope_is_a_repeat() -> None:
    assert digest(event("e1")) == digest(event("e2"))


def test_digest_never_changes_between_releases() -> None:
    """A changed digest would run every replayed message a second time."""
    expected = "da3eae87b028c654aa7c531c16687dd6b0598ab794a10f7a698140d74fc7394b"

    assert expected == digest(event(scope="é")).hex()


@pytest.mark.parametrize(
    "other",
    [
        event(chat="702"),
        event(account="b2"),
        event(platform="discord"),
        event(scope="T1"),
        event(message_id="251"),
        event(kind=Kind.DELETE),
        event(message_id=None),
        event(message_id=""),
    ],
)
def test_another_message_is_no_repeat(other: InboundEvent) -> None:
    assert digest(event()) != digest(other)


def test_thread_and_sender_do_not_matter() -> None:
    other = event(user="9", thread_id="5", text="hi")

    assert digest(event()) == digest(other)


def test_a_message_to_two_profiles_is_one_of_each() -> None:
    sales, help_desk = event(profile="sales"), event(profile="help")
    assert len({digest(event()), digest(sales), digest(help_desk)}) == 3
    assert former_digests(sales, address_of(sales)) == digests(event(), address_of(event()))
    assert former_digests(event(), address_of(event())) == ()


@pytest.mark.parametrize("profile", [None, "", "default", "main"])
def test_the_main_profile_has_the_digests_of_before(profile: str | None) -> None:
    one = event(profile=profile)
    fields = ("1", one.platform, one.account, "", "701", "message", "250", "")
    text = "".join(f"{len(field)}:{field}" for field in fields)
    assert digest(one) == sha256(text.encode()).digest()


def test_sender_stands_in_for_a_missing_chat() -> None:
    assert digest(event(chat=None, user="5")) != digest(event(chat=None, user="6"))
    assert digest(event(chat=None, user="5")) == digest(event(chat="", user="5"))


def test_events_without_a_number_are_repeats_of_their_own_envelope_only() -> None:
    def numberless(envelope: str) -> InboundEvent:
        return event(envelope, message_id=None)

    assert digest(numberless("e1")) == digest(numberless("e1"))
    assert digest(numberless("e1")) != digest(numberless("e2"))


def test_envelope_id_of_one_account_swallows_nothing_of_another() -> None:
    one = event(message_id=None)
    other = event(message_id=None, account="b2")

    assert digest(one) != digest(other)


def test_edits_of_one_message_are_told_apart() -> None:
    def edit(envelope: str, **more: str) -> InboundEvent:
        return event(envelope, kind=Kind.EDIT, **more)

    assert digest(edit("e1", version="1")) == digest(edit("e2", version="1"))
    assert digest(edit("e1", version="1")) != digest(edit("e1", version="2"))
    assert digest(edit("e1", event_id="1")) != digest(edit("e1", version="1"))
    assert digest(edit("e1")) != digest(edit("e2"))
    assert digest(edit("e1", event_id="x", version="1")) == digest(edit("e2", event_id="x"))


def test_one_message_in_two_events_runs_once() -> None:
    assert digest(event("e1", event_id="Ev1")) == digest(event("e2", event_id="Ev2"))


def test_person_known_under_two_ids_gives_a_second_digest() -> None:
    book = AliasBook()
    link = event(
        platform="whatsapp", chat="15550001@s.whatsapp.net", user="9990001@lid", message_id="A1"
    )
    book.learn(address_of(link), AT, persons=True)

    def all_digests(chat: str) -> tuple[bytes, ...]:
        one = event(platform="whatsapp", chat=chat, user=chat, message_id="A2")
        address = address_of(one)
        return digests(one, address, book.resolve(address, persons=True).person)

    by_phone, by_lid = all_digests("15550001@s.whatsapp.net"), all_digests("9990001@lid")

    assert len(by_phone) == len(by_lid) == 2
    assert by_phone[0] != by_lid[0]
    assert by_phone[1] == by_lid[1]
    assert len(all_digests("15550001")) == 1
    assert len(all_digests("1203@g.us")) == 1


def test_moved_chat_starts_to_count_again() -> None:
    book = AliasBook()
    move = event(chat="-4518", chat_kind="group", kind=Kind.MIGRATION, migrate_to="-1002471")
    book.learn(address_of(move), AT, persons=False)
    one = event(chat="-1002471", chat_kind="supergroup", message_id="150")
    resolved = book.resolve(address_of(one), persons=False)

    assert resolved.address.chat_id == "-4518"
    assert resolved.person is None
    assert digests(one, address_of(one), resolved.person) != digests(
        event(chat="-4518", message_id="150"), address_of(event(chat="-4518"))
    )


def test_undecodable_body_is_known_by_itself_and_its_time() -> None:
    one = undecodable_digest(b"{", AT)

    assert one == undecodable_digest(b"{", AT)
    assert one != undecodable_digest(b"[", AT)
    assert one != undecodable_digest(b"{", AT + timedelta(microseconds=1))


text = st.text("0123:,", min_size=1, max_size=4)


@given(st.tuples(text, text, text), st.tuples(text, text, text))
def test_no_two_events_read_alike(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """Parts that could run into each other, if they were joined without their lengths."""

    def of(parts: tuple[str, ...]) -> bytes:
        scope, chat, message_id = parts
        return digest(event(scope=scope, chat=chat, message_id=message_id))

    assert (one == other) == (of(one) == of(other))
