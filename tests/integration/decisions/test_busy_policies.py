"""Cases C26, C27 and C30 by policy: what a message does to the turn that runs when it comes."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from chatlane.domain.catalog import Agent, BusyMode, Catalog
from chatlane.domain.turns.lifecycle import MAX_TURN_MESSAGES
from chatlane.turns.claims import take_in
from chatlane_schemas.turns import ClaimReply, TakeReply, TurnTake
from tests.support.worlds.kernel import Fields, Kernel, Placed, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ANN: Fields = {"chat": "701", "user": "701"}
PHOTO: Fields = {"attachments": [{"url": "https://files/1", "media_type": "image/png"}]}


def busy_arrival(busy: BusyMode, **fields: Any) -> Catalog:  # noqa: ANN401 - any field of an agent
    return catalog(agents=[Agent("main", busy=busy, **fields)])


async def long_job(kernel: Kernel, **fields: Any) -> tuple[Placed, ClaimReply]:  # noqa: ANN401 - any field of an event
    first = await kernel.say(
        event(**(ANN | {"mid": "1", "text": "long job"} | fields)), at("09:00")
    )
    return first, await kernel.claim_live(first.session)


async def say(kernel: Kernel, number: int, text: str, **fields: Any) -> Placed:  # noqa: ANN401 - any field of an event
    one = event(**(ANN | {"mid": str(number), "text": text} | fields))
    return await kernel.say(one, at(f"09:00:{number:02}"))


async def take(kernel: Kernel, claimed: ClaimReply, after_seq: int | None = None) -> TakeReply:
    assert claimed.attempt is not None
    assert claimed.token is not None
    request = TurnTake(
        id=uuid4().hex,
        at=datetime.now(UTC),
        turn_id=claimed.turn_id,
        attempt=claimed.attempt,
        token=claimed.token,
        after_seq=claimed.messages[-1].seq if after_seq is None else after_seq,
    )
    return await take_in(kernel.store, kernel.catalog.agents["main"], request)


def told(taken: TakeReply) -> list[str | None]:
    return [message.text for message in taken.messages]


async def test_a_newer_message_takes_the_place_of_what_runs(kernel_with: KernelWith) -> None:
    """`interrupt`: it ends the running turn and is next, with all that came since."""
    kernel = await kernel_with(busy_arrival("interrupt"))
    first, running = await long_job(kernel)
    await say(kernel, 2, "no, the other one")

    ((subject, word),) = kernel.controls
    assert (subject, word["cancel"]) == (
        f"chat.v1.control.main.{running.turn_id}",
        "interrupted",
    )
    assert (await kernel.renew(running)).cancel == "interrupted"
    await say(kernel, 3, "and quickly")
    # One word is enough, and the session stays with its worker until that has heard it.
    assert len(kernel.controls) == 1
    assert await kernel.live_turn(first.session) == running.turn_id
    await kernel.answer(running, "half of it")

    assert [texts(one) for one in await kernel.run_all()] == [["no, the other one", "and quickly"]]
    said = ["long job", "half of it", "no, the other one", "and quickly", "ok"]
    assert await kernel.said(first.session) == said


async def test_a_turn_nobody_works_on_makes_room_at_once(kernel_with: KernelWith) -> None:
    """Its worker died: the next attempt would answer what nobody wants to know any more."""
    kernel = await kernel_with(busy_arrival("interrupt"))
    first, running = await long_job(kernel)
    await kernel.expire(running.turn_id)
    await say(kernel, 2, "no, the other one")
    assert kernel.controls != []
    assert (await kernel.claim(running.turn_id)).status == "void"
    await kernel.deadlines.sweep()
    assert texts(await kernel.run_turn(first.session)) == ["no, the other one"]


async def test_nothing_is_interrupted_that_has_not_begun(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(busy_arrival("interrupt"))
    first = await say(kernel, 1, "a")
    await say(kernel, 2, "b")
    assert kernel.controls == []
    assert texts(await kernel.run_turn(first.session)) == ["a", "b"]


async def test_a_timer_never_interrupts(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(busy_arrival("interrupt"))
    first, running = await long_job(kernel)
    await say(kernel, 2, "tick", kind="system")
    assert kernel.controls == []
    await kernel.answer(running)
    assert texts(await kernel.run_turn(first.session)) == ["tick"]


async def test_an_interruption_and_the_result_it_met_in_one_batch(kernel_with: KernelWith) -> None:
    """The answer was on its way: it is said, and the message is next."""
    kernel = await kernel_with(busy_arrival("interrupt"))
    first, running = await long_job(kernel)
    second = kernel.logged(event(**ANN, mid="2", text="b"), at("09:00:02"))
    await kernel.decide([second, kernel.turn_result(running, "done")])
    assert texts(await kernel.run_turn(first.session)) == ["b"]
    assert [one["text"] for one in await kernel.published("OUTBOUND")] == ["done", "ok"]


async def test_a_running_turn_takes_in_what_steers_it(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(busy_arrival("steer"))
    first, running = await long_job(kernel)
    await say(kernel, 2, "shorter")
    await say(kernel, 3, "in French")

    assert [word["steer"] for _, word in kernel.controls] == [True, True]
    assert (await kernel.renew(running)).steer
    taken = await take(kernel, running)
    assert told(taken) == ["shorter", "in French"]
    # Asked again, for the answer may have got lost; and asked for what came since then.
    assert (await take(kernel, running)).messages == taken.messages
    assert told(await take(kernel, running, taken.messages[-1].seq)) == []
    assert not (await kernel.renew(running)).steer

    await kernel.answer(running, "voilà")
    assert await kernel.live_turn(first.session) is None
    assert await kernel.said(first.session) == ["long job", "shorter", "in French", "voilà"]
    (answer,) = await kernel.published("OUTBOUND")
    assert answer["reply_to"] == "3"


async def test_what_was_not_taken_in_is_the_next_turn(kernel_with: KernelWith) -> None:
    """A word that got lost, a worker that does not listen: nothing is lost with it."""
    kernel = await kernel_with(busy_arrival("steer"))
    first, running = await long_job(kernel)
    await say(kernel, 2, "shorter")
    assert told(await take(kernel, running)) == ["shorter"]
    await say(kernel, 3, "in French")
    await kernel.answer(running)
    assert told(await take(kernel, running)) == []
    assert texts(await kernel.run_turn(first.session)) == ["in French"]
    assert await kernel.said(first.session) == ["long job", "shorter", "ok", "in French", "ok"]


async def test_the_next_attempt_has_what_the_one_before_took_in(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(busy_arrival("steer"))
    _, running = await long_job(kernel)
    await say(kernel, 2, "shorter")
    await take(kernel, running)
    await kernel.expire(running.turn_id)
    again = await kernel.claim(running.turn_id)
    assert texts(again) == ["long job", "shorter"]
    assert (await take(kernel, running)).status == "stale"


async def test_a_file_is_not_taken_in_and_nothing_overtakes_it(kernel_with: KernelWith) -> None:
    """C26: what is said about a photo comes after it."""
    kernel = await kernel_with(busy_arrival("steer"))
    first, running = await long_job(kernel)
    await say(kernel, 2, "shorter")
    await say(kernel, 3, "", **PHOTO)
    await say(kernel, 4, "what is this?")
    assert told(await take(kernel, running)) == ["shorter"]
    await kernel.answer(running)
    assert texts(await kernel.run_turn(first.session)) == ["", "what is this?"]


async def test_a_turn_that_is_to_end_takes_nothing_in(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(busy_arrival("steer"))
    first, running = await long_job(kernel)
    await say(kernel, 2, "shorter")
    await kernel.fetch("UPDATE turns SET cancel = 'stopped'")
    taken = await take(kernel, running)
    assert (taken.status, told(taken)) == ("renewed", [])
    await kernel.answer(running, outcome="no_reply", parts=[])
    assert texts(await kernel.run_turn(first.session)) == ["shorter"]


async def test_a_turn_grows_no_larger_than_any_other(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(busy_arrival("steer"))
    first, running = await long_job(kernel)
    await kernel.say_together(
        (event(**ANN, mid=str(number), text=f"m{number}") for number in range(2, 60)),
        at("09:00:02"),
    )
    assert len(told(await take(kernel, running))) == MAX_TURN_MESSAGES - 1
    await kernel.answer(running)
    rest = texts(await kernel.run_turn(first.session))
    assert rest == [f"m{number}" for number in range(51, 60)]


async def test_a_platform_says_otherwise_than_the_agent(kernel_with: KernelWith) -> None:
    declared = busy_arrival("interrupt")
    platforms = dict(declared.platforms)
    platforms["telegram"] = replace(platforms["telegram"], busy="collect")
    kernel = await kernel_with(replace(declared, platforms=platforms))
    _, running = await long_job(kernel)
    await say(kernel, 2, "b")
    assert kernel.controls == []
    slack: Fields = {"platform": "slack", "chat": "D1", "user": "U1"}
    first = await kernel.say(event(**slack, mid="1", text="a"))
    await kernel.claim_live(first.session)
    await kernel.say(event(**slack, mid="2", text="b"))
    assert len(kernel.controls) == 1
    assert str(running.turn_id) not in kernel.controls[0][0]


async def test_a_chat_is_told_now_and_then_that_something_runs(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(busy_arrival("collect", busy_note="I am still at it."))
    first = await say(kernel, 1, "long job")
    await say(kernel, 2, "not begun yet")
    running = await kernel.claim_live(first.session)
    await say(kernel, 3, "a")
    await say(kernel, 4, "b")
    other = kernel.restarted()
    await say(other, 5, "c")
    (note,) = await kernel.published("OUTBOUND")
    assert (note["kind"], note["text"], note["reply_to"]) == ("notice", "I am still at it.", "3")
    assert note["out_seq"] == 1

    await kernel.fetch("UPDATE lanes SET noted_at = noted_at - interval '31 s'")
    await say(kernel, 6, "d")
    await kernel.answer(running)
    said = [(one["out_seq"], one["kind"]) for one in await kernel.published("OUTBOUND")]
    assert said == [(1, "notice"), (2, "notice"), (3, "answer")]
    assert await kernel.said(first.session) == ["long job", "not begun yet", "ok"]


async def test_nobody_is_told_unless_it_is_set(kernel: Kernel) -> None:
    await long_job(kernel)
    await say(kernel, 2, "a")
    assert await kernel.published("OUTBOUND") == []
