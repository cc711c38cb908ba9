"""The rules of session keys, row by row of the table of an older gateway that sessions come from."""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from typing import Final

import pytest

from chatlane.domain.addressing.aliases import AliasBook
from chatlane.domain.addressing.keys import (
    MAX_KEY_BYTES,
    MalformedKeyError,
    NoConversation,
    ParsedKey,
    identity_of,
    is_shared,
    parse_session_key,
    session_key,
)
from chatlane.domain.addressing.sources import Address
from chatlane.domain.policy import KeyRules
from chatlane_schemas.dead import DeadReason

DEFAULT: Final = KeyRules()
SHARED_GROUPS: Final = KeyRules(group_sessions_per_user=False)
PRIVATE_THREADS: Final = KeyRules(thread_sessions_per_user=True)
THREADS_ONLY: Final = KeyRules(group_sessions_per_user=False, thread_sessions_per_user=True)
ONE_FOR_ALL: Final = KeyRules(anonymous_dm="shared")


@dataclass(frozen=True)
class Row:
    """A row of the older key table: its number, its input, its key and ours."""

    number: int
    address: Address
    reference: str
    ours: str
    rules: KeyRules = DEFAULT


def _address(  # noqa: PLR0917
    platform: str,
    kind: str,
    chat: str | None,
    user: str | None = None,
    thread: str | None = None,
    alt: str | None = None,
    scope: str | None = None,
    profile: str = "main",
) -> Address:
    return Address(
        platform,
        "bot",
        scope=scope,
        profile=profile,
        chat_id=chat,
        chat_kind=kind,
        thread_id=thread,
        sender_id=user,
        sender_alt_id=alt,
    )


_T = "telegram"
_W = "whatsapp"
_C = "whatsapp_cloud"
_G = "120363000000000001@g.us"
_KIM = "60123456789"
_KIM_LID = "999999999999999@lid"

