"""Properties of session keys over ids that are made to collide."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.addressing.keys import (
    NoConversation,
    escaped,
    identity_of,
    key_text,
    parse_session_key,
    session_key,
    unescaped,
)
from chatlane.domain.addressing.sources import Address
from chatlane.domain.policy import KeyRules

HOSTILE = ":/|%_. =\0é~@+-!$#&?*>\n\r\t\\\"'{}aA01fF;,\N{KELVIN SIGN}\N{ZERO WIDTH SPACE}😀"
WORDS = [
    "thread=",
    ":thread=1",
    ":user=",
    "user=a",
    ":scope=b",
    "%3A",
    "%3a",
    "dm",
    "group",
    "main",
]

ids = st.one_of(
    st.text(HOSTILE, min_size=1, max_size=4),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map("".join),
    st.text(min_size=1, max_size=20).filter(lambda text: text.isascii() or _encodable(text)),
)
maybe_ids = st.none() | ids
names = st.text("abz019_-", min_size=1, max_size=3)
rules = st.builds(
    KeyRules,
    group_sessions_per_user=st.booleans(),
    thread_sessions_per_user=st.booleans(),
    anonymous_dm=st.sampled_from(["refuse", "shared"]),
)
addresses = st.builds(
    Address,
    platform=st.sampled_from(["telegram", "custom", "a"]),
    account=names,
    scope=maybe_ids,
    profile=st.sampled_from(["main", "sales", "main-"]),
    chat_id=maybe_ids,
    chat_kind=st.sampled_from(["dm", "group", "supergroup", "channel", "forum", "thread"]),
    is_forum=st.none() | st.booleans(),
    thread_id=maybe_ids,
    sender_id=maybe_ids,
    sender_alt_id=maybe_ids,
)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@given(ids)
def test_escaping_is_undone_exactly(text: str) -> None:
    assert text == unescaped(escaped(text))


@given(ids)
def test_an_escaped_value_is_plain_ascii_without_separators(text: str) -> None:
    value = escaped(text)

    assert value.isascii()
    assert value.isprintable()
    assert set(value).isdisjoint(":= /")


@given(addresses, rules)
def test_keys_parse_back_exactly(address: Address, given_rules: KeyRules) -> None:
    key = session_key(address, given_rules)
    if isinstance(key, NoConversation):
        return

    assert identity_of(address, given_rules) == parse_session_key(key)


@given(addresses, addresses, rules)
def test_two_identities_never_share_a_key(
    one: Address, other: Address, given_rules: KeyRules
) -> None:
    same_identity = identity_of(one, given_rules) == identity_of(other, given_rules)
    same_key = session_key(one, given_rules) == session_key(other, given_rules)

    assert same_identity == same_key


@given(addresses, rules, ids)
def test_every_id_that_counts_is_told_apart(
    address: Address, given_rules: KeyRules, other: str
) -> None:
    """Changing one part of an identity changes the key."""
    identity = identity_of(address, given_rules)
    if isinstance(identity, NoConversation):
        return
    for changed in (
        identity._replace(chat=other),
        identity._replace(thread=other),
        identity._replace(user=other),
        identity._replace(scope=other),
    ):
        assert (changed == identity) == (key_text(changed) == key_text(identity))


def test_all_short_pairs_of_chat_and_thread_are_apart() -> None:
    """Separator tricks, exhaustively: 42 ids of up to two characters, as chat and as thread."""
    alphabet = ":/|%=a"
    short = [*alphabet, *map("".join, product(alphabet, repeat=2))]
    keys = {
        session_key(Address("custom", "bot", chat_id=chat, thread_id=thread), KeyRules())
        for chat, thread in product(short, [None, *short])
    }

    assert len(keys) == len(short) * (len(short) + 1)
