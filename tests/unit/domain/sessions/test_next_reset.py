"""The next reset is the first moment at which silence ends a conversation."""

from datetime import UTC, datetime, timedelta
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.policy import (
    ResetMode,
    ResetPolicy,
    SessionClock,
    next_reset,
    reset_reason,
    served_boundary_at,
)

MINUTE = timedelta(minutes=1)
START = datetime(2026, 3, 28, tzinfo=UTC)


@given(
    mode=st.sampled_from(get_args(ResetMode)),
    zone=st.sampled_from(("UTC", "Europe/Berlin", "America/New_York")),
    at_hour=st.integers(0, 23),
    idle=st.sampled_from((10, 60, 1440, 4320)),
    quiet=st.sampled_from((0, 30, 600)),
    active=st.integers(0, 3000),
    waited=st.integers(0, 3000),
)
def test_it_is_the_first_moment_at_which_a_message_would_reset(  # noqa: PLR0917
    mode: ResetMode, zone: str, at_hour: int, idle: int, quiet: int, active: int, waited: int
) -> None:
    policy = ResetPolicy(mode, at_hour, zone, idle * MINUTE, quiet * MINUTE)
    active_at = START + active * MINUTE
    clock = SessionClock(active_at, served_boundary_at(START, policy), START)
    now = active_at + waited * MINUTE
    due = next_reset(clock, policy, now)
    minutes = (now + ahead * MINUTE for ahead in range(2 * 1440))
    first = next((at for at in minutes if reset_reason(clock, policy, at) is not None), None)
    if due is None:
        assert first is None
    elif first is not None:
        assert due.at <= first <= due.at + MINUTE
        assert reset_reason(clock, policy, due.at + timedelta(microseconds=1)) is not None
    else:
        assert due.at >= now + 2 * 1440 * MINUTE - MINUTE
