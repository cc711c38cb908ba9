"""The order in which a session is kept or ended: suspension, interruption, holds, policy.

The rows are those of the gateway that conversations are taken over from; where ours differs, the
row says why.
"""

from datetime import UTC, datetime, timedelta

import pytest

from chatlane.domain.policy import ResetPolicy, SessionClock, reset_reason

NOW = datetime(2026, 7, 10, 12, tzinfo=UTC)
NONE = ResetPolicy()
IDLE = ResetPolicy("idle")
DAILY = ResetPolicy("daily", quiet=timedelta(0))
HELD = NOW + timedelta(hours=1)


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def window(policy: ResetPolicy, span: timedelta) -> ResetPolicy:
    return ResetPolicy(policy.mode, resume_window=span)


@pytest.mark.parametrize(
    ("policy", "clock", "reason"),
    [
        pytest.param(NONE, SessionClock(ago(minutes=5)), None, id="1"),
        pytest.param(IDLE, SessionClock(ago(days=2)), "idle", id="2 and 3"),
        pytest.param(DAILY, SessionClock(ago(hours=10), ago(hours=32)), "daily", id="4"),
        pytest.param(
            NONE, SessionClock(ago(minutes=5), suspended_at=ago(minutes=1)), "suspended", id="5"
        ),
        pytest.param(
            NONE,
            SessionClock(
                ago(minutes=1), suspended_at=ago(minutes=1), resume_marked_at=ago(minutes=1)
            ),
            "suspended",
            id="6",
        ),
        pytest.param(
            NONE, SessionClock(ago(minutes=1), resume_marked_at=ago(seconds=60)), None, id="7"
        ),
        pytest.param(
            NONE, SessionClock(ago(hours=1), resume_marked_at=ago(seconds=3600)), None, id="8"
        ),
        pytest.param(
            NONE,
            SessionClock(ago(hours=1), resume_marked_at=ago(seconds=3601)),
            "resume_pending_expired",
            id="9",
        ),
        # 10, a mark without a time, cannot be: it is set together with its time.
        pytest.param(
            IDLE,
            SessionClock(ago(hours=1), resume_marked_at=ago(seconds=3601)),
            "resume_pending_expired",
            id="11",
        ),
        pytest.param(
            window(IDLE, timedelta(0)),
            SessionClock(ago(hours=1), resume_marked_at=ago(seconds=3601)),
            None,
            id="12",
        ),
        pytest.param(
            window(IDLE, timedelta(minutes=-5)),
            SessionClock(ago(hours=1), resume_marked_at=ago(seconds=3601)),
            None,
            id="13",
        ),
        # 14, a window that is no duration, is refused when the settings are read.
        pytest.param(
            IDLE,
            SessionClock(ago(days=2), resume_marked_at=ago(minutes=4)),
            None,
            id="15, differs: a fresh mark keeps the session, which is what it is for",
        ),
        pytest.param(
            IDLE,
            SessionClock(ago(days=2), resume_marked_at=ago(minutes=4), held_until=HELD),
            None,
            id="16",
        ),
        pytest.param(
            IDLE,
            SessionClock(ago(days=2), resume_marked_at=ago(hours=2), held_until=HELD),
            "resume_pending_expired",
            id="17",
        ),
        pytest.param(
            IDLE,
            SessionClock(ago(days=2), suspended_at=ago(minutes=1), held_until=HELD),
            "suspended",
            id="18",
        ),
        # 19, a session that is replaced on request, is `session.reset`, which ends the old one.
        pytest.param(IDLE, SessionClock(ago(days=2), held_until=HELD), None, id="held"),
        pytest.param(
            IDLE, SessionClock(ago(days=2), held_until=NOW), "idle", id="the hold ends now"
        ),
        pytest.param(IDLE, SessionClock(ago(days=2), has_live_turn=True), None, id="a turn runs"),
        pytest.param(
            IDLE,
            SessionClock(ago(days=2), has_live_turn=True, resume_marked_at=ago(hours=2)),
            None,
            id="it is being answered, so it goes on already",
        ),
        pytest.param(
            IDLE,
            SessionClock(ago(days=2), has_live_turn=True, suspended_at=ago(hours=2)),
            "suspended",
            id="a running turn does not save what was given up",
        ),
    ],
)
def test_the_order_of_what_ends_and_what_keeps_a_session(
    policy: ResetPolicy, clock: SessionClock, reason: str | None
) -> None:
    assert reset_reason(clock, policy, NOW) == reason
