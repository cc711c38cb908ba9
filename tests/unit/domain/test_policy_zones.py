"""Daily boundaries where clocks jump, against a definition that only looks at the clock."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatlane.domain.policy import (
    ResetPolicy,
    SessionClock,
    boundary_before,
    reset_reason,
    served_boundary_at,
)
from chatlane_schemas.events import ResetReason

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
SPRING_MIDNIGHTS: Final = ["America/Havana", "Africa/Cairo", "Asia/Beirut"]

# Midnight that does not exist or comes twice, gaps at two, half-hour steps, a gap up to
# midnight, a step at one minute past midnight, a date that was skipped, half-hour offsets.
ZONES: Final = [
    *SPRING_MIDNIGHTS,
    "Europe/Berlin",
    "America/New_York",
    "Asia/Gaza",
    "Australia/Lord_Howe",
    "America/Nuuk",
    "America/St_Johns",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "UTC",
]


def daily(zone: str, hour: int) -> ResetPolicy:
    return ResetPolicy("daily", hour, zone, quiet=timedelta(0))


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("zone", "hour", "now", "expected"),
    [
        pytest.param(
            "America/Havana", 0, utc(2026, 3, 8, 12), utc(2026, 3, 8, 5), id="no midnight"
        ),
        pytest.param(
            "America/Havana", 0, utc(2026, 11, 1, 12), utc(2026, 11, 1, 4), id="midnight twice"
        ),
        pytest.param(
            "America/Havana", 0, utc(2026, 11, 1, 5), utc(2026, 11, 1, 4), id="second midnight"
        ),
        pytest.param("Africa/Cairo", 0, utc(2026, 4, 24, 9), utc(2026, 4, 23, 22), id="Cairo"),
        pytest.param("Asia/Beirut", 0, utc(2026, 3, 29, 9), utc(2026, 3, 28, 22), id="Beirut"),
        pytest.param("Europe/Berlin", 2, utc(2026, 3, 29, 9), utc(2026, 3, 29, 1), id="gap at 2"),
        pytest.param(
            "Europe/Berlin", 2, utc(2026, 10, 25, 9), utc(2026, 10, 25, 0), id="fold at 2"
        ),
        pytest.param("Europe/Berlin", 4, utc(2026, 3, 29, 1), utc(2026, 3, 28, 3), id="day before"),
        pytest.param(
            "Australia/Lord_Howe", 2, utc(2026, 10, 4, 0), utc(2026, 10, 3, 15, 30), id="half hour"
        ),
        pytest.param(
            "America/Nuuk", 23, utc(2026, 3, 29, 12), utc(2026, 3, 29, 1), id="gap to midnight"
        ),
        pytest.param(
            "Pacific/Apia", 4, utc(2011, 12, 30, 12), utc(2011, 12, 29, 14), id="skipped date"
        ),
        pytest.param(
            "America/St_Johns", 0, utc(2010, 11, 7, 3), utc(2010, 11, 7, 2, 30), id="step at 00:01"
        ),
    ],
)
def test_where_the_boundary_falls(zone: str, hour: int, now: datetime, expected: datetime) -> None:
    assert expected == boundary_before(now, daily(zone, hour))


@cache
def transitions(zone: str, first: int, last: int) -> tuple[datetime, ...]:
    """Return the UTC days around which the offset of a zone changes."""
    at, end = utc(first, 1, 1), utc(last, 12, 31)
    info = ZoneInfo(zone)
    found = []
    offset = at.astimezone(info).utcoffset()
    while at < end:
        at += DAY
        if at.astimezone(info).utcoffset() != offset:
            offset = at.astimezone(info).utcoffset()
            found.append(at)
    return tuple(found)


def wall_clock(zone: str, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Return what the clocks of a zone show every quarter of an hour."""
    info = ZoneInfo(zone)
    steps = (end - start) // (HOUR / 4)
    instants = (start + step * HOUR / 4 for step in range(steps))
    return [(instant, instant.astimezone(info).replace(tzinfo=None)) for instant in instants]


def boundaries_by_definition(
    shown: list[tuple[datetime, datetime]], hour: int
) -> dict[date, datetime]:
    """Return, for each date the clocks show, when they first show its hour or later."""
    dates = {wall.date() for _, wall in shown}
    found: dict[date, datetime] = {}
    for day in dates:
        hour_of_day = datetime.combine(day, datetime.min.time()) + hour * HOUR
        for instant, wall in shown:
            if wall >= hour_of_day:
                found[day] = instant
                break
    return found


def distinct_zones() -> list[str]:
    """Return one zone for each set of rules that changes clocks between 2024 and 2030."""
    by_rules = {}
    for zone in sorted(available_timezones()):
        changes = transitions(zone, 2024, 2030)
        if changes:
            offsets = tuple(change.astimezone(ZoneInfo(zone)).utcoffset() for change in changes)
            by_rules[changes, offsets] = zone
    return sorted(by_rules.values())


