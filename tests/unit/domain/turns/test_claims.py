"""Who gets a turn, and who may keep it."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent
from chatlane.domain.states import Turn
from chatlane.domain.turns.claims import (
    answer_again,
    claim_status,
    grant,
    is_granted,
    renew,
)

AGENT = Agent("main", lease=timedelta(seconds=30))
LEASE = timedelta(seconds=30)


def turn(state: str = "ready", **fields: object) -> Turn:
    return Turn(UUID(int=1), UUID(int=2), "main", state, **fields)  # type: ignore[arg-type]


def claimed() -> Turn:
    one = turn()
    grant(one, claim_id="c1", worker="w1", token="t1", lease=LEASE)  # noqa: S106 - a made-up one
    return one


@pytest.mark.parametrize(
    ("one", "status"),
    [
        (None, "unknown"),
        (turn(), "claimed"),
        (turn("claimed", claim_id="c1"), "claimed"),
        (turn("claimed", claim_id="c2"), "taken"),
        (turn("ready", claim_id="c2", attempt=1), "claimed"),
        (turn("done", claim_id="c1"), "finished"),
        (turn("failed"), "finished"),
        (turn("void"), "void"),
    ],
)
def test_a_claim_is_answered_by_the_state_of_the_turn(one: Turn | None, status: str) -> None:
    assert claim_status(one, "main", "c1") == status


@pytest.mark.parametrize("state", ["ready", "claimed", "done", "failed", "void"])
def test_another_agent_learns_nothing_of_a_turn(state: str) -> None:
    assert claim_status(turn(state, claim_id="c1"), "other", "c1") == "unknown"
    assert renew(turn(state), Agent("other"), 1, "t1") == "unknown"


def test_a_grant_opens_the_next_attempt() -> None:
    one = claimed()
    assert (one.state, one.attempt, one.token, one.worker) == ("claimed", 1, "t1", "w1")
    assert one.due_in == LEASE
    assert is_granted(one, "c1")
    assert not is_granted(one, "c2")


def test_a_claim_that_outlived_its_lease_opens_another_attempt() -> None:
    """The same claim id again, after the lease: what it had is over."""
    one = claimed()
    one.state = "ready"
    assert claim_status(one, "main", "c1") == "claimed"
    assert not is_granted(one, "c1")


def test_the_current_attempt_is_renewed() -> None:
    one = claimed()
    one.due_in = timedelta(0)
    assert renew(one, AGENT, 1, "t1") == "renewed"
    assert one.due_in == LEASE


def test_an_expired_attempt_is_renewed_while_nobody_else_has_claimed() -> None:
    one = claimed()
    one.state = "ready"
    assert renew(one, AGENT, 1, "t1") == "renewed"
    assert one.state == "claimed"
    assert claim_status(one, "main", "c2") == "taken"


@pytest.mark.parametrize(("attempt", "token"), [(1, "t1"), (2, "t1"), (0, "t2"), (1, "t2")])
def test_only_the_holder_of_the_current_attempt_renews(attempt: int, token: str) -> None:
    one = claimed()
    grant(one, claim_id="c2", worker="w2", token="t2", lease=LEASE)  # noqa: S106 - a made-up one
    one.due_in = timedelta(seconds=1)
    assert renew(one, AGENT, attempt, token) == "stale"
    assert one.due_in == timedelta(seconds=1)


def test_a_turn_nobody_claimed_has_nothing_to_renew() -> None:
    assert renew(turn(), AGENT, 0, "None") == "stale"
    assert renew(None, AGENT, 0, "t1") == "unknown"


@pytest.mark.parametrize("state", ["done", "failed", "void"])
def test_a_turn_that_is_over_is_not_renewed(state: str) -> None:
    one = claimed()
    one.state = state
    assert renew(one, AGENT, 1, "t1") == "finished"


@pytest.mark.parametrize(
    ("attempt", "tells_begin", "is_begun"),
    [(1, True, True), (1, False, True), (2, False, True), (2, True, False), (9, True, False)],
)
def test_a_later_attempt_counts_once_its_worker_says_that_it_began(
    attempt: int,
    tells_begin: bool,  # noqa: FBT001 # a case
    is_begun: bool,  # noqa: FBT001 # a case
) -> None:
    one = turn(attempt=attempt - 1)
    token = "t1"  # noqa: S105 - a made-up one
    grant(one, claim_id="c1", worker="w1", token=token, lease=LEASE, tells_begin=tells_begin)
    assert one.is_begun is is_begun
    renew(one, AGENT, attempt, "stale", begun=not is_begun)
    assert one.is_begun is is_begun
    renew(one, AGENT, attempt, token, begun=None)
    assert one.is_begun is is_begun
    renew(one, AGENT, attempt, token, begun=True)
    assert one.is_begun


def test_an_attempt_counts_once_its_worker_takes_back_that_it_tells() -> None:
    one = turn(attempt=1)
    token = "t1"  # noqa: S105 - a made-up one
    grant(one, claim_id="c1", worker="w1", token=token, lease=LEASE, tells_begin=True)
    assert not answer_again(one, tells_begin=True)
    assert answer_again(one, tells_begin=False)
    assert one.is_begun
    assert not answer_again(one, tells_begin=False)


def expired() -> Turn:
    """An attempt that nobody was told to have begun, when its lease is over."""
    token = "t2"  # noqa: S105 - a made-up one
    return turn(attempt=2, token=token, is_begun=False, unbegun=1)


@pytest.mark.parametrize("begun", [False, True, None])
def test_an_attempt_that_goes_on_after_its_lease_counts_again(
    begun: bool | None,  # noqa: FBT001 # a case
) -> None:
    one = expired()
    assert renew(one, AGENT, 2, "t2", begun=begun) == "renewed"
    assert (one.tries, one.is_begun) == (2, bool(begun))
    renew(one, AGENT, 2, "t2", begun=begun)
    assert one.tries == 2


def test_an_attempt_of_somebody_else_does_not_go_on() -> None:
    one = expired()
    renew(one, AGENT, 2, "stale", begun=True)
    assert (one.tries, one.is_begun) == (1, False)


def test_where_there_is_one_try_nothing_is_yet_to_begin() -> None:
    """What tells that it began could get lost, and it would begin twice."""
    one = claimed()
    renew(one, replace(AGENT, max_attempts=1), 1, "t1", begun=False)
    assert one.is_begun