# Rows 11 to 13 lead to no conversation any more; 41, 55 and 56 were errors there.
ROWS: Final = [
    Row(1, _address(_T, "dm", "111", "111"), "telegram:dm:111", "telegram:bot:dm:111"),
    Row(
        2,
        _address(_T, "dm", "111", "111", "42"),
        "telegram:dm:111:42",
        "telegram:bot:dm:111:thread=42",
    ),
    Row(3, _address(_T, "dm", "111", profile="default"), "telegram:dm:111", "telegram:bot:dm:111"),
    Row(4, _address(_T, "dm", "111", profile=""), "telegram:dm:111", "telegram:bot:dm:111"),
    Row(
        5,
        _address(_T, "dm", "111", profile="coder"),
        "coder telegram:dm:111",
        "coder:telegram:bot:dm:111",
    ),
    Row(6, _address(_T, "dm", "111", profile="main"), "telegram:dm:111", "telegram:bot:dm:111"),
    Row(7, _address("local", "dm", "cli"), "local:dm:cli", "local:bot:dm:cli"),
    Row(
        8,
        _address("signal", "dm", None, "+15551234567", alt="uuid-1"),
        "signal:dm:uuid-1",
        "signal:bot:dm:uuid-1",
    ),
    Row(
        9,
        _address("signal", "dm", None, "+15551234567"),
        "signal:dm:+15551234567",
        "signal:bot:dm:+15551234567",
    ),
    Row(
        10,
        _address("signal", "dm", None, "+15551234567", "t9"),
        "signal:dm:+15551234567:t9",
        "signal:bot:dm:+15551234567:thread=t9",
    ),
    Row(
        14,
        _address(_T, "group", "-100200", "7"),
        "telegram:group:-100200:7",
        "telegram:bot:group:-100200:user=7",
    ),
    Row(
        15,
        _address(_T, "group", "-100200", "7", alt="alt7"),
        "telegram:group:-100200:alt7",
        "telegram:bot:group:-100200:user=alt7",
    ),
    Row(
        16,
        _address(_T, "group", "-100200", "7"),
        "telegram:group:-100200",
        "telegram:bot:group:-100200",
        SHARED_GROUPS,
    ),
    Row(
        17,
        _address(_T, "group", "-100200"),
        "telegram:group:-100200",
        "telegram:bot:group:-100200",
    ),
    Row(
        18,
        _address(_T, "group", "-100200", "7", "5"),
        "telegram:group:-100200:5",
        "telegram:bot:group:-100200:thread=5",
    ),
    Row(
        19,
        _address(_T, "group", "-100200", "7", "5"),
        "telegram:group:-100200:5:7",
        "telegram:bot:group:-100200:thread=5:user=7",
        PRIVATE_THREADS,
    ),
    Row(
        20,
        _address(_T, "group", "-100200", "7", "5"),
        "telegram:group:-100200:5",
        "telegram:bot:group:-100200:thread=5",
        THREADS_ONLY,
    ),
    Row(
        21,
        _address(_T, "group", "-100200", None, "5"),
        "telegram:group:-100200:5",
        "telegram:bot:group:-100200:thread=5",
        PRIVATE_THREADS,
    ),
    Row(
        22,
        _address(_T, "group", "-100", "7"),
        "telegram:group:-100:7",
        "telegram:bot:group:-100:user=7",
    ),
    Row(
        23,
        _address(_T, "group", "-100", "0"),
        "telegram:group:-100:0",
        "telegram:bot:group:-100:user=0",
    ),
    Row(
        24,
        _address(_T, "forum", "-100", "7"),
        "telegram:forum:-100:7",
        "telegram:bot:group:-100:user=7",
    ),
    Row(
        25,
        _address("discord", "channel", "900", "31", scope="G1"),
        "discord:channel:900:31",
        "discord:bot:group:900:user=31:scope=G1",
    ),
    Row(
        26,
        _address("discord", "channel", "900", "31", scope="G2"),
        "discord:channel:900:31",
        "discord:bot:group:900:user=31:scope=G2",
    ),
    Row(
        27,
        _address("discord", "thread", "955", "31", "955"),
        "discord:thread:955:955",
        "discord:bot:group:955:thread=955",
    ),
    Row(
        28,
        _address("discord", "thread", "955", "31"),
        "discord:thread:955:31",
        "discord:bot:group:955:user=31",
    ),
    Row(
        29,
        _address("discord", "thread", "955", "31", "955"),
        "discord:thread:955:955:31",
        "discord:bot:group:955:thread=955:user=31",
        PRIVATE_THREADS,
    ),
    Row(
        30,
        _address("slack", "group", "C1", "U1", "1700000000.1"),
        "slack:group:C1:1700000000.1",
        "slack:bot:group:C1:thread=1700000000.1",
    ),
    Row(
        31,
        _address("slack", "group", "C1", "U1", scope="T1"),
        "slack:group:C1:U1",
        "slack:bot:group:C1:user=U1:scope=T1",
    ),
    Row(
        32,
        _address("slack", "group", "C1", "U1", scope="T2"),
        "slack:group:C1:U1",
        "slack:bot:group:C1:user=U1:scope=T2",
    ),
    Row(
        33,
        _address("matrix", "group", "!room:example.org", "@a:example.org"),
        "matrix:group:!room:example.org:@a:example.org",
        "matrix:bot:group:!room%3Aexample.org:user=@a%3Aexample.org",
    ),
    Row(
        34,
        _address("feishu", "group", "oc_1", "ou_1", alt="on_1"),
        "feishu:group:oc_1:on_1",
        "feishu:bot:group:oc_1:user=on_1",
    ),
    Row(35, _address("webhook", "group", None), "webhook:group", "webhook:bot:group:"),
    Row(
        36,
        _address("webhook", "group", None, "u"),
        "webhook:group:u",
        "webhook:bot:group::user=u",
    ),
    Row(
        37,
        _address("email", "dm", "x@example.org", "x@example.org"),
        "email:dm:x@example.org",
        "email:bot:dm:x@example.org",
    ),
    Row(
        38,
        _address(_T, "direct", "111", "111"),
        "telegram:direct:111:111",
        "telegram:bot:group:111:user=111",
    ),
    Row(39, _address(_T, "DM", "111", "111"), "telegram:DM:111:111", "telegram:bot:dm:111"),
    Row(40, _address(_T, "dm", "111", "111"), "telegram:dm:111", "telegram:bot:dm:111"),
    Row(
        42,
        _address(_W, "dm", f"{_KIM}@s.whatsapp.net"),
        f"whatsapp:dm:{_KIM}",
        f"whatsapp:bot:dm:{_KIM}",
    ),
    Row(
        43,
        _address(_W, "dm", f"{_KIM}:47@s.whatsapp.net"),
        f"whatsapp:dm:{_KIM}",
        f"whatsapp:bot:dm:{_KIM}",
    ),
    Row(44, _address(_W, "dm", f"+{_KIM}"), f"whatsapp:dm:{_KIM}", f"whatsapp:bot:dm:{_KIM}"),
    Row(45, _address(_W, "dm", _KIM_LID), f"whatsapp:dm:{_KIM}", f"whatsapp:bot:dm:{_KIM}"),
    Row(
        46,
        _address(_W, "dm", "15550000001@s.whatsapp.net"),
        "whatsapp:dm:1555001",
        "whatsapp:bot:dm:15550000001",
    ),
    Row(
        47,
        _address(_W, "dm", "88880000000000@lid"),
        "whatsapp:dm:1555001",
        "whatsapp:bot:dm:15550000001",
    ),
    Row(48, _address(_W, "dm", "222@lid"), "whatsapp:dm:222", "whatsapp:bot:dm:222@lid"),
    Row(
        49,
        _address(_W, "dm", "777@s.whatsapp.net"),
        "whatsapp:dm:777",
        "whatsapp:bot:dm:777",
    ),
    Row(
        50,
        _address(_W, "dm", None, _KIM_LID),
        f"whatsapp:dm:{_KIM}",
        f"whatsapp:bot:dm:{_KIM}",
    ),
    Row(51, _address(_W, "dm", "@lid", _KIM), f"whatsapp:dm:{_KIM}", f"whatsapp:bot:dm:{_KIM}"),
    Row(
        52,
        _address(_W, "group", _G, f"{_KIM}@s.whatsapp.net"),
        f"whatsapp:group:{_G}:{_KIM}",
        f"whatsapp:bot:group:{_G}:user={_KIM}",
    ),
    Row(
        53,
        _address(_W, "group", _G, _KIM_LID),
        f"whatsapp:group:{_G}:{_KIM}",
        f"whatsapp:bot:group:{_G}:user={_KIM}",
    ),
    Row(
        54,
        _address(_W, "group", _G, _KIM_LID),
        f"whatsapp:group:{_G}",
        f"whatsapp:bot:group:{_G}",
        SHARED_GROUPS,
    ),
    Row(
        57,
        _address(_W, "dm", "status@broadcast"),
        "whatsapp:dm:status",
        "whatsapp:bot:dm:status@broadcast",
    ),
    Row(
        58,
        _address(_C, "dm", _KIM),
        f"whatsapp_cloud:dm:{_KIM}",
        f"whatsapp_cloud:bot:dm:{_KIM}",
    ),
    Row(
        59,
        _address(_C, "dm", f"{_KIM}@s.whatsapp.net"),
        f"whatsapp_cloud:dm:{_KIM}@s.whatsapp.net",
        f"whatsapp_cloud:bot:dm:{_KIM}@s.whatsapp.net",
    ),
]

