"""Where old conversations go on: what counted in an old key counts in the new one, and no more."""

from datetime import UTC, datetime

import pytest

from chatlane.domain.addressing.keys import session_key
from chatlane.domain.catalog import Account, Agent, Catalog, Platform
from chatlane.domain.policy import KeyRules, ResetPolicy
from chatlane.importer.lanes import OLD_RULES, Placed, Unplaceable, holders, place
from chatlane.importer.records import OldSession, Origin

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CATALOG = Catalog(
    platforms={
        "telegram": Platform("telegram", KeyRules(), accounts={"bot": Account("bot")}),
        "discord": Platform("discord", KeyRules(), accounts={"a": Account("a"), "b": Account("b")}),
        "matrix": Platform(
            "matrix", KeyRules(), accounts={"bot": Account("bot", frozenset({"coder"}))}
        ),
        "whatsapp": Platform(
            "whatsapp", KeyRules(), accounts={"bot": Account("bot")}, person_aliases=True
        ),
    },
    profiles={"main": "main", "coder": "main"},
    agents={"main": Agent("main")},
    default_reset=ResetPolicy(),
)


def placed(key: str | None, origin: Origin | None, **more: str) -> Placed | Unplaceable:
    source = origin.platform if origin else "telegram"
    session = OldSession("s", source, key, origin, NOW)
    return place(session, CATALOG, {"discord": "b"}, more.get("profile"))


def new_key(key: str | None, origin: Origin | None, **more: str) -> str | None:
    where = placed(key, origin, **more)
    assert isinstance(where, Placed), where
    if where.address is None:
        return None
    found = session_key(where.address, OLD_RULES)
    assert isinstance(found, str)
    return found


TEAM = Origin("telegram", "group", chat_id="-1", user_id="7", thread_id="5")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("agent:main:telegram:group:-1", "agent:main:telegram:bot:group:-1"),
        ("agent:main:telegram:group:-1:7", "agent:main:telegram:bot:group:-1:user=7"),
        ("agent:main:telegram:group:-1:5", "agent:main:telegram:bot:group:-1:thread=5"),
        ("agent:main:telegram:group:-1:5:7", "agent:main:telegram:bot:group:-1:thread=5:user=7"),
    ],
)
def test_what_counted_is_read_off_the_old_key(key: str, expected: str) -> None:
    """A conversation of everybody never becomes that of whoever wrote first in it."""
    assert new_key(key, TEAM) == expected


def test_colons_in_ids_do_not_confuse() -> None:
    origin = Origin("matrix", "group", chat_id="!r:example.org", user_id="@a:example.org")
    key = "agent:coder:matrix:group:!r:example.org:@a:example.org"
    assert (
        new_key(key, origin)
        == "agent:coder:matrix:bot:group:!r%3Aexample.org:user=@a%3Aexample.org"
    )


@pytest.mark.parametrize(
    ("key", "origin"),
    [
        ("agent:main:telegram:dm", Origin("telegram", chat_id="111", user_id="111")),
        ("agent:main:telegram:dm", Origin("telegram")),
        ("agent:main:telegram:dm:5", Origin("telegram", thread_id="5")),
        ("agent:main:telegram:group", Origin("telegram", "group")),
    ],
)
def test_a_conversation_of_several_chats_goes_to_none_of_them(key: str, origin: Origin) -> None:
    where = placed(key, origin)
    assert isinstance(where, Placed)
    assert (where.address, where.why_no_lane) == (None, "several chats shared its key")


def test_a_key_that_says_something_else_than_its_address_has_no_lane() -> None:
    assert new_key("agent:main:telegram:dm:112", Origin("telegram", chat_id="111")) is None


def test_a_key_alone_is_enough_where_it_can_mean_one_thing() -> None:
    assert new_key("agent:main:telegram:dm:111", None) == "agent:main:telegram:bot:dm:111"
    assert (
        new_key("agent:main:telegram:dm:111:5", None) == "agent:main:telegram:bot:dm:111:thread=5"
    )
    assert new_key("agent:main:telegram:group:-1", None) == "agent:main:telegram:bot:group:-1"
    assert new_key("agent:main:telegram:group:-1:7", None) is None
    assert new_key("agent:main:telegram:dm:a:b", None) is None


def test_the_account_is_the_only_one_or_has_to_be_told() -> None:
    origin = Origin("discord", "channel", chat_id="9")
    assert new_key("agent:main:discord:channel:9", origin) == "agent:main:discord:b:group:9"
    session = OldSession("s", "discord", "agent:main:discord:channel:9", origin, NOW)
    untold = place(session, CATALOG, {}, None)
    assert untold == Unplaceable("say which account it is: --account discord=NAME")


def test_profiles_are_checked_as_those_of_messages_are() -> None:
    origin = Origin("telegram", chat_id="1")
    assert isinstance(placed("agent:coder:telegram:dm:1", origin), Unplaceable)
    assert isinstance(placed("agent:nobody:telegram:dm:1", origin), Unplaceable)
    as_main = new_key("agent:nobody:telegram:dm:1", origin, profile="main")
    assert as_main == "agent:main:telegram:bot:dm:1"


@pytest.mark.parametrize(
    ("key", "origin", "expected"),
    [
        ("dm:601", Origin("whatsapp", chat_id="601@s.whatsapp.net"), "601@s.whatsapp.net"),
        ("dm:601", Origin("whatsapp", chat_id="999@lid"), "999@lid"),
        ("dm:601", Origin("whatsapp", user_id="999@lid"), None),
    ],
)
def test_people_on_whatsapp_keep_both_ids(key: str, origin: Origin, expected: str | None) -> None:
    where = placed(f"agent:main:whatsapp:{key}", origin)
    assert isinstance(where, Placed)
    assert where.address is not None
    assert where.address.chat_id == expected
    others = (where.address.sender_id, *where.address.sender_aliases)
    assert ("601" in others) == ("999" in str(origin))


def session(name: str, **fields: object) -> OldSession:
    given = {"source": "telegram", "key": "k", "origin": None, "started_at": NOW, "row_count": 1}
    return OldSession(id=name, **(given | fields))  # type: ignore[arg-type]


def test_a_compressed_session_goes_on_in_its_child() -> None:
    old = [
        session("a", end_reason="compression", ended_at=NOW),
        session("b", parent_id="a", end_reason="compression", ended_at=NOW),
        session("fork", parent_id="b", model_config='{"_branched_from": "b"}', key=None),
        session("c", parent_id="b", key=None),
    ]
    assert holders({one.id: one for one in old}, {"k": "a"}) == {"k": "c"}


def test_compressions_in_a_circle_end() -> None:
    old = [
        session("a", parent_id="b", end_reason="compression", ended_at=NOW),
        session("b", parent_id="a", end_reason="compression", ended_at=NOW),
    ]
    assert holders({one.id: one for one in old}, {"k": "a"}) == {"k": "b"}


def test_an_ended_session_gives_its_key_to_the_newest_open_one() -> None:
    old = [session("ended", ended_at=NOW), session("open"), session("empty", row_count=0)]
    known = {one.id: one for one in old}
    assert holders(known, {"k": "ended"}) == {"k": "open"}
    assert holders({"ended": old[0]}, {"k": "ended"}) == {"k": "ended"}
    assert holders(known, {}) == {"k": "open"}
