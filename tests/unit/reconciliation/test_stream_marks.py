"""What a stream has lost since it was marked."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chatlane.reconciliation.stream_marks import StreamMark, find_loss

NOON = datetime(2026, 5, 11, 12, tzinfo=UTC)
WEEK = timedelta(days=7)
MARK = StreamMark(
    "one@then", "a", 0, first_seq=5, first_at=NOON, last_seq=9, last_at=NOON + timedelta(hours=1)
)
EMPTY = replace(MARK, first_seq=10, last_seq=9)
NEW = replace(MARK, first_seq=1, last_seq=0)
LATER = NOON + timedelta(hours=2)


@pytest.mark.parametrize(
    ("before", "changes", "at_mark", "clock", "loss"),
    [
        (MARK, {}, MARK.last_at, LATER, None),
        (MARK, {"last_seq": 12}, MARK.last_at, LATER, None),
        (MARK, {"host": "b"}, MARK.last_at, LATER, None),
        (MARK, {"generation": "two@now", "last_seq": 12}, MARK.last_at, LATER, "replaced"),
        (NEW, {"generation": "two@now"}, None, LATER, None),
        (MARK, {"last_seq": 8}, None, LATER, "tail_lost"),
        (MARK, {"last_seq": 12}, LATER, LATER, "time_at_mark"),
        (MARK, {"holes": 1}, MARK.last_at, LATER, "holes"),
        (replace(MARK, holes=2), {"holes": 1}, MARK.last_at, LATER, None),
        (MARK, {"first_seq": 7}, MARK.last_at, LATER, "cut_off"),
        (MARK, {"first_seq": 10}, None, LATER, "cut_off"),
        (MARK, {"first_seq": 7}, MARK.last_at, NOON + WEEK, None),
        (MARK, {"first_seq": 7}, MARK.last_at, NOON + WEEK - timedelta(seconds=30), None),
        (EMPTY, {"first_seq": 12, "last_seq": 12}, None, LATER, None),
    ],
)
def test_what_is_lost(
    before: StreamMark,
    changes: dict[str, Any],
    at_mark: datetime | None,
    clock: datetime,
    loss: str | None,
) -> None:
    now = replace(before, **changes)
    found = find_loss(before, now, at_mark=at_mark, max_age=WEEK, clock=clock)
    assert found == loss


def test_where_nothing_goes_by_age_everything_cut_off_is_lost() -> None:
    now = replace(MARK, first_seq=7)
    clock = NOON + 10 * WEEK
    assert find_loss(MARK, now, at_mark=MARK.last_at, max_age=None, clock=clock) == "cut_off"
