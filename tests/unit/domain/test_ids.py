"""Ids that follow from what caused them."""

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Final
from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.ids import derived_id, time_of

AT: Final = datetime(2026, 5, 11, 9, 0, 0, 123456, tzinfo=UTC)


def test_same_cause_gives_the_same_id() -> None:
    """The value is written down: it must never change between releases."""
    expected = UUID("019e1643-c2fb-8c82-a8f5-c18e40f7bf62")

    assert expected == derived_id(AT, b"trigger", "session")


def test_different_causes_give_different_ids() -> None:
    triggers, effects, numbers = (b"a", b"ab", b"b"), ("", "a", "ab", "b"), (0, 1, 10)
    derived = {derived_id(AT, *cause) for cause in product(triggers, effects, numbers)}

    assert len(derived) == len(triggers) * len(effects) * len(numbers)


times = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001
    max_value=datetime(9999, 12, 31),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@given(times, st.binary(max_size=40), st.text(max_size=10), st.integers(0, 99))
def test_version_variant_and_time_are_in_their_places(
    at: datetime, trigger: bytes, effect: str, n: int
) -> None:
    derived = derived_id(at, trigger, effect, n)

    assert derived.version == 8
    assert derived.variant == RFC_4122
    assert timedelta(0) <= at - time_of(derived) < timedelta(milliseconds=1)


def test_ids_sort_by_time() -> None:
    later = AT + timedelta(milliseconds=1)

    assert str(derived_id(AT, b"z", "x")) < str(derived_id(later, b"a", "x"))


def test_time_before_the_epoch_does_not_fail() -> None:
    assert time_of(derived_id(datetime(1969, 1, 1, tzinfo=UTC), b"", "")).year == 1970
