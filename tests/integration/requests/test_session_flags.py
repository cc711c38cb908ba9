"""What gives a session up, what keeps it, and what its agent is told of that."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.api.sessions import SessionQueries
from chatlane.domain.catalog import Agent
from chatlane.domain.policy import ResetPolicy
from chatlane.observability.metrics import Metrics
from chatlane.store.conversations.session_lists import SessionLists
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.codec import decode
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_life import SessionRoundsReply
from chatlane_schemas.session_api.sessions import ApiErrorCode
from tests.integration.requests.test_session_changes import (
    ANN,
    BEN,
    HOSTILE,
    Caller,
    person,
    places,
    request,
    spoiled,
)
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import DAY, SESSION_EVENTS, Fields, Kernel, at, catalog, event

pytestmark = pytest.mark.integration

IDLE = ResetPolicy("idle", idle=timedelta(hours=1))
ADMIN = {"provider": "local", "model": "large-2"}


async def placed(
    kernel: Kernel, mid: str, stored_at: datetime = DAY, who: Fields = ANN, kind: str = "message"
) -> UUID:
    return (await kernel.say(event(**who, mid=mid, text=mid, kind=kind), stored_at)).session


def from_now(**span: float) -> datetime:
    """Return a time by the clock of the database, which requests go by."""
    return datetime.now(UTC) + timedelta(**span)


async def reasons(kernel: Kernel) -> list[str]:
    return [
        one["reason"]
        for one in await kernel.published("EVENTS", f"{SESSION_EVENTS}%")
        if "reason" in one and "previous_session_id" not in one
    ]


@pytest.fixture
async def idle_kernel(kernel_with: KernelWith) -> Kernel:
    return await kernel_with(catalog(reset=IDLE))


async def test_a_suspended_session_is_followed_by_another_one(idle_kernel: Kernel) -> None:
    kernel, caller = idle_kernel, Caller(idle_kernel)
    first = await placed(kernel, "1")
    await kernel.run_all()
    await caller.changed("hold", first, name="job", lasts_s=86_400)

    shown = await caller.changed("suspend", first)
    second = await placed(kernel.restarted(), "2")
    [claimed] = await kernel.run_all()

    assert (shown.is_suspended, shown.ended_at) == (True, None)
    assert second != first
    assert claimed.reset_reason == "suspended"
    assert await reasons(kernel) == ["suspended"]
    assert await placed(kernel, "3") == second


async def test_what_runs_in_a_suspended_session_is_still_answered(idle_kernel: Kernel) -> None:
    kernel, caller = idle_kernel, Caller(idle_kernel)
    first = await placed(kernel, "1")
    running = await kernel.claim_live(first)
    await caller.changed("suspend", first)

    second = await placed(kernel, "2")
    await kernel.answer(running, "done")

    assert second != first
    assert await kernel.said(first) == ["1", "done"]


async def test_a_timer_does_not_run_in_a_suspended_session(kernel: Kernel) -> None:
    first = await placed(kernel, "1")
    await Caller(kernel).changed("suspend", first)

    assert await placed(kernel, "t1", kind="system") != first


async def test_a_suspension_is_taken_back_by_opening_the_session_again(kernel: Kernel) -> None:
    caller = Caller(kernel)
    first = await placed(kernel, "1")
    await caller.changed("suspend", first)

    shown = await caller.changed("reopen", first)

    assert not shown.is_suspended
    assert await placed(kernel, "2") == first


async def test_a_session_that_ended_as_suspended_is_opened_again_for_good(kernel: Kernel) -> None:
    caller = Caller(kernel)
    first = await placed(kernel, "1")
    await caller.changed("suspend", first)
    await placed(kernel, "2")

    shown = await caller.changed("reopen", first)

    assert (shown.is_suspended, shown.ended_at, shown.end_reason) == (False, None, None)


async def test_an_interrupted_session_goes_on_for_a_while(idle_kernel: Kernel) -> None:
    kernel, caller = idle_kernel, Caller(idle_kernel)
    first = await placed(kernel, "1", from_now(days=-2))
    await kernel.run_all()
    await caller.changed("mark", first, reason="restart")

    second = await placed(kernel, "2", from_now(minutes=5))
    claimed = await kernel.claim_live(second)

    assert second == first
    assert claimed.resume_pending is not None
    assert claimed.resume_pending.reason == "restart"
    assert await placed(kernel, "3", from_now(minutes=5)) == first


async def test_after_that_the_next_message_opens_another_one(kernel: Kernel) -> None:
    caller = Caller(kernel)
    first = await placed(kernel, "1")
    await kernel.run_all()
    await caller.changed("mark", first)
    await caller.changed("hold", first, name="job", lasts_s=86_400)

    second = await placed(kernel, "2", from_now(minutes=61))

    assert second != first
    assert await reasons(kernel) == ["resume_pending_expired"]


async def test_marking_again_counts_from_then(kernel: Kernel) -> None:
    caller = Caller(kernel)
    first = await placed(kernel, "1")
    await kernel.run_all()
    await caller.changed("mark", first)
    await kernel.fetch("UPDATE sessions SET resume_marked_at = now() - interval '2 hours'")
    await caller.changed("mark", first, reason="again")

    assert await placed(kernel, "2", from_now()) == first


async def test_only_a_complete_result_takes_the_mark_away(kernel: Kernel) -> None:
    caller = Caller(kernel)
    session = await placed(kernel, "1")
    claimed = await kernel.claim_live(session)
    await caller.changed("mark", session)

    await kernel.answer(claimed, outcome="failed", retry=True)
    kept = await caller.reads.find(session)
    await kernel.run_all()
    cleared = await caller.reads.find(session)

    assert kept is not None
    assert kept.resume_pending is not None
    assert cleared is not None
    assert cleared.resume_pending is None


async def test_a_mark_is_taken_away_by_request(kernel: Kernel) -> None:
    caller = Caller(kernel)
    session = await placed(kernel, "1")
    await caller.changed("mark", session)

    assert (await caller.changed("unmark", session)).resume_pending is None
    assert (await caller.changed("unmark", session)).resume_pending is None


async def test_a_suspended_session_is_not_marked(kernel: Kernel) -> None:
    caller = Caller(kernel)
    session = await placed(kernel, "1")
    await caller.changed("suspend", session)

    assert await caller.refused("mark", session) is ApiErrorCode.CONFLICT


async def test_a_hold_puts_off_a_timed_reset_until_it_ends(idle_kernel: Kernel) -> None:
    kernel, caller = idle_kernel, Caller(idle_kernel)
    first = await placed(kernel, "1")
    await kernel.run_all()
    await caller.changed("hold", first, name="short", lasts_s=60)
    shown = await caller.changed("hold", first, name="long", lasts_s=7200)

    held = await placed(kernel, "t", from_now(minutes=100), kind="system")
    await kernel.run_all()
    second = await placed(kernel, "2", from_now(minutes=119))
    await kernel.run_all()
    third = await placed(kernel, "3", from_now(minutes=300))

    assert shown.held_until is not None
    assert (held, second) == (first, first)
    assert third != first


async def test_a_hold_is_renewed_released_and_counted(kernel: Kernel) -> None:
    caller = Caller(kernel)
    session = await placed(kernel, "1")
    await caller.changed("hold", session, name="a", lasts_s=3600)
    shorter = await caller.changed("hold", session, name="a", lasts_s=60)
    await caller.changed("hold", session, name="b", lasts_s=30)

    left = await caller.changed("release", session, name="b")
    none = await caller.changed("release", session, name="a")

    assert left.held_until == shorter.held_until
    assert none.held_until is None
    assert await kernel.value("SELECT count(*) FROM session_holds") == 0
    for number in range(100):
        await caller.changed("hold", session, name=f"n{number}", lasts_s=60)
    refused = await caller.refused("hold", session, name="one more", lasts_s=60)
    assert refused is ApiErrorCode.INVALID
    assert await caller.refused("hold", session, name="more", lasts_s=60) is ApiErrorCode.CONFLICT
    await caller.changed("hold", session, name="n7", lasts_s=60)


@pytest.mark.parametrize("lasts_s", [0, -1, 86_401, 1.5, "60"])
async def test_a_hold_is_no_longer_than_a_day(kernel: Kernel, lasts_s: object) -> None:
    session = await placed(kernel, "1")
    refused = await Caller(kernel).refused("hold", session, name="a", lasts_s=lasts_s)
    assert refused is ApiErrorCode.INVALID


@pytest.mark.parametrize("verb", ["suspend", "mark", "unmark", "hold", "override"])
async def test_an_ended_session_is_not_changed(kernel: Kernel, verb: str) -> None:
    caller = Caller(kernel)
    session = await placed(kernel, "1")
    await caller.changed("end", session)
    fields: Fields = {"name": "a", "lasts_s": 1} if verb == "hold" else {}

    assert await caller.refused(verb, session, **fields) is ApiErrorCode.CONFLICT


async def test_the_agent_is_told_which_model_is_to_answer(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main")]))
    caller = Caller(kernel)
    session = await placed(kernel, "1")
    whole = {**ADMIN, "base_url": "https://models.example/v1"}

    shown = await caller.changed("override", session, override=whole)
    replaced = await caller.changed("override", session, override=ADMIN)
    claimed = await kernel.claim_live(session)

    assert shown.model_override is not None
    assert shown.model_override.model_dump() == whole
    assert claimed.model_override == replaced.model_override
    assert claimed.model_override is not None
    assert claimed.model_override.model_dump(exclude_none=True) == ADMIN
    assert (await caller.changed("override", session)).model_override is None


async def test_a_stream_agent_is_told_as_well(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", delivery="stream")]))
    caller = Caller(kernel)
    session = await placed(kernel, "1")
    await caller.changed("override", session, override=ADMIN)
    await caller.changed("mark", session, reason="restart")

    await placed(kernel, "2", from_now())
    first, second = await kernel.published("ROUTED")

    assert "model_override" not in first
    assert second["model_override"] == ADMIN
    assert second["resume_pending"]["reason"] == "restart"
    await kernel.decide([kernel.stream_answer(second, "ok")])
    after = await caller.reads.find(session)
    assert after is not None
    assert (after.resume_pending, after.answer_count) == (None, 1)


async def test_a_new_session_has_none_of_it(kernel: Kernel) -> None:
    caller = Caller(kernel)
    session = await placed(kernel, "1")
    await caller.changed("override", session, override=ADMIN)
    await caller.changed("hold", session, name="a", lasts_s=60)
    await caller.changed("mark", session)

    following = await caller.changed("reset", session)

    assert (following.model_override, following.held_until, following.resume_pending) == (
        (None,) * 3
    )


@pytest.mark.parametrize(
    "override",
    [
        {},
        {"api_key": "k"},
        {"model": ""},
        {"model": "x" * 257},
        {"base_url": "ftp://models.example"},
        {"base_url": "models.example"},
        {"base_url": "https://user:secret@models.example/v1"},
        {"base_url": "https://models.example/v1?key=secret"},
        {"base_url": "https://models.example/v1#secret"},
        {"base_url": "https://["},
        {"base_url": "https://models.example/api_key=4f9d2c/v1"},
        {"model": "sk-" + "4f9d2c6f1b0e4b6c8f0a7d3c"},
        {"provider": "Bearer 4f9d2c6f"},
    ],
)
async def test_an_override_holds_no_credential(kernel: Kernel, override: Fields) -> None:
    session = await placed(kernel, "1")
    refused = await Caller(kernel).refused("override", session, override=override)
    assert refused is ApiErrorCode.INVALID


async def test_what_results_report_is_summed_by_name(kernel: Kernel) -> None:
    """V18, F13."""
    session = await placed(kernel, "1")
    claimed = await kernel.claim_live(session)
    failed = kernel.turn_result(
        claimed, outcome="failed", retry=True, usage={"input_tokens": 10, "cost_micro_usd": 7}
    )
    await kernel.decide([failed])
    await kernel.decide([failed])
    again = await kernel.claim(claimed.turn_id)
    late = kernel.turn_result(claimed, usage={"input_tokens": 1000})
    result = kernel.turn_result(again, usage={"input_tokens": 5, "output_tokens": 3})
    await kernel.decide([late, result, result])
    await placed(kernel, "2")
    await kernel.run_all()

    shown = await SessionReads(kernel.store).find(session)

    assert shown is not None
    assert shown.usage == {"input_tokens": 15, "cost_micro_usd": 7, "output_tokens": 3}
    assert shown.answer_count == 2


async def test_amounts_are_summed_exactly_and_gauges_replaced(kernel: Kernel) -> None:
    """F21, R14.2."""
    session = await placed(kernel, "1")
    claimed = await kernel.claim_live(session)
    failed = kernel.turn_result(
        claimed,
        outcome="failed",
        retry=True,
        costs={"cost_usd": 0.1, "cost_eur": "0.0000001"},
        gauges={"context_tokens": 900, "context_limit": 1000},
    )
    await kernel.decide([failed, failed])
    again = await kernel.claim(claimed.turn_id)
    late = kernel.turn_result(claimed, costs={"cost_usd": 5}, gauges={"context_tokens": 1})
    result = kernel.turn_result(again, costs={"cost_usd": 0.2}, gauges={"context_tokens": 300})
    await kernel.decide([late, result, result])
    await placed(kernel, "2")
    await kernel.answer(await kernel.claim_live(session), costs={"cost_usd": "0.000000000001"})

    shown = await SessionReads(kernel.store).find(session)

    assert shown is not None
    # Not 0.30000000000000004, which is the sum of floating point numbers.
    assert shown.costs == {
        "cost_usd": Decimal("0.300000000001"),
        "cost_eur": Decimal("0.0000001"),
    }
    assert shown.gauges == {"context_tokens": 300, "context_limit": 1000}


async def test_few_names_of_amounts_and_gauges_are_kept(kernel: Kernel) -> None:
    session = await placed(kernel, "1")
    many = {f"a{number}": number for number in range(64)}
    await kernel.answer(await kernel.claim_live(session), costs=many, gauges=many)
    await placed(kernel, "2")
    more = {"0": 7, "a1": 10**12}
    await kernel.answer(await kernel.claim_live(session), costs=more, gauges=more)

    shown = await SessionReads(kernel.store).find(session)

    assert shown is not None
    for values in (shown.costs, shown.gauges):
        assert len(values) == 64
        assert (values["a1"], "0" in values) == (10**12, False)


async def test_sums_stay_whole_numbers_of_few_names(kernel: Kernel) -> None:
    session = await placed(kernel, "1")
    await kernel.answer(await kernel.claim_live(session), usage={"z": 2**63 - 1})
    await placed(kernel, "2")
    many = {f"a{number}": 1 for number in range(63)} | {"z": 5}
    await kernel.answer(await kernel.claim_live(session), usage=many)
    await placed(kernel, "3")
    await kernel.answer(await kernel.claim_live(session), usage={"0": 1, "a0": 1})

    shown = await SessionReads(kernel.store).find(session)

    assert shown is not None
    assert len(shown.usage) == 64
    assert (shown.usage["z"], shown.usage["a0"], "0" in shown.usage) == (2**63 - 1, 2, False)


@pytest.mark.parametrize(
    ("sequence", "rounds"),
    [
        ("", 0),
        *(("u", 0), ("a", 0), ("ua", 1), ("uua", 1), ("uau", 1)),
        *(("uata", 1), ("auaua", 2), ("uaaua", 2), ("usa", 1), ("uat", 1), ("uuau", 1)),
    ],
)
async def test_a_round_is_something_said_and_answered(
    kernel: Kernel, sequence: str, rounds: int
) -> None:
    """R20.1, R20.5."""
    session = await placed(kernel, "1")
    roles = {"u": "user", "a": "assistant", "t": "tool", "s": "system"}
    for seq, letter in enumerate(sequence, 1):
        await kernel.fetch(
            "INSERT INTO messages (session_id, seq, role, created_at) VALUES ($1, $2, $3, $4)",
            session,
            seq,
            roles[letter],
            DAY,
        )
    reads = SessionReads(kernel.store)
    assert await reads.count_rounds(session, None) == rounds


async def test_rounds_are_counted_from_a_time_on_and_for_the_owner(kernel: Kernel) -> None:
    """R20.2, R20.3."""
    session = await placed(kernel, "1", at("09:00"))
    await kernel.run_all(at("09:01"))
    await placed(kernel, "2", at("09:02"))
    await kernel.run_all(at("09:03"))
    await placed(kernel, "b", at("09:03"), BEN)
    reads = SessionReads(kernel.store)

    clocks = ("09:00", "09:01", "09:03")
    assert [await reads.count_rounds(session, at(one)) for one in clocks] == [1, 1, 0]
    ann = Person(platform="telegram", account="bot", id="701")
    ben = Person(platform="telegram", account="bot", id="702")
    assert await reads.count_rounds(session, None, ann) == 2
    assert await reads.count_rounds(session, None, ben) is None


async def test_whatever_is_asked_about_rounds_is_answered(kernel: Kernel) -> None:
    """Every value of the request replaced by everything that is no such value."""
    session = await placed(kernel, "1")
    queries = SessionQueries(SessionReads(kernel.store), SessionLists(kernel.store))
    handlers = RequestHandler(Metrics()).reads(queries.table())
    whole = request(session, since=DAY.isoformat(), acting_for=person("701"))
    for path in places(whole):
        for value in HOSTILE:
            body = json.dumps(spoiled(whole, path, value)).encode()
            reply = decode(
                SessionRoundsReply, await handlers["session.rounds"](ApiRequest("web", body))
            )
            if reply.error is None:
                assert reply.rounds == 0
            else:
                assert reply.error.code in {ApiErrorCode.INVALID, ApiErrorCode.NOT_FOUND}
