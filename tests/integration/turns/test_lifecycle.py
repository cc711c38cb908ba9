"""The life of a turn against the real database: claims, leases, results, and what follows."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.turns.lifecycle import MAX_TURN_BYTES, MAX_TURN_MESSAGES
from chatlane.errors import StoreUnavailableError
from tests.support.worlds.kernel import Fields, Kernel, Placed, at, catalog, event, texts

if TYPE_CHECKING:
    from chatlane_schemas.turns import ClaimReply

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ANN: Fields = {"chat": "701", "user": "701"}


@pytest.fixture
async def asked(kernel: Kernel) -> Placed:
    """A session with one message, its turn unclaimed."""
    return await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))


async def turn_of(kernel: Kernel, asked: Placed) -> UUID:
    turn = await kernel.live_turn(asked.session)
    assert turn is not None
    return turn


async def test_a_claim_brings_everything_a_worker_needs(kernel: Kernel, asked: Placed) -> None:
    claimed = await kernel.claim_live(asked.session)
    assert (claimed.status, claimed.attempt, claimed.lease_ms) == ("claimed", 1, 30_000)
    assert (claimed.session_id, claimed.session_key) == (asked.session, asked.key)
    assert claimed.token is not None
    assert len(claimed.token) >= 32
    assert claimed.source is not None
    assert claimed.source.message_id == "1"
    assert claimed.history is not None
    assert (claimed.history.session_id, claimed.history.before_seq) == (asked.session, 1)
    (message,) = claimed.messages
    assert (message.seq, message.text, message.kind) == (1, "hi", "message")
    assert message.stored_at == at("09:00")


async def test_history_ends_before_the_first_message_of_the_turn(
    kernel: Kernel, asked: Placed
) -> None:
    await kernel.run_turn(asked.session)
    await kernel.say(event(**ANN, mid="2", text="more"), at("09:01"))
    claimed = await kernel.claim_live(asked.session)
    assert claimed.history is not None
    assert (claimed.history.before_seq, claimed.messages[0].seq) == (3, 3)
    assert not claimed.session_is_new


async def test_a_claimed_turn_is_taken_for_everybody_else(kernel: Kernel, asked: Placed) -> None:
    turn = await turn_of(kernel, asked)
    claimed = await kernel.claim(turn, claim_id="c1", worker="w1")
    other = await kernel.claim(turn, claim_id="c2", worker="w2")
    assert (claimed.status, other.status) == ("claimed", "taken")
    assert (other.token, other.messages, other.session_id) == (None, (), None)


async def test_copies_of_a_waiting_claim_share_its_answer(kernel: Kernel, asked: Placed) -> None:
    turn = await turn_of(kernel, asked)
    first, copy, other = await asyncio.gather(
        *(kernel.claim(turn, claim_id=claim_id) for claim_id in ("c1", "c1", "c2"))
    )
    assert copy is first
    assert (first.status, other.status) == ("claimed", "taken")


async def test_a_claim_that_is_given_up_does_not_end_its_copy(
    kernel: Kernel, asked: Placed
) -> None:
    turn = await turn_of(kernel, asked)
    first, copy = (asyncio.create_task(kernel.claim(turn, claim_id="c1")) for _ in range(2))
    await asyncio.sleep(0)  # Both wait for the answer.
    first.cancel()
    assert (await copy).status == "claimed"
    assert first.cancelled()


@pytest.mark.parametrize(
    ("lease", "is_kept"), [(timedelta(seconds=30), True), (timedelta(milliseconds=1), False)]
)
async def test_a_late_copy_of_a_claim_needs_no_transaction_early_in_its_lease(
    kernel_with: KernelWith, lease: timedelta, *, is_kept: bool
) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", lease=lease)]))
    asked = await kernel.say(event(**ANN, mid="1", text="hi"))
    turn = await turn_of(kernel, asked)
    first = await kernel.claim(turn, claim_id="c1")
    assert first.lease_ms is not None
    async with kernel.store.transaction() as connection:
        await connection.execute("SELECT FROM turns WHERE id = $1 FOR UPDATE", turn)
        if is_kept:
            copy = await kernel.claim(turn, claim_id="c1")
            changing = {"lease_ms"}
            assert copy.model_dump(exclude=changing) == first.model_dump(exclude=changing)
            assert 0 < (copy.lease_ms or 0) < first.lease_ms, "it counts from the first answer"
        else:
            with pytest.raises(StoreUnavailableError):
                await kernel.claim(turn, claim_id="c1")
        with pytest.raises(StoreUnavailableError):
            await kernel.claim(turn, claim_id="c2")


async def test_the_same_claim_gets_the_same_answer(kernel: Kernel, asked: Placed) -> None:
    turn = await turn_of(kernel, asked)
    first = await kernel.claim(turn, claim_id="c1")
    again = await kernel.restarted().claim(turn, claim_id="c1")
    changing = {"at", "lease_ms"}
    assert again.model_dump(exclude=changing) == first.model_dump(exclude=changing)
    # What is left of it, counted from before it was asked again.
    assert 0 < (again.lease_ms or 0) <= (first.lease_ms or 0)
    assert await kernel.said(asked.session) == ["hi"]


async def test_claims_of_an_unknown_turn_or_by_another_agent_find_nothing(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("other")]))
    asked = await kernel.say(event(**ANN, mid="1", text="hi"))
    turn = await turn_of(kernel, asked)
    for answer in (
        await kernel.claim(uuid4()),
        await kernel.claim(turn, "other"),
        await kernel.claim(turn, "undeclared"),
    ):
        assert (answer.status, answer.messages) == ("unknown", ())
    assert (await kernel.claim(turn)).status == "claimed"


async def test_an_expired_lease_gives_the_next_attempt_the_same_rows(
    kernel: Kernel, asked: Placed
) -> None:
    lost = await kernel.claim_live(asked.session)
    await kernel.say(event(**ANN, mid="2", text="meanwhile"), at("09:01"))
    await kernel.expire(lost.turn_id)
    again = await kernel.claim(lost.turn_id)
    assert (again.attempt, again.messages, again.source) == (2, lost.messages, lost.source)
    assert again.token != lost.token
    assert (again.session_is_new, again.history) == (True, lost.history)
    notices = await kernel.published("TURNS")
    assert [(one["turn_id"], one["dispatch"]) for one in notices] == [
        (str(lost.turn_id), 1),
        (str(lost.turn_id), 2),
    ]


async def test_a_lease_that_was_renewed_does_not_end(kernel: Kernel, asked: Placed) -> None:
    claimed = await kernel.claim_live(asked.session)
    await kernel.let_expire(claimed.turn_id)
    renewed = await kernel.renew(claimed)
    assert (renewed.status, renewed.lease_ms) == ("renewed", 30_000)
    await kernel.deadlines.sweep()
    assert (await kernel.claim(claimed.turn_id)).status == "taken"
    assert await kernel.due_in(claimed.turn_id) > timedelta(seconds=29)


async def test_after_the_lease_the_old_attempt_counts_until_the_next_claim(
    kernel: Kernel, asked: Placed
) -> None:
    claimed = await kernel.claim_live(asked.session)
    await kernel.expire(claimed.turn_id)
    assert (await kernel.renew(claimed)).status == "renewed"
    assert (await kernel.claim(claimed.turn_id)).status == "taken"
    await kernel.expire(claimed.turn_id)
    await kernel.answer(claimed, "still in time")
    assert await kernel.said(asked.session) == ["hi", "still in time"]
    assert (await kernel.claim(claimed.turn_id)).status == "finished"


async def test_after_the_next_claim_the_old_attempt_counts_no_more(
    kernel: Kernel, asked: Placed
) -> None:
    old = await kernel.claim_live(asked.session)
    await kernel.expire(old.turn_id)
    new = await kernel.claim(old.turn_id)
    assert (await kernel.renew(old)).status == "stale"
    before = await kernel.fetch("SELECT * FROM sessions, turns")
    await kernel.answer(old, "late", id="late-1")
    await kernel.answer(old, "late", id="late-1")
    assert await kernel.fetch("SELECT * FROM sessions, turns") == before
    assert await kernel.said(asked.session) == ["hi"]
    assert await kernel.published("OUTBOUND") == []
    (late,) = await kernel.fetch("SELECT id, turn_id, attempt FROM late_results")
    assert tuple(late) == ("late-1", old.turn_id, 1)
    await kernel.answer(new, "right")
    assert await kernel.said(asked.session) == ["hi", "right"]


@pytest.mark.parametrize(
    "wrong", [{"attempt": 2}, {"attempt": 0}, {"token": "guessed"}, {"token": "x" * 128}]
)
async def test_a_result_counts_only_with_attempt_and_token(
    kernel: Kernel, asked: Placed, wrong: Fields
) -> None:
    claimed = await kernel.claim_live(asked.session)
    await kernel.answer(claimed, "forged", **wrong)
    assert await kernel.said(asked.session) == ["hi"]
    assert (await kernel.renew(claimed)).status == "renewed"


async def test_a_result_before_any_claim_is_late(kernel: Kernel, asked: Placed) -> None:
    turn = await turn_of(kernel, asked)
    body = {
        "v": 1,
        "id": "r1",
        "at": at("09:00").isoformat(),
        "session_id": str(asked.session),
        "turn_id": str(turn),
        "attempt": 0,
        "token": "None",
        "outcome": "ok",
    }
    await kernel.decide([kernel.result(asked.session, body)])
    assert (await kernel.claim(turn)).status == "claimed"
    assert await kernel.value("SELECT count(*) FROM late_results") == 1


async def test_a_result_told_again_is_a_duplicate(kernel: Kernel, asked: Placed) -> None:
    claimed = await kernel.claim_live(asked.session)
    for stored_at in (at("09:01"), at("09:01"), at("09:09")):
        await kernel.answer(claimed, "done", stored_at, id="r1")
    assert await kernel.said(asked.session) == ["hi", "done"]
    assert len(await kernel.published("OUTBOUND")) == 1
    assert kernel.metrics.counts["duplicates", "results"] == 2
    assert (await kernel.renew(claimed)).status == "finished"


async def test_both_copies_of_a_result_in_one_batch_count_once(
    kernel: Kernel, asked: Placed
) -> None:
    claimed = await kernel.claim_live(asked.session)
    await kernel.say(event(**ANN, mid="2", text="next"), at("09:01"))
    one = kernel.turn_result(claimed, "done", at("09:02"), id="r1")
    other = kernel.turn_result(claimed, "another", at("09:02"), id="r2")
    await kernel.decide([one, one, other])
    assert await kernel.said(asked.session) == ["hi", "done"]
    assert await kernel.turns_of(asked.session) == 2
    assert await kernel.value("SELECT count(*) FROM late_results") == 1


async def test_parts_and_transcript_of_a_result_keep_their_order(
    kernel: Kernel, asked: Placed
) -> None:
    """V18, R12.7."""
    claimed = await kernel.claim_live(asked.session)
    call = {"id": "t1", "function": {"name": "look", "arguments": "{}"}}
    await kernel.answer(
        claimed,
        parts=[
            {"text": "one"},
            {"text": "two", "attachments": [{"key": "k", "media_type": "image/png"}]},
        ],
        transcript=[
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "content": "found", "tool_call_id": "t1", "tool_name": "look"},
            {"role": "assistant", "content": "one\ntwo"},
        ],
    )
    assert await kernel.transcript(asked.session) == [
        (1, "user", "hi"),
        (2, "assistant", None),
        (3, "tool", "found"),
        (4, "assistant", "one\ntwo"),
    ]
    answers = await kernel.published("OUTBOUND")
    assert [(one["out_seq"], one["part"], one["text"]) for one in answers] == [
        (1, 0, "one"),
        (2, 1, "two"),
    ]
    assert answers[1]["attachments"] == [{"key": "k", "media_type": "image/png"}]
    assert {one["reply_to"] for one in answers} == {"1"}
    assert len({one["id"] for one in answers}) == 2


async def test_no_reply_says_nothing_and_goes_on(kernel: Kernel, asked: Placed) -> None:
    claimed = await kernel.claim_live(asked.session)
    await kernel.say(event(**ANN, mid="2", text="next"), at("09:01"))
    await kernel.answer(claimed, outcome="no_reply", parts=[])
    assert await kernel.published("OUTBOUND") == []
    assert texts(await kernel.run_turn(asked.session)) == ["next"]


async def test_a_failure_worth_repeating_waits_five_seconds_for_each_attempt(
    kernel: Kernel, asked: Placed
) -> None:
    for attempt in (1, 2):
        claimed = await kernel.claim_live(asked.session)
        assert claimed.attempt == attempt
        await kernel.answer(claimed, outcome="failed", retry=True, error="model is away", parts=[])
        pause = await kernel.due_in(claimed.turn_id)
        assert timedelta(seconds=5 * attempt - 1) < pause <= timedelta(seconds=5 * attempt)
        assert len(await kernel.published("TURNS")) == attempt
        await kernel.deadlines.sweep()
        assert len(await kernel.published("TURNS")) == attempt
        await kernel.expire(claimed.turn_id)
        assert len(await kernel.published("TURNS")) == attempt + 1
    last = await kernel.claim_live(asked.session)
    assert (last.attempt, texts(last)) == (3, ["hi"])
    await kernel.answer(last, "at last")
    assert await kernel.said(asked.session) == ["hi", "at last"]
    assert await kernel.dead() == []


async def test_a_failed_attempt_has_no_say_any_more(kernel: Kernel, asked: Placed) -> None:
    claimed = await kernel.claim_live(asked.session)
    failure = kernel.turn_result(claimed, outcome="failed", retry=True, parts=[], id="f1")
    await kernel.decide([failure, failure])
    assert (await kernel.renew(claimed)).status == "stale"
    await kernel.answer(claimed, "changed my mind")
    assert await kernel.said(asked.session) == ["hi"]
    assert await kernel.due_in(claimed.turn_id) <= timedelta(seconds=5)
    assert kernel.metrics.counts["duplicates", "results"] == 1


async def fail(kernel: Kernel, claimed: "ClaimReply", how: str) -> None:
    if how == "expired":
        await kernel.expire(claimed.turn_id)
    else:
        await kernel.answer(claimed, outcome="failed", retry=True, error="model is away", parts=[])
        await kernel.expire(claimed.turn_id)


@pytest.mark.parametrize("ways", [("failed",) * 3, ("expired",) * 3, ("failed", "expired") * 2])
async def test_three_failures_give_a_turn_up_and_free_the_session(
    kernel: Kernel, asked: Placed, ways: tuple[str, ...]
) -> None:
    await kernel.say(event(**ANN, mid="2", text="behind it"), at("09:00:30"))
    claimed = await kernel.claim_live(asked.session)
    await kernel.say(event(**ANN, mid="3", text="next"), at("09:01"))
    for how in ways[:3]:
        await fail(kernel, claimed, how)
        if claimed.attempt != 3:
            claimed = await kernel.claim(claimed.turn_id)
    (row,) = await kernel.fetch("SELECT state, outcome FROM turns WHERE id = $1", claimed.turn_id)
    assert tuple(row) == ("failed", "failed")
    assert await kernel.dead() == [("turns", "turn_failed")]
    (notice,) = await kernel.published("OUTBOUND")
    assert (notice["kind"], notice["reply_to"], notice["out_seq"]) == ("notice", "2", 1)
    assert "model is away" not in notice["text"]

    await kernel.answer(claimed, "too late")
    assert texts(await kernel.run_turn(asked.session)) == ["next"]
    assert await kernel.said(asked.session) == ["hi", "behind it", "next", "ok"]
    assert [one["out_seq"] for one in await kernel.published("OUTBOUND")] == [1, 2]


async def test_a_failure_not_worth_repeating_ends_the_turn_at_once(
    kernel: Kernel, asked: Placed
) -> None:
    claimed = await kernel.claim_live(asked.session)
    failure = kernel.turn_result(claimed, outcome="failed", error="no", parts=[], id="f1")
    await kernel.decide([failure])
    await kernel.decide([failure])
    assert await kernel.dead() == [("turns", "turn_failed")]
    assert len(await kernel.published("OUTBOUND")) == 1
    assert await kernel.live_turn(asked.session) is None
    assert kernel.metrics.counts["duplicates", "results"] == 1


async def test_a_dead_letter_of_a_turn_tells_where_and_not_what(
    kernel: Kernel, asked: Placed
) -> None:
    claimed = await kernel.claim_live(asked.session)
    await kernel.answer(claimed, outcome="failed", error="secret error", parts=[])
    (letter,) = await kernel.published("DEAD")
    assert not {"hi", "secret error", "body"} & {*letter, *map(str, letter.values())}
    assert str(claimed.turn_id) in letter["detail"]
    (row,) = await kernel.fetch("SELECT session_id, stage FROM dead_letters")
    assert tuple(row) == (asked.session, "turns")


async def say_many(kernel: Kernel, number: int, text: str = "m") -> Placed:
    said = [event(**ANN, mid=str(mid), text=f"{text}{mid}") for mid in range(number)]
    return (await kernel.say_together(said))[0]


async def test_a_turn_takes_fifty_messages_and_leaves_the_rest(kernel: Kernel) -> None:
    asked = await say_many(kernel, 120)
    turns = [texts(claimed) for claimed in await kernel.run_all()]
    assert [len(turn) for turn in turns] == [MAX_TURN_MESSAGES, MAX_TURN_MESSAGES, 20]
    assert [text for turn in turns for text in turn] == [f"m{number}" for number in range(120)]
    assert [seq for seq, _, _ in await kernel.transcript(asked.session)] == list(range(1, 124))


async def test_a_turn_takes_256_kb_and_always_at_least_one_message(kernel: Kernel) -> None:
    large, small = 100_000, 1_000
    sizes = [large, large, small, large, 240_000, 240_000, small]
    asked = await kernel.say(event(**ANN, mid="0", text="first"))
    first = await kernel.claim_live(asked.session)
    for mid, size in enumerate(sizes, 1):
        await kernel.say(event(**ANN, mid=str(mid), text="x" * size))
    await kernel.answer(first)
    turns = await kernel.run_all()
    taken = [[len(text or "") for text in texts(claimed)] for claimed in turns]
    assert taken == [[large, large, small], [large], [240_000], [240_000, small]]
    assert all(sum(sizes) <= MAX_TURN_BYTES for sizes in taken)


async def test_bytes_count_as_bytes(kernel: Kernel) -> None:
    """Three for each of these signs: two such messages are too much for one turn."""
    for mid in range(2):
        asked = await kernel.say(event(**ANN, mid=str(mid), text="☃" * 50_000))
        del asked
    assert [len(claimed.messages) for claimed in await kernel.run_all()] == [1, 1]


async def test_a_turn_is_of_one_lane_only(kernel: Kernel) -> None:
    """Two lanes may lead to one session; what they say is never put into one turn."""
    asked = await say_many(kernel, 4)
    await kernel.fetch("UPDATE waiting SET session_key = 'another' WHERE arrival IN (2, 3)")
    turns = [texts(claimed) for claimed in await kernel.run_all()]
    assert turns == [["m0"], ["m1", "m2"], ["m3"]]
    del asked


async def test_a_turn_whose_messages_are_gone_is_void(kernel: Kernel, asked: Placed) -> None:
    turn = await turn_of(kernel, asked)
    await kernel.fetch("DELETE FROM waiting")
    answers = [await kernel.claim(turn, claim_id=one) for one in ("c1", "c1", "c2")]
    assert [one.status for one in answers] == ["void"] * 3
    assert await kernel.live_turn(asked.session) is None
    await kernel.say(event(**ANN, mid="2", text="again"), at("09:01"))
    assert texts(await kernel.run_turn(asked.session)) == ["again"]


async def test_a_void_turn_claimed_by_several_at_once_is_void_for_all(
    kernel: Kernel, asked: Placed
) -> None:
    turn = await turn_of(kernel, asked)
    await kernel.fetch("DELETE FROM waiting")
    answers = await asyncio.gather(
        *(kernel.claim(turn, claim_id=one) for one in ("c1", "c1", "c2")),
    )
    assert [one.status for one in answers] == ["void"] * 3


async def test_an_unclaimed_turn_is_told_again_at_growing_pauses(
    kernel: Kernel, asked: Placed
) -> None:
    turn = await turn_of(kernel, asked)
    for dispatch, seconds in enumerate((3, 10, 30, 60, 120, 300), 1):
        pause = await kernel.due_in(turn)
        assert timedelta(seconds=seconds - 1) < pause <= timedelta(seconds=seconds)
        assert len(await kernel.published("TURNS")) == dispatch
        await kernel.expire(turn)
    rows = await kernel.fetch("SELECT message_id FROM outbox WHERE stream = 'TURNS' ORDER BY id")
    assert [row[0] for row in rows] == [f"turn:{turn}:{number}" for number in range(1, 8)]


async def test_an_unclaimed_turn_is_not_told_again_while_workers_have_unread_ones(
    kernel: Kernel, asked: Placed
) -> None:
    turn = await turn_of(kernel, asked)
    kernel.unread["main"] = 3
    await kernel.expire(turn)
    assert len(await kernel.published("TURNS")) == 1
    assert await kernel.due_in(turn) > timedelta(seconds=14)
    kernel.unread["main"] = 0
    await kernel.expire(turn)
    assert len(await kernel.published("TURNS")) == 2


async def test_a_lost_lease_is_told_whatever_is_unread(kernel: Kernel, asked: Placed) -> None:
    """Its worker is gone: waiting for an empty line would only add to the delay."""
    claimed = await kernel.claim_live(asked.session)
    kernel.unread["main"] = 3
    await kernel.expire(claimed.turn_id)
    assert len(await kernel.published("TURNS")) == 2


async def test_a_result_of_another_agent_is_set_aside(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("other")]))
    asked = await kernel.say(event(**ANN, mid="1", text="hi"))
    claimed = await kernel.claim_live(asked.session)
    await kernel.answer(claimed, "stolen", agent="other")
    assert await kernel.dead() == [("results", "agent_mismatch")]
    await kernel.answer(claimed, "mine")
    assert await kernel.said(asked.session) == ["hi", "mine"]


async def test_results_for_what_does_not_exist_are_set_aside(kernel: Kernel, asked: Placed) -> None:
    claimed = await kernel.claim_live(asked.session)
    elsewhere = await kernel.say(event(chat="702", user="702", mid="1", text="other"))
    await kernel.answer(claimed, "no such turn", turn_id=str(uuid4()))
    await kernel.answer(claimed.model_copy(update={"session_id": uuid4()}), "no such session")
    await kernel.answer(
        claimed.model_copy(update={"session_id": elsewhere.session}), "turn of another session"
    )
    assert await kernel.dead() == [
        ("results", "unknown_turn"),
        ("results", "unknown_session"),
        ("results", "unknown_turn"),
    ]
    assert await kernel.published("OUTBOUND") == []


async def test_an_agent_that_is_declared_no_more_ends_its_turns(kernel_with: KernelWith) -> None:
    """Its last turn may still be answered; one that nobody answers is given up after one lease."""
    declared = catalog(profiles={"sales": "seller"}, agents=[Agent("seller")])
    kernel = await kernel_with(declared)
    asked = [
        await kernel.say(event(chat=chat, user="1", mid="1", text="a", profile="sales"))
        for chat in ("1", "2")
    ]
    claims = [await kernel.claim_live(one.session, "seller") for one in asked]
    kernel = kernel.restarted(catalog())
    await kernel.answer(claims[0], "done", agent="seller")
    await kernel.expire(claims[1].turn_id)
    assert await kernel.said(asked[0].session) == ["a", "done"]
    assert await kernel.dead() == [("turns", "turn_failed")]
