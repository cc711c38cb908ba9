"""Cases C16 to C18, C20, C21 and C28: what failures and deaths leave behind.

A kill is here a process that stops at one statement and is followed by one that knows only the
database; processes that are really killed are in the acceptance tests.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from chatlane.decisions.batch_decision import BatchDecision, decoded
from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.log import LogMessage
from chatlane.errors import StoreUnavailableError
from chatlane_schemas.turns import ClaimReply, ClaimStatus
from tests.integration.decisions.faulty_store import DyingStore, KilledError, refuse_once
from tests.support.worlds.kernel import SLOTS, Fields, Kernel, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
Stage = Callable[[Kernel], Awaitable[object]]

WRITTEN_WHEN_IT_ARRIVES = ("lanes", "sessions", "turns", "waiting", "seen", "outbox")


@pytest.mark.parametrize("table", WRITTEN_WHEN_IT_ARRIVES)
async def test_what_failed_once_is_no_repeat_when_it_comes_again(
    own_kernel: Kernel, table: str
) -> None:
    """C16: mark, session, message and work item are there together or not at all."""
    kernel = own_kernel
    await refuse_once(kernel.owner, table)
    important = event(chat="701", user="701", mid="300", text="important")
    message = kernel.logged(important, at("09:00:00"))
    with pytest.raises(asyncpg.PostgresError, match="refused"):
        await kernel.decide([message])
    for one in WRITTEN_WHEN_IT_ARRIVES:
        assert await kernel.value(f"SELECT count(*) FROM {one}") == 0  # noqa: S608

    kernel = kernel.restarted()
    await kernel.decide([message])
    placed = await kernel.placed(message)
    await kernel.say(important, at("09:00:05"))
    await kernel.say(important.model_copy(update={"id": "another"}), at("09:00:09"))
    await kernel.run_all()
    assert await kernel.said(placed.session) == ["important", "ok"]
    assert await kernel.turns_of(placed.session) == 1
    assert len(await kernel.published("OUTBOUND")) == 1


@pytest.mark.parametrize("table", ["messages", "outbox"])
async def test_a_result_that_failed_once_counts_when_it_comes_again(
    own_kernel: Kernel, table: str
) -> None:
    """C16, on the second log."""
    kernel = own_kernel
    placed = await kernel.say(event(chat="701", user="701", mid="300", text="important"))
    claimed = await kernel.claim_live(placed.session)
    await refuse_once(kernel.owner, table)
    result = kernel.turn_result(claimed, "done", at("09:01"))
    with pytest.raises(asyncpg.PostgresError, match="refused"):
        await kernel.decide([result])
    assert await kernel.said(placed.session) == ["important"]

    kernel = kernel.restarted()
    await kernel.decide([result])
    await kernel.decide([result])
    assert await kernel.said(placed.session) == ["important", "done"]
    assert len(await kernel.published("OUTBOUND")) == 1
    assert kernel.metrics.counts["duplicates", "results"] == 1


async def test_a_claim_that_failed_once_may_be_asked_again(own_kernel: Kernel) -> None:
    """C16: the transcript refuses the rows; nothing was granted."""
    kernel = own_kernel
    placed = await kernel.say(event(chat="701", user="701", mid="300", text="important"))
    await refuse_once(kernel.owner, "messages")
    turn = await kernel.live_turn(placed.session)
    assert turn is not None
    with pytest.raises(StoreUnavailableError):
        await kernel.claim(turn, claim_id="c1")
    assert await kernel.waiting(placed.session) == ["important"]
    claimed = await kernel.claim(turn, claim_id="c1")
    assert (claimed.status, claimed.attempt, texts(claimed)) == ("claimed", 1, ["important"])


async def in_the_end(kernel: Kernel, survives: int, stage: Stage) -> tuple[Kernel, bool]:
    """Run a stage in a process that may die, and again in the one that follows.

    Returns:
        The kernel that goes on, and whether the first one died.
    """
    store = DyingStore(kernel.store, survives)
    try:
        await stage(Kernel(store, kernel.catalog, kernel.owner))  # type: ignore[arg-type]
    except Exception:
        # Whoever asked the desk hears of its death only that the store was not there.
        if not store.is_dead:
            raise
        kernel = kernel.restarted()
        await stage(kernel)
    return kernel, store.is_dead


def arrives(message: LogMessage) -> Stage:
    return lambda router: router.decide([message])


def is_claimed(turn_id: UUID, claims: list[ClaimReply]) -> Stage:
    async def claim(router: Kernel) -> None:
        claims.append(await router.claim(turn_id, claim_id=f"claim-{turn_id}"))

    return claim


@pytest.mark.slow
async def test_a_death_at_any_statement_loses_and_repeats_nothing(kernel: Kernel) -> None:
    """C17: of arrival, claim and result, each statement in turn, the commits included."""
    died: Counter[str] = Counter()
    claims: list[ClaimReply] = []
    for survives in range(40):
        chat = f"{survives}@s.whatsapp.net"
        first = event("whatsapp", chat=chat, user=chat, mid="W1", text="do the thing")
        message = kernel.logged(first, at("09:00"))
        kernel, is_dead = await in_the_end(kernel, survives, arrives(message))
        died["arrival"] += is_dead
        session = (await kernel.placed(message)).session
        turn = await kernel.live_turn(session)
        assert turn is not None

        kernel, is_dead = await in_the_end(kernel, survives, is_claimed(turn, claims))
        died["claim"] += is_dead
        assert (claims[-1].status, claims[-1].attempt) == ("claimed", 1)

        result = kernel.turn_result(claims[-1], "done", at("09:01"))
        kernel, is_dead = await in_the_end(kernel, survives, arrives(result))
        died["result"] += is_dead
        assert await kernel.said(session) == ["do the thing", "done"]
        assert await kernel.turns_of(session) == 1
        assert await kernel.live_turn(session) is None
    assert len(await kernel.published("OUTBOUND")) == 40
    assert len(await kernel.published("TURNS")) == 40
    # Each stage was survived in the end, so every one of its statements was the last one once.
    assert 5 < min(died.values()) <= max(died.values()) < 40


async def test_a_death_of_the_sweeper_ends_a_lease_once(kernel: Kernel) -> None:
    """C17: the lease of a worker that is gone, with a router that dies while it sweeps."""
    for survives in range(20):
        placed = await kernel.say(event(chat=str(survives), user="1", mid="1", text="hi"))
        claimed = await kernel.claim_live(placed.session)
        await kernel.let_expire(claimed.turn_id)
        kernel, _ = await in_the_end(kernel, survives, lambda router: router.deadlines.sweep())
        again = await kernel.claim(claimed.turn_id)
        assert (again.attempt, texts(again)) == (2, ["hi"])
        assert again.messages == claimed.messages
    # The first notice of each, and one for each lease.
    assert len(await kernel.published("TURNS")) == 40


async def test_what_waits_behind_a_running_turn_survives(kernel: Kernel) -> None:
    """C18: the turn goes on, since it is the worker's; the ten come after it, in order."""
    ann: Fields = {"chat": "701", "user": "701"}
    long_job = await kernel.say(event(**ann, mid="1", text="long job"), at("09:00:00"))
    running = await kernel.claim_live(long_job.session)
    expected: list[str | None] = [f"q{number}" for number in range(2, 12)]
    for number, text in enumerate(expected, 2):
        if number == 7:
            kernel = kernel.restarted()
        await kernel.say(event(**ann, mid=str(number), text=text), at(f"09:00:{number + 3:02}"))

    kernel = kernel.restarted()
    assert (await kernel.renew(running)).status == "renewed"
    await kernel.answer(running, "long answer", at("09:00:30"))
    kernel = kernel.restarted()
    assert [texts(claimed) for claimed in await kernel.run_all()] == [expected]
    assert await kernel.said(long_job.session) == ["long job", "long answer", *expected, "ok"]


