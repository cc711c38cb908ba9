"""A lease on the worker's own clock; the service is a function here."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from time import monotonic
from uuid import UUID

import pytest

from chatlane_client.errors import UnansweredRequestError
from chatlane_client.lease import Lease
from chatlane_schemas import RenewReply, RenewStatus, new_envelope_id

LENGTH = timedelta(milliseconds=1500)
SECONDS = LENGTH.total_seconds()


def request_handler(
    *statuses: RenewStatus | None, asked: list[float]
) -> Callable[[timedelta], Awaitable[RenewReply]]:
    """Return a service that answers so, one after the other; None is no answer."""
    left = list(statuses)

    async def renew(_: timedelta) -> RenewReply:
        asked.append(monotonic())
        status = left.pop(0) if left else None
        if status is None:
            raise UnansweredRequestError("subject", reached_nobody=False)
        lease_ms = round(SECONDS * 1000)
        return RenewReply(
            id=new_envelope_id(), at=datetime.now(UTC), status=status, lease_ms=lease_ms
        )

    return renew


async def test_a_lease_is_renewed_at_each_third() -> None:
    asked: list[float] = []
    start = monotonic()
    renew = request_handler(*[RenewStatus.RENEWED] * 3, RenewStatus.FINISHED, asked=asked)

    assert await Lease(start, LENGTH).keep(renew) == "finished"
    pauses = [later - sooner for sooner, later in zip([start, *asked], asked, strict=False)]
    assert len(pauses) == 4
    assert min(pauses) >= SECONDS / 3 - 0.005


async def test_a_lease_that_nobody_renews_ends_in_time() -> None:
    start = monotonic()
    assert await Lease(start, LENGTH).keep(request_handler(asked=[])) == "expired"
    assert monotonic() - start >= SECONDS - 0.01


async def test_an_unanswered_renewal_is_repeated_within_the_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[float] = []
    renew = request_handler(None, None, RenewStatus.RENEWED, RenewStatus.STALE, asked=asked)
    turn_id = UUID(int=7)
    assert await Lease(monotonic(), LENGTH, turn_id).keep(renew) == "stale"
    assert len(asked) == 4
    # One line for both attempts, with turn and error.
    assert caplog.messages == [
        f"renewal_unanswered: turn {turn_id}: no answer on subject in time; trying again"
    ]


async def test_the_lease_counts_from_before_the_request() -> None:
    """Half of one was over when its reply came; it ends before one that was just granted."""
    ended: list[str] = []

    async def keep(name: str, asked_at: float) -> None:
        assert await Lease(asked_at, LENGTH).keep(request_handler(asked=[])) == "expired"
        ended.append(name)

    now = monotonic()
    await asyncio.gather(keep("fresh", now), keep("half over", now - SECONDS / 2))
    assert ended == ["half over", "fresh"]


async def test_a_fresh_lease_is_held_without_asking() -> None:
    asked: list[float] = []
    assert await Lease(monotonic(), LENGTH).secure(request_handler(asked=asked))
    assert asked == []


@pytest.mark.parametrize(
    ("status", "has_live_turn"),
    [(RenewStatus.RENEWED, True), (RenewStatus.STALE, False), (None, False)],
)
async def test_a_lease_that_came_late_is_asked_for(
    status: RenewStatus | None, *, has_live_turn: bool
) -> None:
    asked: list[float] = []
    lease = Lease(monotonic() - 60, LENGTH)
    assert await lease.secure(request_handler(status, asked=asked)) is has_live_turn
    assert asked
