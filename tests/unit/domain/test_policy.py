"""When a conversation starts afresh."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from chatlane.domain.policy import (
    ResetMode,
    ResetPolicy,
    SessionClock,
    boundary_before,
    reset_reason,
    served_boundary_at,
)
from chatlane_schemas.events import ResetReason

LITERAL: Final = timedelta(0)


def at(text: str) -> datetime:
    """Return `07-10 12:00` and the like as a time of 2026 in UTC."""
    date, _, clock = text.partition(" ")
    year = date if date.count("-") == 2 else f"2026-{date}"
    return datetime.fromisoformat(f"{year}T{clock or '00:00'}+00:00")


def policy_of(mode: ResetMode, at_hour: int = 4, idle_minutes: int = 1440) -> ResetPolicy:
    return ResetPolicy(mode, at_hour, idle=timedelta(minutes=idle_minutes), quiet=LITERAL)


def clock_of(active_at: datetime, policy: ResetPolicy) -> SessionClock:
    """Return the clock of a session whose only message came at `active_at`."""
    return SessionClock(active_at, served_boundary_at(active_at, policy), active_at)


@pytest.mark.parametrize(
    ("policy", "now", "active_at", "expected"),
    [
        pytest.param(policy_of("none"), "07-10 12:00", "2020-01-01", None, id="row 1"),
        pytest.param(policy_of("idle"), "07-10 11:59:59", "07-09 12:00", None, id="row 2"),
        pytest.param(policy_of("idle"), "07-10 12:00:00", "07-09 12:00", None, id="row 3"),
        pytest.param(policy_of("idle"), "07-10 12:00:00.000001", "07-09 12:00", "idle", id="row 4"),
        pytest.param(
            policy_of("idle", idle_minutes=60), "07-10 12:00", "07-10 11:00", None, id="row 5"
        ),
        pytest.param(
            policy_of("idle", idle_minutes=60), "07-10 12:00:01", "07-10 11:00", "idle", id="row 6"
        ),
        pytest.param(policy_of("idle"), "07-10 12:00", "07-11 12:00", None, id="row 7"),
        pytest.param(policy_of("daily"), "07-10 03:59:59", "07-09 04:00", None, id="row 8"),
        pytest.param(policy_of("daily"), "07-10 03:59:59", "07-09 03:59:59", "daily", id="row 9"),
        pytest.param(
            policy_of("daily"), "07-10 04:00:00", "07-10 03:59:59.999999", "daily", id="row 10"
        ),
        pytest.param(policy_of("daily"), "07-10 04:00:00", "07-10 04:00", None, id="row 11"),
        pytest.param(policy_of("daily"), "07-10 04:30", "07-10 03:30", "daily", id="row 12"),
        pytest.param(policy_of("daily"), "07-10 23:59:59", "07-10 04:00", None, id="row 13"),
        pytest.param(policy_of("daily"), "07-11 03:00", "07-10 05:00", None, id="row 14"),
        pytest.param(policy_of("daily"), "07-11 04:00:01", "07-10 05:00", "daily", id="row 15"),
        pytest.param(policy_of("daily", 0), "07-10 00:00", "07-09 23:59:59", "daily", id="row 16"),
        pytest.param(policy_of("daily", 23), "07-10 22:00", "07-10 21:00", None, id="row 17"),
        pytest.param(policy_of("daily", 23), "07-10 23:00", "07-10 22:59", "daily", id="row 18"),
        pytest.param(policy_of("daily"), "07-10 12:00", "07-11 12:00", None, id="row 19"),
        pytest.param(policy_of("both"), "07-10 05:00", "07-09 03:00", "idle", id="row 20"),
        pytest.param(policy_of("both"), "07-10 05:00", "07-10 03:00", "daily", id="row 21"),
        pytest.param(policy_of("both"), "07-10 05:00", "07-10 04:30", None, id="row 22"),
        pytest.param(
            policy_of("both", idle_minutes=10), "07-10 05:00", "07-10 04:30", "idle", id="row 23"
        ),
    ],
)
def test_deadline_arithmetic_of_the_reference(
    policy: ResetPolicy, now: str, active_at: str, expected: str | None
) -> None:
    assert expected == reset_reason(clock_of(at(active_at), policy), policy, at(now))


def test_running_turn_or_hold_keeps_the_session() -> None:
    """Row 24 of the deadline table."""
    policy = policy_of("both")
    held = clock_of(at("07-09 03:00"), policy)._replace(has_live_turn=True)

    assert reset_reason(held, policy, at("07-10 05:00")) is None


@pytest.mark.parametrize("hour", [24, -1])
def test_hour_that_no_clock_shows_is_refused_at_once(hour: int) -> None:
    """Row 26 of the deadline table: not when a message arrives."""
    with pytest.raises(ValueError, match="0 to 23"):
        ResetPolicy("daily", hour)


def test_unknown_zone_is_refused_at_once() -> None:
    with pytest.raises(KeyError):
        ResetPolicy("daily", timezone="Mars/Olympus")


@pytest.mark.parametrize("mode", ["idle", "daily", "both"])
def test_session_without_any_recorded_time_is_old(mode: ResetMode) -> None:
    reason = reset_reason(SessionClock(), policy_of(mode), at("07-10 12:00"))

    assert reason == ("daily" if mode == "daily" else "idle")


def test_session_that_only_timers_spoke_in_counts_from_its_start() -> None:
    policy = policy_of("idle", idle_minutes=60)
    clock = SessionClock(None, None, at("07-10 09:00"))

    assert reset_reason(clock, policy, at("07-10 10:00")) is None
    assert reset_reason(clock, policy, at("07-10 10:01")) is ResetReason.IDLE


def test_boundary_of_a_session_without_one_follows_from_its_start() -> None:
    policy = policy_of("daily")
    clock = SessionClock(at("07-10 05:00"), None, at("07-10 05:00"))

    assert reset_reason(clock, policy, at("07-11 03:00")) is None
    assert reset_reason(clock, policy, at("07-11 04:00")) is ResetReason.DAILY


@dataclass
class Talk:
    """A session driven the way the router drives it: people's messages in order."""

    policy: ResetPolicy
    clock: SessionClock | None = None
    sessions: int = 0

    def say(self, now: datetime, *, is_busy: bool = False) -> str:
        """Return the letter of the session a message at `now` is in."""
        if self.clock is not None:
            clock = self.clock._replace(has_live_turn=is_busy)
            if reset_reason(clock, self.policy, now) is None:
                self.clock = self.clock._replace(last_activity_at=now)
                return chr(ord("A") + self.sessions)
            self.sessions += 1
        self.clock = SessionClock(now, served_boundary_at(now, self.policy), now)
        return chr(ord("A") + self.sessions)