async def test_a_turn_whose_worker_is_gone_is_tried_again_before_what_waits(
    kernel: Kernel,
) -> None:
    """C18: the second attempt gets the same rows; what the first one says then changes nothing."""
    ann: Fields = {"chat": "701", "user": "701"}
    placed = await kernel.say(event(**ann, mid="1", text="long job"), at("09:00:00"))
    lost = await kernel.claim_live(placed.session)
    await kernel.say(event(**ann, mid="2", text="q2"), at("09:00:05"))
    kernel = kernel.restarted()
    await kernel.expire(lost.turn_id)
    again = await kernel.claim(lost.turn_id)
    assert (again.attempt, texts(again)) == (2, ["long job"])
    await kernel.answer(lost, "late", at("09:01"))
    await kernel.answer(again, "in time", at("09:02"))
    await kernel.run_all()
    assert await kernel.said(placed.session) == ["long job", "in time", "q2", "ok"]
    assert await kernel.value("SELECT count(*) FROM late_results") == 1


async def test_a_dead_worker_holds_a_session_no_longer_than_its_lease(kernel: Kernel) -> None:
    """C20: with the documented lease of 30 s; the conversation keeps its history."""
    ann: Fields = {"chat": "701", "user": "701"}
    first = await kernel.say(event(**ann, mid="1", text="long job"), at("09:00:00"))
    dead = await kernel.claim_live(first.session)
    assert timedelta(0) < await kernel.due_in(dead.turn_id) <= timedelta(seconds=30)

    kernel = kernel.restarted()
    second = await kernel.say(event(**ann, mid="2", text="hello?"), at("09:01:30"))
    assert second.session == first.session
    await kernel.expire(dead.turn_id)
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["long job"], ["hello?"]]
    assert await kernel.said(first.session) == ["long job", "ok", "hello?", "ok"]


