"""C93: a worker that stops hands its turns back, and such an attempt does not count."""

from typing import Any, Final
from unittest.mock import ANY
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent
from chatlane.errors import StoreUnavailableError
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import Kernel, catalog, event, texts

pytestmark = pytest.mark.integration

STOPPING: Final[dict[str, Any]] = {"outcome": "failed", "retry": True, "hand_back": "stopping"}
CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "book"}}]}
BOOKED = {"role": "tool", "tool_call_id": "c1", "content": "table 4"}


async def say(kernel: Kernel) -> UUID:
    return (await kernel.say(event(chat="701", user="701", mid="1", text="1"))).session


@pytest.mark.parametrize("times", [1, 3, 7])
async def test_c93_an_orderly_stop_is_not_a_crash(kernel: Kernel, times: int) -> None:
    session = await say(kernel)
    for _ in range(times):
        claimed = await kernel.claim_live(session)
        await kernel.answer(claimed, **STOPPING)
        kernel = kernel.restarted()
    again = await kernel.claim_live(session)

    assert (again.attempt, texts(again)) == (times + 1, ["1"])
    assert again.interruption is None
    await kernel.answer(again)
    assert await kernel.said(session) == ["1", "ok"]
    assert await kernel.value("SELECT interruptions FROM sessions WHERE id = $1", session) == 0


async def test_c93_the_turn_is_offered_at_once_to_another_worker(kernel: Kernel) -> None:
    session = await say(kernel)
    claimed = await kernel.claim_live(session)
    await kernel.answer(claimed, **STOPPING)
    told = [UUID(row["turn_id"]) for row in await kernel.published("TURNS") if row["dispatch"] > 1]
    assert told == [claimed.turn_id]


async def test_c93_the_next_attempt_gets_what_was_done(kernel: Kernel) -> None:
    session = await say(kernel)
    first = await kernel.claim_live(session)
    assert first.earlier_rows == ()
    await kernel.answer(first, transcript=[CALL, BOOKED], **STOPPING)
    second = await kernel.claim_live(session)

    assert [(row.role, row.content, row.tool_call_id) for row in second.earlier_rows] == [
        ("assistant", None, None),
        ("tool", "table 4", "c1"),
    ]
    await kernel.answer(second)
    assert await kernel.said(session) == ["1", None, "table 4", "ok"]


async def test_an_answer_with_what_was_done_takes_no_memory(kernel: Kernel) -> None:
    session = await say(kernel)
    first = await kernel.claim_live(session)
    await kernel.answer(first, transcript=[CALL, BOOKED], **STOPPING)
    again = await kernel.claim(first.turn_id, claim_id="c2")
    assert len(again.earlier_rows) == 2
    assert await kernel.claim(first.turn_id, claim_id="c2") == again.model_copy(
        update={"at": ANY, "lease_ms": ANY}
    )
    async with kernel.store.transaction() as connection:
        await connection.execute("SELECT FROM turns WHERE id = $1 FOR UPDATE", first.turn_id)
        with pytest.raises(StoreUnavailableError):
            await kernel.claim(first.turn_id, claim_id="c2")


@pytest.mark.parametrize(("size", "kept"), [(100_000, 2), (140_000, 1), (60_000, 4)])
async def test_c93_a_reply_to_a_claim_holds_the_newest_steps_that_fit(
    kernel: Kernel, size: int, kept: int
) -> None:
    session = await say(kernel)
    for number in range(5):
        claimed = await kernel.claim_live(session)
        content = f"{number}" + "x" * size
        await kernel.answer(claimed, transcript=[BOOKED | {"content": content}], **STOPPING)
    last = await kernel.claim_live(session)
    contents = [(row.content or "")[0] for row in last.earlier_rows]
    assert contents == [str(number) for number in range(5 - kept, 5)]


async def test_c93_a_worker_that_is_killed_while_it_stops_does_not_count(kernel: Kernel) -> None:
    session = await say(kernel)
    for _ in range(4):
        claimed = await kernel.claim_live(session)
        await kernel.renew(claimed, begun=False)
        await kernel.expire(claimed.turn_id)
    await kernel.run_turn(session)
    assert await kernel.said(session) == ["1", "ok"]
    assert await kernel.dead() == []


async def test_c93_a_turn_that_never_begins_twice_fails(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", max_attempts=1)]))
    session = await say(kernel)
    await kernel.answer(await kernel.claim_live(session), **STOPPING)
    assert await kernel.live_turn(session) is None
    assert await kernel.dead() == [("turns", "turn_failed")]


async def test_c93_a_turn_that_a_person_stopped_ends(kernel: Kernel) -> None:
    session = await say(kernel)
    claimed = await kernel.claim_live(session)
    await kernel.say(event(chat="701", user="701", mid="2", text="/stop"))
    await kernel.answer(claimed, **STOPPING)
    assert await kernel.live_turn(session) is None


@pytest.mark.parametrize(
    "failure", [STOPPING, {"outcome": "failed", "retry": True}, {"outcome": "no_reply"}]
)
@pytest.mark.parametrize("order", ["stop first", "result first"])
async def test_c93_a_stop_ends_a_turn_in_every_order(
    kernel: Kernel, failure: dict[str, Any], order: str
) -> None:
    session = await say(kernel)
    claimed = await kernel.claim_live(session)
    stop = event(chat="701", user="701", mid="2", text="/stop")
    if order == "stop first":
        await kernel.say(stop)
        await kernel.answer(claimed, **failure)
    else:
        await kernel.answer(claimed, **failure)
        await kernel.say(stop)
    assert await kernel.live_turn(session) is None
    assert await kernel.dead() == []
    await kernel.say(event(chat="701", user="701", mid="3", text="next"))
    assert texts(await kernel.claim_live(session)) == ["next"]
