"""Cases C20, C30 and C31: what runs is stopped, what waits is dropped, and nothing runs on."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.observability.metrics import Metrics
from chatlane.requests.change_service import ChangeService
from chatlane_schemas.codec import decode
from chatlane_schemas.session_api.sessions import SessionReply
from chatlane_schemas.turns import ClaimReply, StopReply
from tests.support.worlds.kernel import DAY, SLOTS, Fields, Kernel, Placed, at, event, texts

pytestmark = pytest.mark.integration

ANN: Fields = {"chat": "701", "user": "701"}
THREAD: Fields = {"platform": "slack", "kind_of_chat": "channel", "chat": "C5", "thr": "1770.01"}


class Caller:
    """Stops and resets sessions as one principal."""

    def __init__(self, kernel: Kernel) -> None:
        service = ChangeService(kernel.store, kernel.writer, kernel.catalog, SLOTS)
        self._handlers = RequestHandler(Metrics()).changes(service.change)

    async def stop(self, session_id: UUID, **fields: object) -> StopReply:
        asked = _asked(session_id=str(session_id), **fields)
        return decode(StopReply, await self._handlers["session.stop"](asked))

    async def cancel(self, turn_id: UUID, **fields: object) -> StopReply:
        asked = _asked(turn_id=str(turn_id), **fields)
        return decode(StopReply, await self._handlers["turn.cancel"](asked))

    async def reset(self, session_id: UUID) -> UUID:
        shown = await self.reset_reply(session_id)
        assert shown.session is not None, shown.error
        return shown.session.id

    async def reset_reply(self, session_id: UUID) -> SessionReply:
        reply = await self._handlers["session.reset"](_asked(session_id=str(session_id)))
        return decode(SessionReply, reply)


def _asked(**fields: object) -> ApiRequest:
    body = {"v": 1, "id": uuid4().hex, "at": DAY.isoformat(), **fields}
    return ApiRequest("web", json.dumps(body).encode())


@pytest.fixture
def caller(kernel: Kernel) -> Caller:
    return Caller(kernel)


async def long_job(kernel: Kernel, **where: Any) -> tuple[Placed, ClaimReply]:  # noqa: ANN401 - any field of an event
    """Let somebody ask for something long and a worker take it up."""
    first = await kernel.say(event(**where, mid="1", text="long job"), at("09:00"))
    return first, await kernel.claim_live(first.session)


def outcome(reply: StopReply) -> tuple[bool, int]:
    assert reply.error is None
    return reply.was_running, reply.dropped


async def test_a_stop_ends_what_runs_and_nothing_runs_on(kernel: Kernel, caller: Caller) -> None:
    """C30."""
    first, running = await long_job(kernel, **THREAD, user="U1")
    for number, text in enumerate("ABC", 2):
        await kernel.say(event(**THREAD, user="U1", mid=str(number), text=text), at("09:00:05"))

    assert outcome(await caller.stop(first.session)) == (True, 3)

    # Out at once, and brought again by the next renewal should that have been lost.
    ((subject, told),) = kernel.controls
    assert (subject, told["cancel"]) == (f"chat.v1.control.main.{running.turn_id}", "stopped")
    renewed = await kernel.renew(running)
    assert (renewed.status, renewed.cancel) == ("renewed", "stopped")
    await kernel.answer(running, outcome="no_reply", parts=[])
    assert await kernel.live_turn(first.session) is None
    assert await kernel.waiting(first.session) == []

    after = await kernel.say(event(**THREAD, user="U1", mid="6", text="hello"), at("09:01:30"))
    assert after.session == first.session
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["hello"]]
    assert await kernel.said(first.session) == ["long job", "A", "B", "C", "hello", "ok"]


async def test_nothing_to_stop_changes_nothing(kernel: Kernel, caller: Caller) -> None:
    """C30: also when nothing runs."""
    first = await kernel.say(event(**ANN, mid="1", text="hi"))
    await kernel.run_turn(first.session)
    before = await kernel.fetch("SELECT * FROM sessions, turns, messages")
    reply = await caller.stop(first.session)
    assert (outcome(reply), reply.turn_id) == ((False, 0), None)
    assert await kernel.fetch("SELECT * FROM sessions, turns, messages") == before
    stopped = await kernel.value("SELECT count(*) FROM audit WHERE action = 'session_stopped'")
    assert stopped == 0


async def test_the_next_turn_waits_for_the_worker_to_confirm(
    kernel: Kernel, caller: Caller
) -> None:
    """C30: never two at once."""
    first, running = await long_job(kernel, **ANN)
    await caller.stop(first.session)
    await kernel.say(event(**ANN, mid="2", text="and now?"), at("09:00:10"))
    assert await kernel.live_turn(first.session) == running.turn_id
    assert (await kernel.claim(running.turn_id)).status == "void"
    await kernel.answer(running, "so far")
    assert texts(await kernel.claim_live(first.session)) == ["and now?"]
    assert [one["text"] for one in await kernel.published("OUTBOUND")] == ["so far"]


async def test_a_worker_that_never_confirms_has_its_lease(kernel: Kernel) -> None:
    """C20: the flag of a dead process; /stop, answered at once, changes nothing about it."""
    first, running = await long_job(kernel, **ANN)
    kernel = kernel.restarted()
    assert outcome(await Caller(kernel).stop(first.session)) == (True, 0)
    await kernel.say(event(**ANN, mid="2", text="and now?"), at("09:01:50"))
    # It may ask for more time, but gets none.
    await kernel.fetch("UPDATE turns SET due_at = due_at - interval '20 s'")
    left = (await kernel.renew(running)).lease_ms
    assert 0 < left <= 10_000

    await kernel.expire(running.turn_id)

    assert (await kernel.renew(running)).status == "finished"
    await kernel.answer(running, "too late")
    assert texts(await kernel.run_turn(first.session)) == ["and now?"]
    assert await kernel.said(first.session) == ["long job", "and now?", "ok"]
    assert await kernel.dead() == []


async def test_a_turn_that_nobody_has_claimed_is_void(kernel: Kernel, caller: Caller) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="never mind"))
    turn = await kernel.live_turn(first.session)
    assert turn is not None
    assert outcome(await caller.stop(first.session)) == (False, 1)
    assert (await kernel.claim(turn)).status == "void"
    assert await kernel.said(first.session) == ["never mind"]
    # What was dropped does not come back with a repetition.
    await kernel.decide([first.message])
    assert await kernel.live_turn(first.session) is None


async def test_a_turn_between_two_attempts_is_over_at_once(kernel: Kernel, caller: Caller) -> None:
    first, running = await long_job(kernel, **ANN)
    await kernel.answer(running, outcome="failed", retry=True, parts=[])
    assert outcome(await caller.stop(first.session)) == (False, 0)
    assert await kernel.live_turn(first.session) is None
    assert (await kernel.claim(running.turn_id)).status == "void"


async def test_a_turn_is_cancelled_and_what_waits_is_next(kernel: Kernel, caller: Caller) -> None:
    first, running = await long_job(kernel, **ANN)
    await kernel.say(event(**ANN, mid="2", text="B"), at("09:00:05"))
    assert outcome(await caller.cancel(running.turn_id)) == (True, 0)
    await kernel.answer(running, outcome="failed", retry=True, parts=[])
    assert texts(await kernel.run_turn(first.session)) == ["B"]
    # It is over: the same wish finds nothing.
    assert outcome(await caller.cancel(running.turn_id)) == (False, 0)


async def test_a_turn_whose_lease_ended_is_cancelled_for_what_waits(
    kernel: Kernel, caller: Caller
) -> None:
    first, running = await long_job(kernel, **ANN)
    await kernel.say(event(**ANN, mid="2", text="B"), at("09:00:05"))
    await kernel.expire(running.turn_id)
    assert outcome(await caller.cancel(running.turn_id)) == (False, 0)
    assert texts(await kernel.run_turn(first.session)) == ["B"]


async def test_a_request_is_made_once(kernel: Kernel, caller: Caller) -> None:
    first, running = await long_job(kernel, **ANN)
    reply = await caller.stop(first.session, id="stop-1")
    await kernel.say(event(**ANN, mid="2", text="B"), at("09:00:05"))
    assert await caller.stop(first.session, id="stop-1") == reply
    assert await kernel.waiting(first.session) == ["B"]
    other = await caller.cancel(running.turn_id, id="stop-1")
    assert other.error is not None
    assert other.error.code == "conflict"


async def test_nobody_stops_what_is_somebody_elses(kernel: Kernel, caller: Caller) -> None:
    first, running = await long_job(kernel, **ANN)
    ben = {"platform": "telegram", "account": "bot", "id": "702"}
    ann = {"platform": "telegram", "account": "bot", "id": "701"}
    for reply in (
        await caller.stop(first.session, acting_for=ben),
        await caller.cancel(running.turn_id, acting_for=ben),
        await caller.stop(uuid4()),
        await caller.cancel(uuid4()),
    ):
        assert reply.error is not None
        assert reply.error.code == "not_found"
    assert kernel.controls == []
    assert outcome(await caller.stop(first.session, acting_for=ann)) == (True, 0)


async def test_what_the_old_turn_still_says_stays_out_of_the_new_session(
    kernel: Kernel, caller: Caller
) -> None:
    """C31, asked for over the API."""
    first, running = await long_job(kernel, **ANN)
    await kernel.say(event(**ANN, mid="9", text="meant for the old one"), at("09:00:04"))

    new = await caller.reset(first.session)

    fresh = await kernel.say(event(**ANN, mid="3", text="fresh question"), at("09:00:06"))
    assert (await kernel.renew(running)).cancel == "session_ended"
    await kernel.answer(running, "my session id is now A2", at("09:00:20"))
    more = await kernel.say(event(**ANN, mid="4", text="more"), at("09:00:30"))

    assert fresh.session == more.session == new
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["fresh question", "more"]]
    assert await kernel.said(new) == ["fresh question", "more", "ok"]
    assert await kernel.said(first.session) == [
        "long job",
        "meant for the old one",
        "my session id is now A2",
    ]
    # Nobody is told what nobody waits for, and the line of the old session never runs.
    assert [one["text"] for one in await kernel.published("OUTBOUND")] == ["ok"]


async def test_a_stop_and_the_result_it_met_in_one_batch(kernel: Kernel, caller: Caller) -> None:
    """The result was on its way: it ends the turn as it would have."""
    first, running = await long_job(kernel, **ANN)
    await caller.stop(first.session)
    second = kernel.logged(event(**ANN, mid="2", text="B"), at("09:00:05"))
    await kernel.decide([second, kernel.turn_result(running, "done")])
    assert texts(await kernel.run_turn(first.session)) == ["B"]