async def test_a_turn_that_ended_and_could_not_say_so_counts_as_dead(kernel: Kernel) -> None:
    """C20: the result is lost; after the lease the turn is tried again, and given up in the end."""
    placed = await kernel.say(event(chat="701", user="701", mid="1", text="a"), at("09:00"))
    for attempt in (1, 2, 3):
        claimed = await kernel.claim_live(placed.session)
        assert claimed.attempt == attempt
        kernel = kernel.restarted()
        await kernel.expire(claimed.turn_id)
    assert await kernel.live_turn(placed.session) is None
    after = await kernel.say(event(chat="701", user="701", mid="2", text="b"), at("09:10"))
    # Three in a row: what the session holds may be what ends the workers.
    assert after.session != placed.session
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["b"]]


BAD_BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe\x00",
    b'{"v": 1}',
    b'{"v": 2, "id": "x"}',
    b"[" * 100_000,
    b'{"v": 1, "id": "' + b"x" * 300_000 + b'"}',
]


async def test_a_body_that_cannot_be_read_stops_nothing_behind_it(kernel: Kernel) -> None:
    """C21: set aside at once, with a reason, in the batch that goes on."""
    ann, bob = event(chat="701", user="701", text="?"), event(chat="702", user="702", text="?")
    log = [kernel.logged(ann.model_copy(update={"message_id": "1", "text": "ok"}), at("09:00"))]
    log += [
        kernel.raw("inbound", log[0].partition, log[0].subject, body, at("09:01"))
        for body in BAD_BODIES
    ]
    log.append(
        kernel.logged(ann.model_copy(update={"message_id": "3", "text": "here?"}), at("09:02"))
    )
    log.append(kernel.logged(bob.model_copy(update={"message_id": "1"}), at("09:02")))
    await kernel.decide(log)

    assert [texts(claimed) for claimed in await kernel.run_all()] == [["ok", "here?"], ["?"]]
    dead = await kernel.dead()
    assert [stage for stage, _ in dead] == ["inbound"] * len(BAD_BODIES)
    assert len(await kernel.published("DEAD")) == len(BAD_BODIES)


