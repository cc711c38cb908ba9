"""Attempts that are lost with their workers: told to the next one, counted, and no endless loop."""

from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent
from chatlane_schemas.turns import ClaimReply
from tests.integration.requests.test_session_changes import ANN, BEN, Caller
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import Fields, Kernel, catalog, event, texts

pytestmark = pytest.mark.integration


async def say(kernel: Kernel, mid: str, who: Fields = ANN) -> UUID:
    return (await kernel.say(event(**who, mid=mid, text=mid))).session


async def interrupted(kernel: Kernel, session: UUID) -> ClaimReply:
    """Let a worker claim the turn that waits, and die."""
    claimed = await kernel.claim_live(session)
    await kernel.expire(claimed.turn_id)
    return claimed


async def notices(kernel: Kernel) -> list[str]:
    return [one["text"] for one in await kernel.published("OUTBOUND") if one["kind"] == "notice"]


async def counted(kernel: Kernel, session: UUID) -> int:
    found: int = await kernel.value("SELECT interruptions FROM sessions WHERE id = $1", session)
    return found


async def test_the_next_attempt_is_told_of_those_before(kernel: Kernel) -> None:
    """C20: the turn goes on by itself, over restarts of worker and router."""
    session = await say(kernel, "1")
    first = await interrupted(kernel, session)
    second = await interrupted(kernel.restarted(), session)
    third = await kernel.restarted().claim_live(session)

    assert first.interruption is None
    assert second.interruption is not None
    assert third.interruption is not None
    assert (second.interruption.count, third.interruption.count) == (1, 2)
    assert second.interruption.last_at < third.interruption.last_at
    assert (third.attempt, texts(third)) == (3, ["1"])


async def test_a_failed_attempt_is_no_interruption(kernel: Kernel) -> None:
    session = await say(kernel, "1")
    claimed = await kernel.claim_live(session)
    await kernel.answer(claimed, outcome="failed", retry=True)
    again = await kernel.claim(claimed.turn_id)

    assert (again.attempt, again.interruption) == (2, None)
    assert await counted(kernel, session) == 0


async def test_a_session_that_ends_its_workers_is_given_up(kernel: Kernel) -> None:
    """C20, C21: once, with a dead letter and a word to the chat; the next message starts anew."""
    stuck = await say(kernel, "1")
    for _ in range(3):
        await interrupted(kernel.restarted(), stuck)
    other = await say(kernel, "1", BEN)
    await kernel.run_all()
    following = await say(kernel.restarted(), "2")
    [claimed] = await kernel.run_all()

    assert await kernel.dead() == [("turns", "turn_failed")]
    assert await kernel.said(other) == ["1", "ok"]
    assert following != stuck
    assert (claimed.reset_reason, texts(claimed)) == ("suspended", ["2"])
    [given_up, anew] = await notices(kernel)
    assert "new conversation" in given_up
    assert "new conversation" in anew
    assert await kernel.value("SELECT end_reason FROM sessions WHERE id = $1", stuck) == (
        "suspended"
    )


async def test_what_waits_in_such_a_session_gets_one_attempt(kernel: Kernel) -> None:
    """C21: it is not lost, and it does not end worker after worker."""
    stuck = await say(kernel, "1")
    claimed = await kernel.claim_live(stuck)
    await say(kernel, "2")
    await kernel.expire(claimed.turn_id)
    for _ in range(2):
        await interrupted(kernel, stuck)
    last = await interrupted(kernel, stuck)

    assert texts(last) == ["2"]
    assert await kernel.live_turn(stuck) is None
    assert await kernel.dead() == [("turns", "turn_failed")] * 2


async def test_it_may_also_be_answered_and_then_counts_anew(kernel: Kernel) -> None:
    stuck = await say(kernel, "1")
    claimed = await kernel.claim_live(stuck)
    await say(kernel, "2")
    await kernel.expire(claimed.turn_id)
    for _ in range(2):
        await interrupted(kernel, stuck)
    await kernel.run_turn(stuck)

    assert await kernel.said(stuck) == ["1", "2", "ok"]
    assert await counted(kernel, stuck) == 0
    assert await say(kernel, "3") != stuck


