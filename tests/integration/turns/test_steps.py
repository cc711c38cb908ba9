"""Steps of turns against every event that ends an attempt, a turn or its session."""

from typing import Any, Final

import pytest
from typing_extensions import override

from chatlane.api.steps import StepQueries
from chatlane.domain.catalog import Agent
from chatlane.privacy import erase_sql
from chatlane.store.conversations import removals
from chatlane_schemas.questions import (
    LARGEST_STEP,
    LARGEST_STEPS,
    MOST_STEPS,
    StepReply,
    TurnKeep,
    TurnStep,
)
from chatlane_schemas.session_api.session_changes import SessionReset, SessionStop
from chatlane_schemas.session_api.sessions import ApiErrorCode
from chatlane_schemas.turns import ClaimReply
from tests.integration.turns.test_questions import Desk, of_attempt, session_of, stamp
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import Kernel, catalog, event

pytestmark = pytest.mark.integration

FOUND: Final = '{"found": ["Oslo", 4]}'


class StepDesk(Desk):
    """Requests of workers about steps, as a router decides them."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._steps = StepQueries(self.kernel.store).table()

    async def keep(
        self,
        claimed: ClaimReply,
        name: str = "search",
        result: str = FOUND,
        **fields: Any,  # noqa: ANN401 - of the request
    ) -> StepReply:
        request = TurnKeep(**stamp(), **(of_attempt(claimed) | fields), name=name, result=result)
        reply = await self._steps["turn.keep"][1](request)
        assert isinstance(reply, StepReply)
        return reply

    async def find(self, claimed: ClaimReply, name: str = "search") -> StepReply:
        request = TurnStep(**stamp(), **of_attempt(claimed), name=name)
        reply = await self._steps["turn.step"][1](request)
        assert isinstance(reply, StepReply)
        return reply

    async def again(self, claimed: ClaimReply) -> ClaimReply:
        """Let the lease end, and return the next attempt."""
        await self.kernel.expire(claimed.turn_id)
        return await self.kernel.claim_live(session_of(claimed))

    async def stored(self) -> list[tuple[str, str, int]]:
        rows = await self.kernel.fetch("SELECT name, result, attempt FROM turn_steps ORDER BY name")
        return [tuple(row) for row in rows]


@pytest.fixture
def desk(kernel: Kernel) -> StepDesk:
    return StepDesk(kernel)


def code_of(reply: StepReply) -> ApiErrorCode | None:
    return None if reply.error is None else reply.error.code


async def test_the_next_attempt_gets_what_a_step_returned(desk: StepDesk) -> None:
    first = await desk.claimed()
    assert (await desk.find(first)).result is None
    assert (await desk.keep(first)).result == FOUND
    second = await desk.again(first)
    assert second.attempt == 2
    assert (await desk.find(second)).result == FOUND
    assert (await desk.find(second, "search 2")).result is None
    assert await desk.stored() == [("search", FOUND, 1)]


async def test_the_first_result_of_a_name_stays(desk: StepDesk) -> None:
    first = await desk.claimed()
    await desk.keep(first)
    assert (await desk.keep(first)).result == FOUND
    assert (await desk.keep(first, result="2")).result == FOUND
    second = await desk.again(first)
    assert (await desk.keep(second, result="3")).result == FOUND
    await desk.keep(second, "book", "null")
    assert await desk.stored() == [("book", "null", 2), ("search", FOUND, 1)]


async def test_a_late_attempt_keeps_and_reads_nothing(desk: StepDesk) -> None:
    first = await desk.claimed()
    second = await desk.again(first)
    assert code_of(await desk.keep(first)) is ApiErrorCode.CONFLICT
    assert code_of(await desk.find(first)) is ApiErrorCode.CONFLICT
    forged = {"token": "another"}
    assert code_of(await desk.keep(second, **forged)) is ApiErrorCode.CONFLICT
    assert await desk.stored() == []


async def test_an_attempt_keeps_its_steps_until_another_one_begins(desk: StepDesk) -> None:
    first = await desk.claimed()
    await desk.kernel.expire(first.turn_id)
    assert code_of(await desk.keep(first)) is None
    second = await desk.kernel.claim_live(session_of(first))
    assert (await desk.find(second)).result == FOUND


@pytest.mark.parametrize("reason", ["failed", "stopping", "unavailable"])
async def test_steps_outlive_an_attempt_that_ends(desk: StepDesk, reason: str) -> None:
    first = await desk.claimed()
    await desk.keep(first)
    hand_back: dict[str, Any] = {} if reason == "failed" else {"hand_back": reason}
    await desk.kernel.answer(first, outcome="failed", retry=True, parts=[], **hand_back)
    assert code_of(await desk.keep(first, "late")) is ApiErrorCode.CONFLICT
    await desk.kernel.fetch("DELETE FROM agent_pauses")
    await desk.kernel.expire(first.turn_id)
    second = await desk.kernel.claim_live(session_of(first))
    assert (await desk.find(second)).result == FOUND


async def test_the_end_of_a_turn_deletes_its_steps_only(desk: StepDesk) -> None:
    first = await desk.claimed()
    await desk.keep(first, "search")
    await desk.say(text="and then?", mid="2")
    await desk.kernel.answer(first)
    assert await desk.stored() == []
    assert code_of(await desk.keep(first)) is ApiErrorCode.CONFLICT
    second = await desk.kernel.claim_live(session_of(first))
    assert (await desk.find(second)).result is None


async def test_a_failed_turn_keeps_no_steps_and_retry_runs_them_again(
    kernel_with: KernelWith,
) -> None:
    desk = StepDesk(await kernel_with(catalog(agents=[Agent("main", max_attempts=2)])))
    first = await desk.claimed()
    await desk.keep(first)
    await desk.kernel.expire((await desk.again(first)).turn_id)
    assert await desk.stored() == []
    await desk.say(text="/retry", mid="2")
    again = await desk.kernel.claim_live(session_of(first))
    assert again.turn_id != first.turn_id
    assert (await desk.find(again)).result is None


@pytest.mark.parametrize("event_", ["stop", "/stop", "/new", "reset"])
async def test_a_turn_that_is_to_end_keeps_nothing_more(desk: StepDesk, event_: str) -> None:
    claimed = await desk.claimed()
    await desk.keep(claimed)
    if event_ == "stop":
        await desk.change(SessionStop(**stamp(), session_id=session_of(claimed)))
    elif event_ == "reset":
        await desk.change(SessionReset(**stamp(), session_id=session_of(claimed)))
    else:
        await desk.say(text=event_, mid="2")
    more = await desk.keep(claimed, "more")
    if more.error is None:
        assert more.result is None
        await desk.kernel.answer(claimed, "so far")
    assert await desk.stored() == []


async def test_what_is_refused_while_a_turn_runs_leaves_its_steps(desk: StepDesk) -> None:
    claimed = await desk.claimed()
    await desk.keep(claimed)
    for mid, command in enumerate(("/undo", "/retry"), 2):
        await desk.say(text=command, mid=str(mid))
    assert await desk.stored() == [("search", FOUND, 1)]


async def test_an_edit_and_what_is_taken_in_leave_the_steps(kernel_with: KernelWith) -> None:
    desk = StepDesk(await kernel_with(catalog(agents=[Agent("main", busy="steer")])))
    first = await desk.claimed()
    await desk.keep(first)
    await desk.say(kind="edit", mid="1", text="clean up the logs")
    await desk.say(text="and the cache", mid="2")
    second = await desk.again(first)
    assert [message.text for message in second.messages] == ["clean up the logs"]
    assert (await desk.find(second)).result == FOUND


async def test_a_turn_whose_only_message_was_deleted_loses_its_steps(desk: StepDesk) -> None:
    first = await desk.claimed()
    await desk.keep(first)
    await desk.say(kind="delete", mid="1")
    assert await desk.stored() != []
    await desk.kernel.expire(first.turn_id)
    await desk.kernel.expire(first.turn_id)
    assert await desk.kernel.live_turn(session_of(first)) is None
    assert await desk.stored() == []


async def test_an_erasure_deletes_steps_and_lets_none_be_kept(desk: StepDesk) -> None:
    claimed = await desk.claimed()
    await desk.keep(claimed)
    async with desk.kernel.owner.transaction() as connection:
        await erase_sql.clear_turns(connection, [claimed.turn_id])
    assert (await desk.keep(claimed)).result is None
    assert await desk.stored() == []


@pytest.mark.parametrize("how", ["removed", "trimmed"])
async def test_a_session_takes_the_steps_of_its_turn_with_it(desk: StepDesk, how: str) -> None:
    claimed = await desk.claimed()
    await desk.keep(claimed)
    async with desk.kernel.owner.transaction() as connection:
        if how == "removed":
            await removals.remove(connection, [session_of(claimed)])
        else:
            await erase_sql.trim(connection, session_of(claimed))
    assert await desk.stored() == []
    assert code_of(await desk.keep(claimed)) is ApiErrorCode.CONFLICT


async def test_the_results_of_a_turn_are_bounded(desk: StepDesk) -> None:
    claimed = await desk.claimed()
    large = "1" * LARGEST_STEP
    fits = LARGEST_STEPS // LARGEST_STEP
    for number in range(fits):
        assert code_of(await desk.keep(claimed, f"large {number}", large)) is None
    assert code_of(await desk.keep(claimed, "one more", large)) is ApiErrorCode.INVALID
    await desk.kernel.fetch("UPDATE turn_steps SET result = '1'")
    for number in range(fits, MOST_STEPS):
        assert code_of(await desk.keep(claimed, f"small {number}", "1")) is None
    assert code_of(await desk.keep(claimed, "one more", "1")) is ApiErrorCode.INVALID
    assert (await desk.keep(claimed, "large 0")).result == "1"


async def test_the_results_of_one_turn_are_no_concern_of_another(desk: StepDesk) -> None:
    mine = await desk.claimed()
    await desk.keep(mine)
    theirs = await desk.kernel.claim_live(
        (await desk.kernel.say(event(chat="702", user="702", mid="1", text="x"))).session
    )
    stolen = mine.model_copy(update={"token": theirs.token})
    assert code_of(await desk.find(stolen)) is ApiErrorCode.CONFLICT
    assert (await desk.find(theirs)).result is None
