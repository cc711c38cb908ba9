"""What another bot may say, as pure decisions; how it meets the database is told by C38."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.catalog import Limit
from chatlane.domain.limits.message_limits import (
    Bots,
    chat_of,
    chats_to_ask_for,
    pair_of,
    range_of,
)

START = datetime(2026, 5, 11, 9, tzinfo=UTC)
LIMIT = Limit(5, timedelta(minutes=1))
KEY = "agent:main:discord:bot:group:111:user=OTHER:scope=g"
PAIR = pair_of(KEY, "OTHER", LIMIT)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def heard(bots: Bots, *seconds: float) -> list[str]:
    return [bots.hear(PAIR, KEY, after(one)) for one in seconds]


def test_the_first_too_many_is_told_and_the_others_are_not() -> None:
    assert heard(Bots(), *range(8)) == ["heard"] * 5 + ["silenced", "unheard", "unheard"]


def test_a_new_span_begins_when_the_old_one_is_over_and_all_was_heard() -> None:
    assert heard(Bots(), *range(0, 240, 12)) == ["heard"] * 20


def test_a_person_counts_who_spoke_after_the_span_began() -> None:
    bots = Bots()
    bots.hear_person(KEY, after(-1))
    assert heard(bots, *range(6))[-1] == "silenced"
    bots.hear_person("agent:main:discord:bot:group:111:thread=5:scope=g", after(6))
    assert heard(bots, 7) == ["heard"]


@given(pauses=st.lists(st.floats(0, 59.9), min_size=1, max_size=60))
def test_who_never_is_quiet_is_never_heard_again(pauses: list[float]) -> None:
    bots = Bots()
    assert heard(bots, *range(6))[-1] == "silenced"
    seconds = 5.0
    for pause in pauses:
        seconds += pause
        assert heard(bots, seconds) == ["unheard"]


@given(seconds=st.lists(st.floats(0, 600), max_size=80))
def test_no_span_has_more_than_two_budgets(seconds: list[float]) -> None:
    """Two, where one span ends and the next one begins."""
    said = sorted(seconds)
    outcomes = heard(Bots(), *said)
    times = [at for at, outcome in zip(said, outcomes, strict=True) if outcome == "heard"]
    for begin in times:
        assert sum(begin <= one < begin + 60 for one in times) <= 2 * LIMIT.messages


def test_people_are_asked_for_where_it_matters_only() -> None:
    said = [(PAIR, KEY)] * 5
    assert chats_to_ask_for(said, {}) == set()
    assert chats_to_ask_for([*said, (PAIR, KEY)], {}) == {chat_of(KEY)}
    bots = Bots()
    heard(bots, 0)
    assert chats_to_ask_for(said, bots.spent) == {chat_of(KEY)}


@pytest.mark.parametrize("scope", ["", ":scope=g"])
def test_the_lanes_of_a_chat_are_a_range(scope: str) -> None:
    whole = f"agent:main:discord:bot:group:111{scope}"
    found = range_of(chat_of(f"agent:main:discord:bot:group:111:thread=5:user=7{scope}"))
    assert (found.prefix, found.suffix) == ("agent:main:discord:bot:group:111", scope)
    assert found.prefix + found.suffix == whole