async def test_interruptions_in_a_row_count_over_turns(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", max_attempts=1)]))
    session = await say(kernel, "1")
    for number in range(2, 4):
        await interrupted(kernel, session)
        assert await say(kernel, str(number)) == session
    await interrupted(kernel, session)

    assert await say(kernel, "4") != session
    assert len(await kernel.dead()) == 3


async def test_a_complete_result_ends_the_row(kernel: Kernel) -> None:
    session = await say(kernel, "1")
    for number in range(2, 6):
        await interrupted(kernel, session)
        await interrupted(kernel, session)
        assert await counted(kernel, session) == 2
        await kernel.run_turn(session)
        assert await counted(kernel, session) == 0
        assert await say(kernel, str(number)) == session
    assert await kernel.dead() == []


async def test_an_agent_that_may_try_more_often_is_stuck_later(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", max_attempts=5)]))
    session = await say(kernel, "1")
    for _ in range(4):
        await interrupted(kernel, session)
    assert await kernel.dead() == []
    await interrupted(kernel, session)

    assert await kernel.dead() == [("turns", "turn_failed")]
    assert await say(kernel, "2") != session


async def test_a_session_that_was_given_up_is_opened_again(kernel: Kernel) -> None:
    session = await say(kernel, "1")
    for _ in range(3):
        await interrupted(kernel, session)
    await Caller(kernel).changed("reopen", session)

    assert await say(kernel, "2") == session
    assert await counted(kernel, session) == 0


async def answered_too_late(kernel: Kernel, session: UUID) -> ClaimReply:
    """Let a worker claim the turn that waits, and hear of it when the lease is over."""
    claimed = await kernel.claim_live(session, tells_begin=True)
    await kernel.expire(claimed.turn_id)
    return claimed


async def test_claims_that_are_answered_too_late_give_nothing_up(kernel: Kernel) -> None:
    """C20: nobody began, so nothing can have ended who did; only of the first is that not known."""
    session = await say(kernel, "1")
    late = [await answered_too_late(kernel.restarted(), session) for _ in range(25)]
    last = await kernel.claim_live(session, tells_begin=True)
    await kernel.answer(last)

    assert [one.attempt for one in late] == list(range(1, 26))
    assert last.interruption is not None
    assert last.interruption.count == 1
    assert await kernel.said(session) == ["1", "ok"]
    assert await kernel.dead() == []
    assert await counted(kernel, session) == 0
    assert await say(kernel, "2") == session


async def test_who_says_that_it_begins_and_dies_is_counted(kernel: Kernel) -> None:
    stuck = await say(kernel, "1")
    for attempt in range(1, 4):
        claimed = await kernel.claim_live(stuck, tells_begin=True)
        if attempt > 1:
            await kernel.renew(claimed, begun=True)
        await kernel.expire(claimed.turn_id)

    assert await kernel.dead() == [("turns", "turn_failed")]
    assert await say(kernel, "2") != stuck


async def test_a_first_attempt_that_asks_for_time_before_it_begins_is_not_counted(
    kernel: Kernel,
) -> None:
    session = await say(kernel, "1")
    claimed = await kernel.claim_live(session, tells_begin=True)
    await kernel.renew(claimed, begun=False)
    await kernel.expire(claimed.turn_id)
    again = await kernel.claim_live(session, tells_begin=True)

    assert (again.attempt, again.interruption) == (2, None)
    assert await counted(kernel, session) == 0


async def test_attempts_whose_answer_nobody_can_use_are_counted(kernel: Kernel) -> None:
    """Their worker asks again without its promise: what it cannot read it will never begin."""
    stuck = await say(kernel, "1")
    for attempt in range(1, 4):
        claim_id = f"claim-{attempt}"
        turn = await kernel.live_turn(stuck)
        assert turn is not None
        granted = await kernel.claim(turn, claim_id=claim_id, tells_begin=True)
        again = await kernel.claim(turn, claim_id=claim_id)
        assert (again.attempt, again.token) == (granted.attempt, granted.token)
        await kernel.expire(turn)

    assert await kernel.dead() == [("turns", "turn_failed")]
    assert await say(kernel, "2") != stuck


async def test_a_worker_that_says_nothing_counts_as_having_begun(kernel: Kernel) -> None:
    """One of an earlier release: with every attempt it may have done something."""
    session = await say(kernel, "1")
    await interrupted(kernel, session)
    claimed = await kernel.claim_live(session)
    await kernel.renew(claimed)
    await kernel.expire(claimed.turn_id)

    assert await counted(kernel, session) == 2


async def test_attempts_that_nobody_began_leave_all_tries_to_those_that_fail(
    kernel: Kernel,
) -> None:
    session = await say(kernel, "1")
    claimed = await kernel.claim_live(session, tells_begin=True)
    await kernel.renew(claimed, begun=False)
    await kernel.expire(claimed.turn_id)
    for _ in range(2):
        failed = await kernel.claim_live(session, tells_begin=True)
        await kernel.answer(failed, outcome="failed", retry=True)
        assert await kernel.live_turn(session) == failed.turn_id
    last = await kernel.claim_live(session, tells_begin=True)
    await kernel.answer(last, outcome="failed", retry=True)

    assert last.attempt == 4
    assert await kernel.live_turn(session) is None
