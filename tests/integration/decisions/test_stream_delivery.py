"""Stream delivery: every routed message once and in order, and the first answer to each part."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from chatlane.domain.catalog import Agent
from chatlane.domain.policy import ResetPolicy
from chatlane_schemas.topology.subjects import slot_of
from tests.support.worlds.kernel import (
    SLOTS,
    Fields,
    Kernel,
    Placed,
    at,
    catalog,
    event,
    open_kernel,
)

pytestmark = pytest.mark.integration

ANN: Fields = {"chat": "701", "user": "701"}
STREAM = Agent("main", delivery="stream")


@pytest.fixture
async def kernel(database_url: str) -> AsyncIterator[Kernel]:
    declared = catalog(agents=[STREAM, Agent("turner")], profiles={"turner": "turner"})
    async with open_kernel(database_url, declared) as opened:
        yield opened


@pytest.fixture
async def asked(kernel: Kernel) -> Placed:
    return await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))


async def routed(kernel: Kernel) -> list[dict[str, Any]]:
    return await kernel.published("ROUTED")


async def test_each_message_is_routed_at_once_with_its_place(kernel: Kernel) -> None:
    said = [
        await kernel.say(event(**ANN, mid=str(mid), text=f"m{mid}"), at("09:00"))
        for mid in range(3)
    ]
    messages = await routed(kernel)
    assert [(one["seq"], one["text"]) for one in messages] == [(1, "m0"), (2, "m1"), (3, "m2")]
    assert {one["session_id"] for one in messages} == {str(said[0].session)}
    assert {one["session_key"] for one in messages} == {said[0].key}
    rows = await kernel.fetch("SELECT subject, message_id FROM outbox WHERE stream = 'ROUTED'")
    slot = slot_of(said[0].session, SLOTS)
    assert {row[0] for row in rows} == {f"chat.v1.routed.main.{slot}.{said[0].session}"}
    assert [row[1] for row in rows] == [one["id"] for one in messages]
    assert await kernel.value("SELECT count(*) FROM turns") == 0


async def test_the_first_answer_wins_and_later_ones_are_late(kernel: Kernel, asked: Placed) -> None:
    (question,) = await routed(kernel)
    first = kernel.stream_answer(question, "first", at("09:01"))
    later = kernel.stream_answer(question, "later", at("09:02"), id="later-1")
    for message in (first, later, first, later):
        await kernel.decide([message])
    assert await kernel.said(asked.session) == ["hi", "first"]
    (answer,) = await kernel.published("OUTBOUND")
    assert (answer["text"], answer["reply_to"], answer["out_seq"]) == ("first", "1", 1)
    assert answer["target"]["chat"]["id"] == "701"
    assert kernel.metrics.counts["duplicates", "results"] == 1
    (late,) = await kernel.fetch("SELECT id, reply_to FROM late_results")
    assert tuple(late) == ("later-1", question["id"])


async def test_answers_of_one_batch_are_told_apart_as_well(kernel: Kernel, asked: Placed) -> None:
    (question,) = await routed(kernel)
    first = kernel.stream_answer(question, "first", at("09:01"))
    later = kernel.stream_answer(question, "later", at("09:01"))
    second = kernel.stream_answer(question, "second part", at("09:01"), part=1)
    await kernel.decide([first, first, later, second])
    assert await kernel.said(asked.session) == ["hi", "first", "second part"]
    assert [one["part"] for one in await kernel.published("OUTBOUND")] == [0, 1]
    assert kernel.metrics.counts["duplicates", "results"] == 1
    assert kernel.metrics.counts["late_results", "main"] == 1


async def test_answers_may_come_in_any_order(kernel: Kernel, asked: Placed) -> None:
    await kernel.say(event(**ANN, mid="2", text="and?"), at("09:01"))
    one, two = await routed(kernel)
    await kernel.decide([kernel.stream_answer(two, "to two", at("09:02"))])
    await kernel.decide([kernel.stream_answer(one, "to one", at("09:03"))])
    assert await kernel.said(asked.session) == ["hi", "and?", "to two", "to one"]
    told = [
        (answer["reply_to"], answer["out_seq"]) for answer in await kernel.published("OUTBOUND")
    ]
    assert told == [("2", 1), ("1", 2)]


async def test_an_answer_of_another_agent_is_set_aside(kernel: Kernel, asked: Placed) -> None:
    (question,) = await routed(kernel)
    await kernel.decide([kernel.stream_answer(question, "stolen", agent="turner")])
    await kernel.decide([kernel.stream_answer(question, "mine")])
    assert await kernel.dead() == [("results", "agent_mismatch")]
    assert await kernel.said(asked.session) == ["hi", "mine"]


async def test_answers_to_nothing_are_set_aside(kernel: Kernel, asked: Placed) -> None:
    other = await kernel.say(event(chat="702", user="702", mid="1", text="other"))
    question, _ = await routed(kernel)
    await kernel.decide(
        [
            kernel.stream_answer(question, reply_to=str(uuid4())),
            kernel.stream_answer(question, reply_to="not-a-message"),
            kernel.stream_answer(question, session_id=str(other.session)),
            kernel.stream_answer(question, session_id=str(uuid4())),
        ]
    )
    assert sorted(await kernel.dead()) == [
        ("results", "invalid"),
        ("results", "invalid"),
        ("results", "invalid"),
        ("results", "unknown_session"),
    ]
    assert await kernel.said(asked.session) == ["hi"]
    assert await kernel.said(other.session) == ["other"]


async def test_an_answer_cannot_be_answered(kernel: Kernel, asked: Placed) -> None:
    (question,) = await routed(kernel)
    await kernel.decide([kernel.stream_answer(question, "first")])
    await kernel.fetch("UPDATE messages SET id = gen_random_uuid() WHERE role = 'assistant'")
    answer = await kernel.value("SELECT id FROM messages WHERE role = 'assistant'")
    await kernel.decide([kernel.stream_answer(question, "echo", reply_to=str(answer))])
    assert await kernel.dead() == [("results", "invalid")]
    assert await kernel.said(asked.session) == ["hi", "first"]


async def test_an_answer_after_a_reset_belongs_to_the_old_session(database_url: str) -> None:
    policy = ResetPolicy("idle", idle=timedelta(hours=1))
    async with open_kernel(database_url, catalog(reset=policy, agents=[STREAM])) as kernel:
        old = await kernel.say(event(**ANN, mid="1", text="slow one"), at("09:00"))
        new = await kernel.say(event(**ANN, mid="2", text="still there?"), at("11:00"))
        question, _ = await routed(kernel)
        await kernel.decide([kernel.stream_answer(question, "at last", at("11:01"))])
        assert await kernel.said(old.session) == ["slow one", "at last"]
        assert await kernel.said(new.session) == ["still there?"]


async def test_a_claim_finds_no_turns_of_a_stream_agent(kernel: Kernel, asked: Placed) -> None:
    assert (await kernel.claim(asked.session)).status == "unknown"


async def test_a_result_of_a_turn_that_no_stream_agent_has_is_set_aside(
    kernel: Kernel, asked: Placed
) -> None:
    body: Fields = {
        "v": 1,
        "id": "r1",
        "at": at("09:01").isoformat(),
        "session_id": str(asked.session),
        "turn_id": str(uuid4()),
        "attempt": 1,
        "token": "t",
        "outcome": "ok",
    }
    await kernel.decide([kernel.result(asked.session, body)])
    assert await kernel.dead() == [("results", "unknown_turn")]


async def test_a_message_of_a_turn_has_no_stream_answer(kernel: Kernel) -> None:
    """It would go past the attempt and token that fence the turn."""
    placed = await kernel.say(event(**ANN, mid="1", text="hi", profile="turner"), at("09:00"))
    claimed = await kernel.claim_live(placed.session, "turner")
    question = {"session_id": str(placed.session), "id": str(claimed.messages[0].id)}
    answer = kernel.stream_answer(question, "past the fence", at("09:01"), "turner")
    await kernel.decide([answer])
    assert await kernel.dead() == [("results", "invalid")]
    assert await kernel.published("OUTBOUND") == []
