"""Every spelling of "none" becomes None."""

from datetime import UTC, datetime
from typing import Any

import pytest

from chatlane.domain.addressing.sources import Address, address_of, class_of
from chatlane_schemas.codec import decode
from chatlane_schemas.inbound import InboundEvent, Kind


def _decoded(**fields: Any) -> InboundEvent:  # noqa: ANN401
    return InboundEvent.model_validate(
        {
            "id": "e1",
            "at": datetime(2026, 5, 11, tzinfo=UTC),
            "platform": "custom",
            "account": "bot",
        }
        | fields
    )


def test_nothing_said_is_a_dm_of_the_main_profile() -> None:
    assert address_of(_decoded()) == Address("custom", "bot")


def test_empty_ids_are_none() -> None:
    event = _decoded(
        scope="",
        profile="",
        chat={"id": "", "kind": "group"},
        thread_id="",
        sender={"id": "", "alt_id": ""},
        migrate_to="",
        kind="migration",
    )

    assert address_of(event) == Address("custom", "bot", chat_kind="group")


@pytest.mark.parametrize("thread", [None, "", "0", 0])
def test_missing_empty_and_zero_thread_are_the_same(thread: object) -> None:
    assert address_of(_decoded(thread_id=thread)).thread_id is None


def test_zero_is_an_id_anywhere_else() -> None:
    address = address_of(_decoded(chat={"id": 0}, sender={"id": "0"}, scope="0"))

    assert (address.chat_id, address.sender_id, address.scope) == ("0", "0", "0")


@pytest.mark.parametrize("profile", [None, "", "default", "main"])
def test_profile_of_nobody_is_main(profile: str | None) -> None:
    assert address_of(_decoded(profile=profile)).profile == "main"


def test_integers_become_text_with_all_digits() -> None:
    body = b"""{"v": 1, "id": "e1", "at": "2026-05-11T09:00:00Z", "platform": "Telegram",
        "account": "bot", "chat": {"id": -100200300400500600700, "kind": "SuperGroup"}}"""
    address = address_of(decode(InboundEvent, body))

    assert (address.platform, address.chat_id) == ("telegram", "-100200300400500600700")
    assert address.chat_class == "group"


def test_new_id_of_a_chat_counts_on_a_migration_only() -> None:
    assert address_of(_decoded(migrate_to="2")).migrate_to is None
    assert address_of(_decoded(migrate_to="2", kind=Kind.MIGRATION)).migrate_to == "2"


@pytest.mark.parametrize(
    "kind", ["group", "supergroup", "channel", "forum", "room", "thread", "direct", ""]
)
def test_everything_but_a_dm_is_a_group(kind: str) -> None:
    assert class_of(kind) == "group"
    assert class_of("DM") == "dm"


def test_more_stable_id_of_the_sender_comes_first() -> None:
    both = Address("custom", "bot", sender_id="1", sender_alt_id="2")

    assert both.participant == "2"
    assert both.chat_or_sender == "2"
    assert Address("custom", "bot", chat_id="3", sender_id="1").chat_or_sender == "3"