# Pairs of rows whose relation is another one here, and why.
CHANGED_ON_PURPOSE: Final = {
    (22, 24): "one class for all many-person kinds: a chat whose kind flips stays one",
    (25, 26): "the scope is in the key",
    (31, 32): "the scope is in the key: two workspaces are two customers",
    (1, 39): "the class is folded to lower case",
    (3, 39): "the class is folded to lower case",
    (4, 39): "the class is folded to lower case",
    (6, 39): "the class is folded to lower case",
    (39, 40): "the class is folded to lower case",
}


@pytest.fixture(scope="module")
def book() -> AliasBook:
    """What the older gateway reads from its mapping files."""
    book = AliasBook()
    kim = _address(_W, "dm", None, _KIM)._replace(sender_aliases=(_KIM_LID,))
    lee = _address(_W, "dm", None, "15550000001@s.whatsapp.net")._replace(
        sender_aliases=("88880000000000@lid", "1555001"),
    )
    for person in (kim, lee):
        book.learn(person, datetime(2026, 5, 11, tzinfo=UTC), persons=True)
    return book


def _key(row: Row, book: AliasBook) -> str:
    resolved = book.resolve(row.address, persons=row.address.platform == _W)
    key = session_key(resolved.address, row.rules)
    assert isinstance(key, str)
    return key


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row {row.number}")
def test_key_of_each_row(row: Row, book: AliasBook) -> None:
    expected = row.ours if row.number == 5 else f"main:{row.ours}"

    assert _key(row, book) == f"agent:{expected}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row {row.number}")
