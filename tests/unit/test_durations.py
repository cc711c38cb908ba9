from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("2ms", timedelta(milliseconds=2)),
        ("24h", timedelta(hours=24)),
        ("1h30m", timedelta(minutes=90)),
        ("1h 30m", timedelta(minutes=90)),
        ("1.5s", timedelta(milliseconds=1500)),
        ("250us", timedelta(microseconds=250)),
        ("7d", timedelta(days=7)),
        ("0s", timedelta(0)),
        ("PT30S", timedelta(seconds=30)),
        ("P1DT2H", timedelta(hours=26)),
        ("30", timedelta(seconds=30)),
        (" 30 ", timedelta(seconds=30)),
        (30, timedelta(seconds=30)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(minutes=1), timedelta(minutes=1)),
    ],
)
def test_duration_is_read_in_every_form(written: object, expected: timedelta) -> None:
    assert parse_duration(written) == expected


@pytest.mark.parametrize(
    "written", ["", "soon", "30 seconds", "s", "1x", "1s2", "P", "00:30", True, None, [1], 1e300]
)
def test_other_values_are_refused_with_a_hint(written: object) -> None:
    with pytest.raises(ValueError, match="write a duration as"):
        parse_duration(written)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_formatted_duration_reads_back(span: timedelta) -> None:
    assert parse_duration(format_duration(span)) == span
