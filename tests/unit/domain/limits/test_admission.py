"""Buckets: so many at once, so many per span in the long run, whoever counts and when."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.catalog import Limit, Limits
from chatlane.domain.limits.message_limits import Bucket, counters

START = datetime(2026, 5, 11, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

limits = st.builds(Limit, st.integers(1, 20), st.timedeltas(timedelta(seconds=1), MINUTE))
moments = st.lists(st.integers(0, 300_000), max_size=60).map(
    lambda its: [START + timedelta(milliseconds=one) for one in sorted(its)]
)


def let_in(limit: Limit, times: list[datetime]) -> list[datetime]:
    bucket = Bucket(b"")
    found = []
    for time in times:
        if bucket.has_room(limit, time):
            bucket.take(limit, time)
            found.append(time)
    return found


@given(limits, moments)
def test_no_span_lets_in_more_than_a_full_bucket_and_what_flowed_in(
    limit: Limit, times: list[datetime]
) -> None:
    found = let_in(limit, times)
    for first, begin in enumerate(found):
        for last, end in enumerate(found[first:], first):
            flowed = (end - begin) / (limit.per // limit.messages)
            assert last - first + 1 <= limit.messages + flowed + 0.01


@given(limits, moments)
def test_who_keeps_to_the_limit_is_never_refused(limit: Limit, times: list[datetime]) -> None:
    step = limit.per // limit.messages
    slow = [START + number * step for number, _ in enumerate(times)]
    assert let_in(limit, slow) == slow


@given(limits)
def test_a_burst_of_the_whole_limit_is_let_in(limit: Limit) -> None:
    assert len(let_in(limit, [START] * (limit.messages + 5))) == limit.messages


def test_a_clock_that_steps_back_gives_nothing_away() -> None:
    limit = Limit(2, MINUTE)
    assert let_in(limit, [START, START, START - MINUTE, START - 2 * MINUTE]) == [START, START]


def test_it_is_said_once_in_a_window() -> None:
    bucket, limit = Bucket(b""), Limit(2, MINUTE)
    said = [bucket.may_tell(limit, START + n * timedelta(seconds=20)) for n in range(5)]
    assert said == [True, False, False, True, False]


def test_no_two_places_share_a_bucket() -> None:
    both = Limits(Limit(1, MINUTE), Limit(1, MINUTE))
    places = [
        ("a", "b", "c", "d"),
        ("a", "bc", "", "d"),
        ("ab", "", "c", "d"),
        ("a", "b", "d", "c"),
    ]
    keys = [its.key for place in places for its in counters(both, *place)]
    assert len(set(keys)) == len(keys) == 8
    assert len(counters(both, "a", "b", "c", None)) == 1
    assert {len(key) for key in keys} == {16}
