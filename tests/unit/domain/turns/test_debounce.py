"""How long a turn rests before anybody is told of it."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.effects import Effects
from chatlane.domain.ids import derived_id
from chatlane.domain.states import Session, Turn
from chatlane.domain.turns.claims import (
    LONGEST_BURST,
    WaitingHead,
    claimable,
    defer,
    extend,
    rest_of_line,
)
from chatlane.domain.turns.lifecycle import (
    open_turn,
    repeat_notice,
)
from chatlane_schemas.source import Source

AT = datetime(2026, 5, 11, 9, tzinfo=UTC)
SOURCE = Source.model_validate({"platform": "telegram", "account": "bot"})


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def turn(rest: str | None = None) -> Turn:
    return Turn(derived_id(AT, b"x", "turn"), UUID(int=1), "main", "ready", rest=rest)


def head(
    ready_in: float = 0, *, awaits_files: bool = False, album: str | None = None
) -> WaitingHead:
    return WaitingHead(
        1,
        "a",
        10,
        SOURCE,
        album=None if album is None else (album, "701"),
        ready_in=seconds(ready_in),
        awaits_files=awaits_files,
    )


def test_nobody_is_told_of_a_turn_that_rests() -> None:
    session = Session(UUID(int=1), "k", "main", "telegram", AT)
    effects = Effects()
    one = open_turn(session, AT, b"digest", effects, rest=seconds(3))
    assert not effects.publications
    assert (one.rest, one.due_in, one.dispatch) == ("resting", seconds(3), 0)
    assert effects.next_due == seconds(3)
    repeat_notice(one, effects)
    assert one.rest == "rested"
    assert [row.message_id for row in effects.publications] == [f"turn:{one.id}:1"]
    assert one.due_in == seconds(3)


@pytest.mark.parametrize(
    ("heads", "rest", "span"),
    [
        ([], None, 0),
        ([head()], None, 0),
        ([head(0.3), head(0.5)], None, 0.5),
        ([head(0.3), head(0.5)], "resting", 0.5),
        ([head(0.3), head(0.5)], "rested", 0),
        ([head(5, awaits_files=True), head(0.5)], "rested", 5),
        ([head(0, awaits_files=True), head()], "rested", 0),
        ([head(), head(5, awaits_files=True)], None, 0),
        ([head(album="A"), head(5, awaits_files=True, album="A")], "rested", 5),
        ([head(album="A"), head(5, awaits_files=True, album="B")], "rested", 0),
        ([head(album="A"), head(0, awaits_files=True, album="A")], "rested", 0),
        ([head(3600)], None, LONGEST_BURST.total_seconds()),
    ],
)
def test_a_claim_that_comes_too_early_is_sent_away(
    heads: list[WaitingHead], rest: str | None, span: float
) -> None:
    assert rest_of_line(heads, turn(rest)) == seconds(span)


def test_a_turn_that_is_put_off_rests() -> None:
    one = turn("rested")
    defer(one, seconds(4))
    assert (one.rest, one.due_in) == ("resting", seconds(4))


@given(
    gaps=st.lists(st.integers(0, 2000), max_size=30),
    span=st.integers(1, 3000),
    cap=st.integers(3000, 10_000),
)
def test_a_burst_ends_a_span_after_its_last_message_and_never_later_than_its_cap(
    gaps: list[int], span: int, cap: int
) -> None:
    one = turn("resting")
    one.due_in = timedelta(milliseconds=span)
    at = AT
    for gap in gaps:
        at += timedelta(milliseconds=gap)
        before = one.due_in
        extend(one, at, timedelta(milliseconds=span), timedelta(milliseconds=cap))
        assert one.due_in >= before
    last = at - AT + timedelta(milliseconds=span)
    assert one.due_in == max(timedelta(milliseconds=span), min(last, timedelta(milliseconds=cap)))


def test_a_turn_ends_before_a_message_without_its_files() -> None:
    heads = [head(), head(), head(5, awaits_files=True), head()]
    assert list(claimable(heads, max_messages=50, max_bytes=1000)) == heads[:2]
    heads[2] = head(0, awaits_files=True)
    assert list(claimable(heads, max_messages=50, max_bytes=1000)) == heads


def test_a_turn_ends_before_an_album_whose_files_are_not_all_there() -> None:
    heads = [head(), head(album="A"), head(5, awaits_files=True, album="A"), head(album="A")]
    assert list(claimable(heads, max_messages=50, max_bytes=1000)) == heads[:1]
    heads[2] = head(0, awaits_files=True, album="A")
    assert list(claimable(heads, max_messages=50, max_bytes=1000)) == heads
