"""Who gives room back when a log is filling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.limits.shares import SharedStream, bytes_to_trim, owner_of

holdings = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 10_000))


@pytest.mark.parametrize(
    ("log", "subject", "expected"),
    [
        ("inbound", "chat.v1.log.7.telegram.main.0123456789abcdef", "telegram/main"),
        ("inbound", "chat.v1.log.31.web-chat.desk_2.none", "web-chat/desk_2"),
        ("results", "chat.v1.rlog.0.main.0196f0a0-0000-7000-8000-000000000000", "main"),
        ("outbound", "chat.v1.outbound.telegram.main.0123456789abcdef", "telegram/main"),
        ("routed", "chat.v1.routed.main.7.0196f0a0-0000-7000-8000-000000000000", "main"),
        ("routed", "chat.v1.routed.main", ""),
        ("turns", "chat.v1.turn.main", "main"),
        ("inbound", "chat.v1.log.0.telegram", ""),
        ("results", "chat.v1.rlog.0", ""),
        ("results", "", ""),
        ("outbound", "chat.v1.outbound.telegram", ""),
        ("inbound", "a.b.c.d.e.f", ""),
    ],
)
def test_the_owner_of_a_message_is_in_its_subject(
    log: SharedStream, subject: str, expected: str
) -> None:
    assert owner_of(log, subject) == expected


def test_only_the_largest_gives_while_that_is_enough() -> None:
    assert bytes_to_trim({"big": 900, "small": 50, "middle": 300}, 500) == {"big": 500}


def test_the_largest_are_cut_down_to_the_same_size() -> None:
    assert bytes_to_trim({"big": 900, "middle": 500, "small": 100}, 800) == {
        "big": 600,
        "middle": 200,
    }


def test_nothing_goes_without_an_excess() -> None:
    assert bytes_to_trim({"big": 900}, 0) == {}
    assert bytes_to_trim({"big": 900}, -5) == {}
    assert bytes_to_trim({}, 100) == {}


@given(holdings, st.integers(1, 50_000))
def test_enough_goes_and_nobody_small_pays(held: dict[str, int], excess: int) -> None:
    trimmed = bytes_to_trim(held, excess)
    assert sum(trimmed.values()) >= min(excess, sum(held.values()))
    assert sum(trimmed.values()) < excess + max(1, len(held)), "no more than rounding asks for"
    left = {name: size - trimmed.get(name, 0) for name, size in held.items()}
    assert min(left.values(), default=0) >= 0
    kept_all = [size for name, size in held.items() if name not in trimmed]
    assert all(size <= left[name] for name in trimmed for size in kept_all)
