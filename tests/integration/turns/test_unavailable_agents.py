"""C92: turns wait for an agent that is unavailable, and one of them tries it."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent
from chatlane_schemas.turns import ClaimReply, ClaimStatus
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import Kernel, catalog, event, texts

pytestmark = pytest.mark.integration

AWAY: Final[dict[str, Any]] = {"outcome": "failed", "retry": True, "hand_back": "unavailable"}


async def say(kernel: Kernel, user: str, mid: str = "1") -> UUID:
    return (await kernel.say(event(chat=user, user=user, mid=mid, text=mid))).session


async def hand_back(kernel: Kernel, claimed: ClaimReply, again_in_ms: int | None = 15_000) -> None:
    fields = AWAY if again_in_ms is None else AWAY | {"again_in_ms": again_in_ms}
    # The sweep measures how long a turn waits by the clock of the database.
    await kernel.answer(claimed, stored_at=datetime.now(UTC), **fields)


async def end_pause(kernel: Kernel) -> None:
    await kernel.fetch("UPDATE agent_pauses SET until = clock_timestamp()")


async def notices(kernel: Kernel) -> list[str]:
    return [row["text"] for row in await kernel.published("OUTBOUND") if row["kind"] == "notice"]


async def announced(kernel: Kernel) -> set[UUID]:
    """Return the turns with a notification after their first one."""
    rows = await kernel.published("TURNS")
    return {UUID(row["turn_id"]) for row in rows if row["dispatch"] > 1}


@pytest.mark.parametrize("times", [1, 4, 9])
async def test_c92_an_attempt_at_an_unavailable_agent_does_not_count(
    kernel: Kernel, times: int
) -> None:
    session = await say(kernel, "701")
    for _ in range(times):
        claimed = await kernel.claim_live(session)
        await hand_back(kernel, claimed)
        await end_pause(kernel)
        await kernel.expire(claimed.turn_id)
    await kernel.run_turn(session)

    assert await kernel.said(session) == ["1", "ok"]
    assert await kernel.dead() == []
    assert len(await notices(kernel)) == 1


@pytest.mark.parametrize(
    ("again_in_ms", "seconds"),
    [(2_000, 2), (60_000, 60), (None, 15), (0, 1), (86_400_000, 3600), (1, 1), (2**31 - 1, 3600)],
)
async def test_c92_a_turn_waits_as_long_as_its_worker_asks(
    kernel: Kernel, again_in_ms: int | None, seconds: int
) -> None:
    session = await say(kernel, "701")
    claimed = await kernel.claim_live(session)
    await hand_back(kernel, claimed, again_in_ms)

    due = await kernel.due_in(claimed.turn_id)
    assert timedelta(seconds=seconds - 5) < due <= timedelta(seconds=seconds)
    assert (await notices(kernel) == []) is (seconds < 10)


async def test_c92_a_chat_is_told_once_however_often_it_waits(kernel: Kernel) -> None:
    session = await say(kernel, "701")
    for _ in range(3):
        claimed = await kernel.claim_live(session)
        await hand_back(kernel, claimed, 12_000)
        await end_pause(kernel)
        await kernel.expire(claimed.turn_id)
    assert await notices(kernel) == [
        "I cannot answer right now. Your message is kept, and I will answer as soon as I can."
    ]


async def test_c92_an_unavailable_agent_costs_one_try_and_not_one_per_turn(kernel: Kernel) -> None:
    first = await say(kernel, "701")
    await hand_back(kernel, await kernel.claim_live(first))
    others = [await say(kernel, str(user)) for user in range(702, 707)]
    for session in others:
        assert (await kernel.claim_live(session)).status is ClaimStatus.TAKEN
    await kernel.deadlines.sweep()
    assert await announced(kernel) == set()
    # Every chat that has to wait is told, also before a worker has seen its message.
    assert len(await notices(kernel)) == 1 + len(others)

    await end_pause(kernel)
    await kernel.fetch("UPDATE turns SET due_at = clock_timestamp()")
    await kernel.deadlines.sweep()
    [trial] = await announced(kernel)
    claims = {session: await kernel.claim_live(session) for session in (first, *others)}
    granted = [reply for reply in claims.values() if reply.status is ClaimStatus.CLAIMED]
    assert [reply.turn_id for reply in granted] == [trial]

    await kernel.answer(granted[0])
    assert await kernel.fetch("SELECT FROM agent_pauses") == []
    await kernel.deadlines.sweep()
    await kernel.run_all()
    for session in (first, *others):
        assert await kernel.said(session) == ["1", "ok"]
    assert await kernel.dead() == []


async def test_c92_a_trial_that_fails_again_lets_the_others_wait(kernel: Kernel) -> None:
    first, second = await say(kernel, "701"), await say(kernel, "702")
    await hand_back(kernel, await kernel.claim_live(first))
    await end_pause(kernel)
    turn = await kernel.live_turn(first)
    assert turn is not None
    await kernel.expire(turn)
    await hand_back(kernel, await kernel.claim_live(first), 30_000)

    assert (await kernel.claim_live(second)).status is ClaimStatus.TAKEN
    await kernel.deadlines.sweep()
    waiting = await kernel.live_turn(second)
    assert waiting is not None
    assert timedelta(seconds=20) < await kernel.due_in(waiting) <= timedelta(seconds=30)


async def test_c92_a_trial_that_never_ends_is_followed_by_another(kernel: Kernel) -> None:
    first, second = await say(kernel, "701"), await say(kernel, "702")
    await hand_back(kernel, await kernel.claim_live(first))
    await end_pause(kernel)
    turn, other = await kernel.live_turn(first), await kernel.live_turn(second)
    assert turn is not None
    assert other is not None
    await kernel.expire(turn)
    assert (await kernel.claim_live(first)).status is ClaimStatus.CLAIMED
    await kernel.expire(other)
    assert other not in await announced(kernel)
    await kernel.fetch("UPDATE agent_pauses SET trial_until = clock_timestamp()")
    await kernel.expire(other)
    assert (await kernel.claim_live(second)).status is ClaimStatus.CLAIMED


async def test_c92_the_wait_is_bounded_and_ends_with_a_word_to_the_chat(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", max_wait=timedelta(minutes=10))]))
    begun, unseen = await say(kernel, "701"), await say(kernel, "702")
    await hand_back(kernel, await kernel.claim_live(begun))
    assert (await kernel.claim_live(unseen)).status is ClaimStatus.TAKEN
    await kernel.deadlines.sweep()
    await kernel.fetch(
        "UPDATE turns SET waits_since = waits_since - interval '1 day', due_at = clock_timestamp()"
    )
    await kernel.deadlines.sweep()

    assert await kernel.dead() == [("turns", "turn_failed")] * 2
    for session in (begun, unseen):
        assert await kernel.live_turn(session) is None
        assert await kernel.said(session) == ["1"]
        assert await kernel.waiting(session) == []
    sorry = [text for text in await notices(kernel) if text.startswith("Sorry")]
    assert len(sorry) == 2


async def test_c92_what_is_written_during_the_wait_is_answered_with_it(kernel: Kernel) -> None:
    first = await say(kernel, "701")
    await hand_back(kernel, await kernel.claim_live(first))
    session = await say(kernel, "702")
    assert (await kernel.claim_live(session)).status is ClaimStatus.TAKEN
    await say(kernel, "702", "2")
    await kernel.fetch("DELETE FROM agent_pauses")
    claimed = await kernel.run_turn(session)
    assert texts(claimed) == ["1", "2"]


async def test_c92_a_final_refusal_says_so_at_once(kernel: Kernel) -> None:
    session = await say(kernel, "701")
    await kernel.answer(await kernel.claim_live(session), outcome="failed", error="refused")
    assert await kernel.dead() == [("turns", "turn_failed")]
    [text] = await notices(kernel)
    assert text.startswith("Sorry")


async def test_c92_another_agent_is_not_held_up(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main"), Agent("coder")]))
    session = await say(kernel, "701")
    await hand_back(kernel, await kernel.claim_live(session))
    paused = await kernel.fetch("SELECT agent FROM agent_pauses")
    assert [row[0] for row in paused] == ["main"]


async def test_c92_the_pause_before_a_retry_is_a_setting(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", retry_pause=timedelta(minutes=2))]))
    session = await say(kernel, "701")
    claimed = await kernel.claim_live(session)
    await kernel.answer(claimed, outcome="failed", retry=True)
    assert timedelta(seconds=110) < await kernel.due_in(claimed.turn_id) <= timedelta(minutes=2)


async def test_c92_a_stopped_turn_does_not_wait(kernel: Kernel) -> None:
    session = await say(kernel, "701")
    await hand_back(kernel, await kernel.claim_live(session))
    await kernel.say(event(chat="701", user="701", mid="2", text="/stop"))
    assert await kernel.live_turn(session) is None
    await say(kernel, "702")
    assert len(await notices(kernel)) == 2