def test_key_of_each_row_parses_back(row: Row, book: AliasBook) -> None:
    resolved = book.resolve(row.address, persons=row.address.platform == _W)
    identity = identity_of(resolved.address, row.rules)
    assert isinstance(identity, ParsedKey)
    expected = identity._replace(
        profile="coder" if row.number == 5 else "main",
        platform=identity.platform.lower(),
    )

    assert parse_session_key(_key(row, book)) == expected


def test_rows_share_a_key_exactly_where_they_did(book: AliasBook) -> None:
    differing = {
        (one.number, other.number)
        for one, other in combinations(ROWS, 2)
        if (one.reference == other.reference) != (_key(one, book) == _key(other, book))
    }

    assert set(CHANGED_ON_PURPOSE) == differing


@pytest.mark.parametrize("thread", ["t9", None], ids=["row 11", "rows 12 and 13"])
def test_dm_with_neither_chat_nor_sender_has_no_conversation(thread: str | None) -> None:
    refused = session_key(_address("signal", "dm", None, thread=thread), DEFAULT)

    assert isinstance(refused, NoConversation)
    assert refused.reason is DeadReason.NO_CONVERSATION


def test_anonymous_dm_is_one_lane_per_account_where_that_was_asked_for() -> None:
    anonymous = _address("signal", "dm", None)

    assert session_key(anonymous, ONE_FOR_ALL) == "agent:main:signal:bot:dm:"
    assert session_key(anonymous._replace(account="other"), ONE_FOR_ALL) == (
        "agent:main:signal:other:dm:"
    )


@pytest.mark.parametrize("user", ["bad/id", "bad id@lid"], ids=["row 56", "row 55"])
def test_ids_of_a_strange_form_are_opaque(user: str, book: AliasBook) -> None:
    """The older gateway fails on them; here an id may be any text."""
    resolved = book.resolve(_address(_W, "group", _G, user), persons=True)
    key = session_key(resolved.address, DEFAULT)
    assert isinstance(key, str)

    assert parse_session_key(key).user == user


def test_platform_is_folded_and_ids_are_not() -> None:
    key = session_key(_address("Custom", "group", "AbC", "Ann"), DEFAULT)

    assert key == "agent:main:custom:bot:group:AbC:user=Ann"


def test_account_is_in_the_key() -> None:
    address = _address(_T, "dm", "111")

    assert session_key(address, DEFAULT) != session_key(address._replace(account="b2"), DEFAULT)


@pytest.mark.parametrize(
    ("kind", "is_forum", "thread", "in_key"),
    [
        ("group", False, "41", None),
        ("supergroup", False, "1", None),
        ("supergroup", True, "1", None),
        ("forum", None, "1", None),
        ("supergroup", None, "1", None),
        ("supergroup", True, "10", "10"),
        ("group", None, "5", "5"),
        ("dm", None, "9", "9"),
        ("dm", False, "1", None),
        ("dm", True, "1", "1"),
    ],
)
def test_which_telegram_threads_count(
    kind: str,
    is_forum: bool | None,  # noqa: FBT001
    thread: str,
    in_key: str | None,
) -> None:
    address = _address(_T, kind, "-60", "7", thread)._replace(is_forum=is_forum)
    identity = identity_of(address, DEFAULT)

    assert isinstance(identity, ParsedKey)
    assert identity.thread == in_key


@pytest.mark.parametrize("kind", ["dm", "group", "thread"])
@pytest.mark.parametrize(("is_forum", "thread"), [(False, None), (True, "1"), (None, "1")])
def test_c76_is_forum_counts_on_every_platform(
    kind: str,
    is_forum: bool | None,  # noqa: FBT001
    thread: str | None,
) -> None:
    address = _address("discord", kind, "9", "7", "1")._replace(is_forum=is_forum)
    identity = identity_of(address, DEFAULT)

    assert isinstance(identity, ParsedKey)
    assert identity.thread == thread