def check_around(zone: str, change: datetime, hours: Iterable[int]) -> None:
    """Compare every boundary of the days around a change with its definition."""
    shown = wall_clock(zone, change - 4 * DAY, change + 3 * DAY)
    checked = [instant for instant, _ in shown if abs(instant - change) <= 2 * DAY]
    for hour in hours:
        expected = sorted(boundaries_by_definition(shown, hour).values())
        policy = daily(zone, hour)
        boundaries = {boundary_before(instant, policy) for instant in checked[::2]}
        first, last = min(boundaries), max(boundaries)
        assert [at for at in expected if first <= at <= last] == sorted(boundaries), (zone, hour)


def test_every_zone_around_its_changes_until_2030() -> None:
    """Each set of rules, every change, at the hours near which clocks are set."""
    for zone in distinct_zones():
        for change in transitions(zone, 2024, 2030):
            check_around(zone, change, (0, 1, 2, 3, 23))


@pytest.mark.parametrize("zone", ZONES)
def test_every_hour_in_zones_with_odd_rules(zone: str) -> None:
    for change in transitions(zone, 2024, 2027):
        check_around(zone, change, range(24))


@pytest.mark.parametrize(
    ("zone", "year"), [("Pacific/Apia", 2011), ("America/Nuuk", 2023), ("Asia/Pyongyang", 2018)]
)
def test_every_hour_in_years_with_odd_changes(zone: str, year: int) -> None:
    for change in transitions(zone, year, year):
        check_around(zone, change, range(24))


def test_date_that_does_not_exist_has_no_boundary() -> None:
    """In Samoa the day after 29 December 2011 was the 31st."""
    for hour in range(24):
        policy = daily("Pacific/Apia", hour)
        start = utc(2011, 12, 28)
        boundaries = {boundary_before(start + step * HOUR, policy) for step in range(24 * 6)}
        spans = [
            later - earlier
            for earlier, later in zip(sorted(boundaries), sorted(boundaries)[1:], strict=False)
        ]
        assert all(span == DAY for span in spans), hour


def test_boundary_is_the_same_whatever_zone_the_process_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = utc(2026, 5, 10, 20, 10)
    expected = boundary_before(now, daily("Asia/Shanghai", 4))
    for zone in ("America/New_York", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        assert expected == boundary_before(now, daily("Asia/Shanghai", 4))
    assert expected == utc(2026, 5, 10, 20)


STARTS: Final = [
    utc(2010, 11, 5),
    utc(2011, 12, 28),
    utc(2026, 3, 6),
    utc(2026, 3, 27),
    utc(2026, 4, 22),
    utc(2026, 10, 23),
    utc(2026, 10, 30),
]


@st.composite
def traffic(draw: st.DrawFn) -> list[datetime]:
    """Messages of a few days, at any minute, around a time when clocks may jump."""
    start = draw(st.sampled_from(STARTS))
    minutes = draw(st.lists(st.integers(0, 6 * 24 * 60), min_size=1, max_size=60))
    return [start + timedelta(minutes=minute) for minute in sorted(minutes)]


def resets(messages: list[datetime], policy: ResetPolicy) -> list[datetime]:
    """Return the times of the messages that opened a new session."""
    found = []
    clock: SessionClock | None = None
    for now in messages:
        if clock is not None and reset_reason(clock, policy, now) is ResetReason.DAILY:
            found.append(now)
            clock = None
        if clock is None:
            clock = SessionClock(now, served_boundary_at(now, policy), now)
        clock = SessionClock(now, clock.served_boundary, clock.started_at)
    return found


@settings(max_examples=300, deadline=None)
@given(traffic(), st.sampled_from(ZONES), st.integers(0, 23))
def test_one_daily_reset_for_each_date_with_traffic_on_both_sides(
    messages: list[datetime], zone: str, hour: int
) -> None:
    """Never two for one date; a date that does not exist has none."""
    first = messages[0].replace(hour=0, minute=0)
    shown = wall_clock(zone, first - 3 * DAY, messages[-1] + 3 * DAY)
    boundaries = sorted(boundaries_by_definition(shown, hour).items(), key=lambda item: item[1])
    found = resets(messages, daily(zone, hour))

    for (_, before), (day, boundary), (_, after) in zip(
        boundaries, boundaries[1:], boundaries[2:], strict=False
    ):
        talked_before = any(before <= now < boundary for now in messages)
        talked_after = any(boundary <= now < after for now in messages)
        of_this_date = [now for now in found if boundary <= now < after]
        assert len(of_this_date) <= 1, day
        if talked_before and talked_after:
            assert len(of_this_date) == 1, day
            assert of_this_date[0] == min(now for now in messages if now >= boundary)