async def test_a_message_no_worker_survives_is_given_up_and_the_next_one_runs(
    kernel: Kernel,
) -> None:
    """C21: three attempts, counted in the database, whatever restarts; others never wait."""
    ann: Fields = {"chat": "701", "user": "701"}
    poison = await kernel.say(event(**ann, mid="2", text="poison"), at("09:01"))
    turn = await kernel.live_turn(poison.session)
    assert turn is not None
    await kernel.claim(turn)
    await kernel.say(event(**ann, mid="3", text="still here?"), at("09:02"))
    other = await kernel.say(event(chat="702", user="702", mid="1", text="other"), at("09:02"))
    await kernel.run_turn(other.session)

    await kernel.expire(turn)
    for attempt in (2, 3):
        kernel = kernel.restarted()
        assert (await kernel.claim(turn)).attempt == attempt
        await kernel.expire(turn)
    assert (await kernel.claim(turn)).status == "finished"
    assert await kernel.dead() == [("turns", "turn_failed")]
    (letter,) = await kernel.published("DEAD")
    assert (letter["stage"], letter["reason"]) == ("turns", "turn_failed")
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["still here?"]]
    told = await kernel.published("OUTBOUND")
    assert [(one["kind"], one["target"]["chat"]["id"]) for one in told] == [
        ("answer", "702"),
        ("notice", "701"),
        ("answer", "701"),
    ]


async def test_a_message_that_killed_its_readers_is_not_looked_into(kernel: Kernel) -> None:
    """C21: the tries are counted in the partition's row; here is what follows from the third."""
    killer = kernel.logged(event(chat="701", user="701", mid="1", text="killer"), at("09:00"))
    after = kernel.logged(event(chat="701", user="701", mid="2", text="after"), at("09:01"))
    async with kernel.writer.begin() as unit_of_work:
        contents = [
            decoded(killer, kernel.catalog, is_killer=True),
            decoded(after, kernel.catalog),
        ]
        await BatchDecision(kernel.catalog, SLOTS).run(unit_of_work, contents)
    assert await kernel.dead() == [("inbound", "process_killer")]
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["after"]]


async def test_a_batch_that_died_is_read_again_in_its_order(kernel: Kernel) -> None:
    """C28: there is no redelivery that could put the oldest message last."""
    ann: Fields = {"chat": "701", "user": "701"}
    log = [
        kernel.logged(event(**ann, mid=str(number), text=f"m{number}"), at(f"09:00:0{number}"))
        for number in range(1, 6)
    ]
    for survives in (1, 5, 9):
        dying = Kernel(DyingStore(kernel.store, survives), kernel.catalog, kernel.owner)  # type: ignore[arg-type]
        with pytest.raises(KilledError):
            await dying.decide(log)
    await kernel.decide(log)
    await kernel.say(event(**ann, mid="6", text="m6"), at("09:02"))
    (claimed,) = await kernel.run_all()
    assert texts(claimed) == ["m1", "m2", "m3", "m4", "m5", "m6"]


async def test_two_hundred_turns_for_two_processes_are_two_hundred_turns(
    kernel: Kernel,
) -> None:
    """C28: both are told of every turn and want every one; nobody gets what another has."""
    other = kernel.restarted()
    await kernel.say_together(
        [event(chat=str(number), user="1", mid="1", text="hi") for number in range(200)]
    )
    told = [notice["turn_id"] for notice in await kernel.published("TURNS")]

    async def claim_all(router: Kernel, order: list[str]) -> list[ClaimReply]:
        return await asyncio.gather(*(router.claim(turn_id) for turn_id in order))  # type: ignore[arg-type]

    answers = await asyncio.gather(claim_all(kernel, told), claim_all(other, told[::-1]))
    granted = [one for each in answers for one in each if one.status is ClaimStatus.CLAIMED]
    refused = [one for each in answers for one in each if one.status is ClaimStatus.TAKEN]
    assert (len(granted), len(refused)) == (200, 200)
    assert len({one.turn_id for one in granted}) == 200
    assert {one.attempt for one in granted} == {1}


async def test_one_worker_at_a_time_whatever_is_redelivered(kernel_with: KernelWith) -> None:
    """C28: a notification that comes again while the turn runs starts nothing."""
    kernel = await kernel_with(catalog(agents=[Agent("main", busy="queue")]))
    placed = await kernel.say(event(chat="701", user="701", mid="1", text="m1"), at("09:00"))
    await kernel.say(event(chat="701", user="701", mid="2", text="m2"), at("09:00:01"))
    first = await kernel.claim_live(placed.session)
    for _ in range(3):
        assert (await kernel.claim(first.turn_id)).status == "taken"
    await kernel.answer(first)
    assert (await kernel.claim(first.turn_id)).status == "finished"
    assert texts(await kernel.run_turn(placed.session)) == ["m2"]
