"""Why a session has no answer yet, by what is known about its work."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from chatlane.domain.sessions.session_outlook import SessionProgress, TurnProgress, outlook_of

NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOON: Final = NOW + timedelta(seconds=30)
LATER: Final = NOW + timedelta(minutes=5)


def turn(**fields: Any) -> TurnProgress:  # noqa: ANN401 - any field
    ready = TurnProgress(
        agent="main",
        state="ready",
        is_resting=False,
        attempt=0,
        worker=None,
        created_at=NOW,
        claimed_at=None,
        due_at=SOON,
        cancel=None,
        waits_since=None,
        is_asking=False,
    )
    return ready._replace(**fields)


def progress(**fields: Any) -> SessionProgress:  # noqa: ANN401 - any field
    idle = SessionProgress(
        now=NOW,
        ended_at=None,
        end_reason=None,
        suspended_at=None,
        staff_until=None,
        is_streamed=False,
        waiting=0,
        waiting_since=None,
        failed_turns=0,
        agent_pause=None,
        turn=None,
    )
    return idle._replace(**fields)


@pytest.mark.parametrize(
    ("known", "state", "next_at"),
    [
        (progress(), "idle", None),
        (progress(ended_at=NOW, end_reason="idle", turn=turn()), "ended", None),
        (progress(suspended_at=NOW, waiting=1), "suspended", None),
        (progress(is_streamed=True), "streamed", None),
        (progress(waiting=2, waiting_since=NOW), "waiting", None),
        (progress(failed_turns=1), "failed", None),
        (progress(turn=turn()), "unclaimed", SOON),
        (progress(turn=turn(attempt=1)), "retrying", SOON),
        (progress(turn=turn(is_resting=True)), "resting", SOON),
        (progress(turn=turn(is_resting=True), staff_until=LATER), "staff", SOON),
        (progress(turn=turn(), staff_until=NOW), "unclaimed", SOON),
        (progress(turn=turn(waits_since=NOW)), "unavailable", SOON),
        (progress(turn=turn(), agent_pause=LATER), "unavailable", LATER),
        (progress(turn=turn(), agent_pause=NOW), "unclaimed", SOON),
        (progress(turn=turn(state="claimed", worker="w1", attempt=1)), "running", SOON),
        (progress(turn=turn(state="claimed", is_asking=True)), "asking", None),
        (progress(turn=turn(state="claimed", cancel="stopped")), "stopping", SOON),
    ],
)
def test_the_first_reason_that_holds_is_named(
    known: SessionProgress, state: str, next_at: datetime | None
) -> None:
    outlook = outlook_of(known)
    assert (outlook.state, outlook.next_at) == (state, next_at)
    assert outlook.why.endswith(".")