def test_reset_put_off_by_a_talk_comes_later_the_same_day_and_once() -> None:
    talk = Talk(ResetPolicy("daily"))
    said = [
        talk.say(at(now))
        for now in ("07-10 03:45", "07-10 04:10", "07-10 04:39", "07-10 05:09", "07-10 23:00")
    ]

    assert said == ["A", "A", "A", "B", "B"]


def test_reset_put_off_by_a_running_turn_comes_later_the_same_day() -> None:
    talk = Talk(ResetPolicy("daily"))

    assert talk.say(at("07-10 03:00")) == "A"
    assert talk.say(at("07-10 05:00"), is_busy=True) == "A"
    assert talk.say(at("07-10 05:30")) == "B"
    assert talk.say(at("07-11 03:59")) == "B"
    assert talk.say(at("07-11 04:30")) == "C"


def test_another_hour_brings_no_second_reset_on_a_day_that_had_one() -> None:
    talk = Talk(policy_of("daily", 4))
    talk.say(at("07-09 12:00"))

    assert talk.say(at("07-10 04:00")) == "B"
    talk.policy = policy_of("daily", 10)
    assert talk.say(at("07-10 11:00")) == "B"
    assert talk.say(at("07-11 11:00")) == "C"


def test_another_zone_brings_no_second_reset_on_a_day_that_had_one() -> None:
    talk = Talk(replace(policy_of("daily", 4), timezone="Asia/Tokyo"))
    talk.say(at("07-10 12:00"))

    assert talk.say(at("07-10 19:00")) == "B"
    talk.policy = replace(policy_of("daily", 4), timezone="Europe/Berlin")
    assert talk.say(at("07-11 02:30")) == "C"
    assert talk.say(at("07-11 23:59")) == "C"


def test_case_c22_the_hour_is_read_in_the_zone_of_the_policy() -> None:
    for quiet in (LITERAL, timedelta(minutes=30)):
        talk = Talk(ResetPolicy("daily", 4, "Asia/Shanghai", quiet=quiet))
        said = [
            talk.say(at(now))
            for now in ("05-10 15:00", "05-10 19:30", "05-10 20:10", "05-11 04:05", "05-11 19:00")
        ]

        assert said == ["A", "A", "B", "B", "B"]


CASE_C23: Final = (
    "09-05 18:27",
    "09-06 08:58",
    "09-06 09:06",
    "09-06 09:10",
    "09-06 09:13",
    "09-07 01:59",
    "09-07 02:01",
)


@pytest.mark.parametrize(
    ("quiet", "last"), [(LITERAL, "D"), (timedelta(minutes=30), "C")], ids=["literal", "default"]
)
def test_case_c23_the_first_message_after_the_hour_resets_once(quiet: timedelta, last: str) -> None:
    """Only the literal rule cuts a talk in progress at 04:00."""
    policy = ResetPolicy("both", 4, "Europe/Zurich", timedelta(minutes=600), quiet)
    talk = Talk(policy)

    assert [talk.say(at(now)) for now in CASE_C23] == [*"ABBBBC", last]


def test_case_c24_silence_counts_from_what_a_person_said() -> None:
    """Timers at 09:20, 09:50 and 10:20 are no activity, so they are not on the clock."""
    talk = Talk(policy_of("idle", idle_minutes=60))

    assert talk.say(at("05-11 09:00")) == "A"
    assert talk.say(at("05-11 10:30")) == "B"


def test_case_c25_neither_a_restart_nor_a_wrong_clock_makes_a_session_immortal() -> None:
    policy = policy_of("both", idle_minutes=60)
    old = clock_of(at("05-08 10:00"), policy)
    wrong_phone = clock_of(at("05-11 09:00"), policy)

    assert reset_reason(old, policy, at("05-11 09:05")) is ResetReason.IDLE
    assert reset_reason(wrong_phone, policy, at("05-11 11:00")) is ResetReason.IDLE


def test_times_of_any_zone_are_understood() -> None:
    policy = policy_of("daily")
    now = datetime(2026, 7, 10, 1, 30, tzinfo=ZoneInfo("Asia/Tokyo"))

    assert boundary_before(now, policy) == at("07-09 04:00")
