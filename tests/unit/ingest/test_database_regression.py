"""When what a database says shows that it has forgotten something."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from chatlane.domain.log import PartitionId
from chatlane.ingest.database_regression import HeartbeatCheck, KnownPosition, has_moved_back
from chatlane.store.logs.partitions import PartitionOwner
from chatlane.store.logs.routers import Heartbeat

NOON = datetime(2026, 5, 11, 12, tzinfo=UTC)
FIRST, SECOND = PartitionId("inbound", 0), PartitionId("results", 3)
KNOWN = {FIRST: KnownPosition(4, 100), SECOND: KnownPosition(9, 0)}


def holding(partition: PartitionId, epoch: int, cursor: int) -> PartitionOwner:
    return PartitionOwner(partition, uuid4(), epoch, 1.0, cursor=cursor)


@pytest.mark.parametrize(
    ("epoch", "cursor", "is_back"),
    [
        (4, 100, False),
        (4, 101, False),
        (4, 99, True),
        (3, 100, True),
        (3, 250, True),
        # A log that was replaced is read from its start, under the next epoch.
        (5, 0, False),
        (7, 99, False),
    ],
)
def test_a_partition_that_stands_before_what_was_committed(
    epoch: int,
    cursor: int,
    is_back: bool,  # noqa: FBT001
) -> None:
    rows = [holding(SECOND, 9, 0), holding(FIRST, epoch, cursor)]
    assert has_moved_back(KNOWN, rows) is is_back


def test_partitions_that_are_not_known_say_nothing() -> None:
    assert not has_moved_back({}, [holding(FIRST, 1, 0)])
    assert not has_moved_back(KNOWN, [])


def beat(written: float, found: float | None) -> Heartbeat:
    at = NOON + timedelta(seconds=written)
    return Heartbeat(at, None if found is None else NOON + timedelta(seconds=found))


def test_a_sign_of_life_that_was_forgotten() -> None:
    check = HeartbeatCheck()
    assert not check.is_behind(beat(0, None), 0), "the first one"
    assert not check.is_behind(beat(1, 0), 1)
    # One in between may have been committed without an answer.
    assert not check.is_behind(beat(3, 2), 3)
    assert check.is_behind(beat(4, 2.5), 4)
    assert not check.is_behind(beat(5, 4), 5), "what is known now is what it says now"
    assert check.is_behind(beat(6, None), 6), "the row of this router was forgotten whole"


def test_a_row_that_was_deleted_after_a_long_pause_was_not_forgotten() -> None:
    check = HeartbeatCheck()
    check.is_behind(beat(0, None), 0)
    assert not check.is_behind(beat(900, None), 900)


def test_nothing_is_expected_after_a_withdrawal() -> None:
    check = HeartbeatCheck()
    check.is_behind(beat(10, None), 0)
    check.forget()
    assert not check.is_behind(beat(20, 5), 10)