@pytest.mark.parametrize(
    ("platform", "kind", "is_forum", "thread", "in_key"),
    [
        ("slack", "dm", None, "1770.01", "1770.01"),
        ("slack", "dm", False, "1770.01", None),
        ("teams", "channel", None, "19:abc@thread.tacv2;messageid=1", None),
        ("teams", "group", True, "0", "0"),
        ("mail", "dm", None, "<a@b.example>", "<a@b.example>"),
        ("telegram", "supergroup", True, "0", "0"),
        ("matrix", "room", False, "$ev:hs", None),
        ("matrix", "room", True, "$ev:hs", "$ev:hs"),
    ],
)
def test_c76_threads_of_other_platforms_follow_the_flag(
    platform: str,
    kind: str,
    is_forum: bool | None,  # noqa: FBT001
    thread: str,
    in_key: str | None,
) -> None:
    rules = KeyRules(group_threads=False)
    address = _address(platform, kind, "9", "7", thread)._replace(is_forum=is_forum)
    identity = identity_of(address, rules)
    assert isinstance(identity, ParsedKey)
    assert identity.thread == in_key
    key = session_key(address, rules)
    assert isinstance(key, str)
    assert parse_session_key(key) == identity


def test_reply_chain_in_a_plain_group_keeps_sessions_private() -> None:
    chain = _address(_T, "group", "-60", "7", "41")._replace(is_forum=False)

    assert session_key(chain, DEFAULT) == "agent:main:telegram:bot:group:-60:user=7"


@pytest.mark.parametrize(
    ("address", "rules", "shared"),
    [
        (_address(_T, "group", "1", "7"), DEFAULT, False),
        (_address(_T, "group", "1"), DEFAULT, True),
        (_address(_T, "group", "1", "7", "5"), DEFAULT, True),
        (_address(_T, "group", "1", "7", "5"), PRIVATE_THREADS, False),
        (_address(_T, "group", "1", "7", "5"), THREADS_ONLY, True),
        (_address(_T, "group", "1", "7"), SHARED_GROUPS, True),
        (_address(_T, "dm", None), ONE_FOR_ALL, True),
        (_address(_T, "dm", "7", "7"), DEFAULT, False),
        (_address(_T, "group", "1", "1087968824"), DEFAULT, True),
        (_address("discord", "group", "1", "1087968824"), DEFAULT, False),
    ],
)
def test_sharing_follows_from_the_key(address: Address, rules: KeyRules, shared: bool) -> None:  # noqa: FBT001
    key = session_key(address, rules)
    assert isinstance(key, str)

    assert is_shared(parse_session_key(key)) is shared


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agent:main:telegram:dm:111",
        "agent:main:telegram:bot:direct:111",
        "agent:main:telegram:bot:dm",
        "agent:main:telegram:bot:dm:111:42",
        "agent:main:telegram:bot:dm:111:user=7",
        "agent:main:telegram:bot:group:1:user=7:thread=5",
        "agent:main:telegram:bot:group:1:user=7:user=8",
        "agent:main:telegram:bot:group:1:user=",
        "agent:default:telegram:bot:dm:111",
        "agent::telegram:bot:dm:111",
        "agent:main:Telegram:bot:dm:111",
        "agent:main:telegram:bot:dm:a%3a",
        "agent:main:telegram:bot:dm:%41",
        "agent:main:telegram:bot:dm:%",
        "agent:main:telegram:bot:dm:%FF",
        "agent:main:telegram:bot:dm:é",
        "agent:main:telegram:bot:dm:111\n",
        "Agent:main:telegram:bot:dm:111",
    ],
)
def test_what_the_grammar_never_writes_is_refused(text: str) -> None:
    with pytest.raises(MalformedKeyError) as caught:
        parse_session_key(text)

    assert text == caught.value.key
    assert text[6:] not in str(caught.value) or not text[6:]


def test_long_ids_fit_an_index_row_or_are_refused() -> None:
    long_id = "é" * 128
    address = _address("custom", "group", long_id, long_id, long_id)
    fits = session_key(address, PRIVATE_THREADS)
    refused = session_key(address._replace(scope=long_id), PRIVATE_THREADS)

    assert isinstance(fits, str)
    assert len(fits) <= MAX_KEY_BYTES
    assert isinstance(refused, NoConversation)
    assert refused.reason is DeadReason.BAD_ID
