"""What people tell the router that changes what runs, what was said, or where they are."""

import asyncio
import re
from collections import Counter
from datetime import timedelta
from random import Random
from uuid import UUID, uuid4

import pytest

from chatlane.domain.catalog import Agent
from chatlane.domain.commands.command_words import CommandRules
from chatlane.domain.log import LogMessage
from chatlane.domain.notices import ENGLISH, NoticeId
from chatlane.domain.policy import KeyRules
from tests.integration.decisions.commands.test_commands import ANN, BEN, GROUP, everything, lane
from tests.integration.decisions.test_crashes import Stage, in_the_end
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import DAY, Fields, Kernel, at, catalog, event, texts

pytestmark = pytest.mark.integration

THREAD: Fields = {"chat": "C5", "thr": "1770.01", "user": "U1", "kind_of_chat": "channel"}


async def tell(kernel: Kernel, mid: str, text: str, clock: str = "09:10", **chat: object) -> str:
    """Give a command and return its answer."""
    await kernel.say(event(**{**ANN, **chat}, mid=mid, text=text), at(clock))
    return (await kernel.told())[-1]


async def talk(kernel: Kernel, *said: str, **chat: object) -> UUID:
    """Say things, each answered, and return their session."""
    placed = None
    for text in said:
        placed = await kernel.say(event(**{**ANN, **chat}, mid=f"m{uuid4().hex}", text=text))
        await kernel.run_turn(placed.session, f"answer to {text}")
    assert placed is not None
    return placed.session


# Stopping.


async def test_c30_a_stop_runs_nothing_on_by_itself(kernel: Kernel) -> None:
    slack = {**THREAD, "platform": "slack"}
    one = await kernel.say(event(**slack, mid="1", text="long job"), at("09:00"))
    running = await kernel.claim_live(one.session)
    for number, text in enumerate("ABC", 2):
        await kernel.say(event(**slack, mid=str(number), text=text), at(f"09:00:0{number}"))
    await kernel.say(event(**slack, mid="5", text="/stop"), at("09:00:10"))

    assert (await kernel.renew(running)).cancel == "stopped"
    assert await kernel.told() == ["Stopped. 3 waiting messages will not be answered."]
    await kernel.answer(running, "", outcome="no_reply", parts=[])
    assert await kernel.live_turn(one.session) is None
    six = await kernel.say(event(**slack, mid="6", text="hello"), at("09:01:30"))
    claimed = await kernel.run_turn(six.session)
    assert six.session == one.session
    assert texts(claimed) == ["hello"]
    assert await kernel.said(one.session) == ["long job", "A", "B", "C", "hello", "ok"]


async def test_c30_where_nothing_runs_a_stop_changes_nothing(kernel: Kernel) -> None:
    await talk(kernel, "a")
    before = await everything(kernel)
    assert await tell(kernel, "2", "/stop") == "There is nothing to stop."
    assert await tell(kernel, "3", "/stop", **BEN) == "There is nothing to stop."
    assert await everything(kernel) == before


async def test_c20_a_stop_is_answered_whatever_became_of_the_worker(kernel: Kernel) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="long job"), at("09:00"))
    await kernel.claim_live(one.session)
    restarted = kernel.restarted()
    await restarted.say(event(**ANN, mid="2", text="hello?"), at("09:01:30"))
    told = await tell(restarted, "3", "/stop", "09:01:40")
    assert told == "Stopped. 1 waiting message will not be answered."
    turn = await restarted.live_turn(one.session)
    assert turn is not None
    await restarted.expire(turn)
    four = await restarted.say(event(**ANN, mid="4", text="and now?"), at("09:01:50"))
    claimed = await restarted.run_turn(four.session)
    assert four.session == one.session
    assert texts(claimed) == ["and now?"]


async def test_a_stop_in_the_batch_of_what_it_stops(kernel: Kernel) -> None:
    one, *_, last = await kernel.say_together(
        event(**ANN, mid=str(n), text=text) for n, text in enumerate(["a", "b", "/stop", "c"])
    )
    assert one.session == last.session
    claimed = await kernel.run_turn(last.session)
    assert texts(claimed) == ["c"]
    assert await kernel.told() == ["2 waiting messages will not be answered."]


async def test_a_stop_and_the_result_of_what_it_stops_in_one_batch(kernel: Kernel) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="a"))
    claimed = await kernel.claim_live(one.session)
    await kernel.say(event(**ANN, mid="2", text="b"))
    stop = kernel.logged(event(**ANN, mid="3", text="/stop"), at("09:05"))
    await kernel.decide([stop, kernel.turn_result(claimed, "done")])
    assert await kernel.live_turn(one.session) is None
    assert await kernel.waiting(one.session) == []


async def test_an_agent_that_answers_each_message_has_nothing_to_stop(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", delivery="stream")]))
    await kernel.say(event(**ANN, mid="1", text="a"))
    assert "answers each message separately" in await tell(kernel, "2", "/stop")


@pytest.mark.parametrize("is_together", [False, True])
async def test_c31_after_new_the_old_turn_says_nothing_more(
    kernel: Kernel, *, is_together: bool
) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="long job"), at("09:00"))
    running = await kernel.claim_live(one.session)
    rest = [event(**ANN, mid="2", text="/new"), event(**ANN, mid="3", text="fresh question")]
    if is_together:
        await kernel.say_together(rest, at("09:00:05"))
    else:
        for number, one_of_them in enumerate(rest):
            await kernel.say(one_of_them, at(f"09:00:0{5 + number}"))
    fresh = await lane(kernel, one.session)
    assert (await kernel.renew(running)).cancel == "session_ended"
    await kernel.answer(running, "old words", at("09:00:20"))
    four = await kernel.say(event(**ANN, mid="4", text="more"), at("09:00:30"))

    assert four.session == fresh != one.session
    assert texts(await kernel.run_turn(fresh)) == ["fresh question", "more"]
    assert await kernel.said(fresh) == ["fresh question", "more", "ok"]
    said = [row["text"] for row in await kernel.published("OUTBOUND")]
    assert "old words" not in said


# Taking back.


async def test_c35_undo_takes_back_whole_turns(kernel: Kernel) -> None:
    session = await talk(kernel, "u1", "u2", "u3")
    assert await tell(kernel, "1", "/undo") == "Undone, starting with: u3"
    assert (await kernel.said(session))[-1] == "answer to u2"
    again = kernel.restarted()
    assert await tell(again, "2", "/undo") == "Undone, starting with: u2"
    assert await again.said(session) == ["u1", "answer to u1"]
    assert await tell(again, "2", "/undo") == "Undone, starting with: u2"
    assert await again.said(session) == ["u1", "answer to u1"]
    assert await tell(again, "3", "/undo 5") == "Undone, starting with: u1"
    assert await again.said(session) == []
    assert await tell(again, "4", "/undo") == "There is nothing to undo."
    assert await tell(again, "5", "/retry") == "There is nothing to retry."


async def test_undo_of_what_was_said_in_the_same_batch(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", delivery="stream")]))
    said = ["a", "/undo", "b", "c", "/undo", "/undo 9", "d"]
    *_, last = await kernel.say_together(
        event(**ANN, mid=str(n), text=text) for n, text in enumerate(said)
    )
    assert await kernel.said(last.session) == ["d"]
    assert await kernel.told() == [
        "Undone, starting with: a",
        "Undone, starting with: c",
        "Undone, starting with: b",
    ]


@pytest.mark.parametrize("argument", ["0", "-1", "x", "1 2", "9" * 50, "²"])
async def test_undo_takes_a_number(kernel: Kernel, argument: str) -> None:
    await talk(kernel, "a")
    before = await everything(kernel)
    assert await tell(kernel, "1", f"/undo {argument}") == "That is not a valid number of turns."
    assert await everything(kernel) == before


@pytest.mark.parametrize("command", ["/undo", "/retry"])
async def test_what_is_being_answered_is_not_taken_back(kernel: Kernel, command: str) -> None:
    session = await talk(kernel, "a")
    await kernel.say(event(**ANN, mid="1", text="b"))
    await kernel.claim_live(session)
    before = await everything(kernel)
    assert (await tell(kernel, "2", command)).startswith("An answer is in progress.")
    assert await everything(kernel) == before


@pytest.mark.parametrize("delivery", ["turns", "stream"])
async def test_retry_asks_once_more(kernel_with: KernelWith, delivery: str) -> None:
    agent = Agent("main", delivery="stream" if delivery == "stream" else "turns")
    kernel = await kernel_with(catalog(agents=[agent]))
    one = await kernel.say(event(**ANN, mid="1", text="a"))
    if delivery == "turns":
        await kernel.run_turn(one.session, "wrong")
    assert await tell(kernel, "2", "/retry") == "Retrying."
    assert await tell(kernel, "2", "/retry") == "Retrying."
    if delivery == "turns":
        claimed = await kernel.run_turn(one.session, "right")
        assert texts(claimed) == ["a"]
        assert await kernel.said(one.session) == ["a", "right"]
    else:
        assert [row["text"] for row in await kernel.published("ROUTED")] == ["a", "a"]
        assert await kernel.said(one.session) == ["a"]


@pytest.mark.parametrize("command", ["/undo", "/retry", "/branch", "/model", "/model x", "/stop"])
async def test_where_nobody_has_talked_nothing_is_opened(kernel: Kernel, command: str) -> None:
    await tell(kernel, "1", command)
    assert await everything(kernel) == []


# Going elsewhere.


async def test_c33_nobody_is_led_to_what_is_anothers(kernel: Kernel) -> None:
    salary = await talk(kernel, "salary talk")
    await tell(kernel, "2", "/title budget", "09:01")
    other = {**BEN}
    unknown = await tell(kernel, "0", "/resume no such title", "09:02", **other)
    by_title = await tell(kernel, "1", "/resume budget", "09:03", **other)
    four = await kernel.say(event(**BEN, mid="2", text="what did we say?"), at("09:04"))
    by_id = await tell(kernel, "3", f"/resume {salary}", "09:05", **other)
    before = await everything(kernel)
    room = await tell(kernel, "9", "/resume budget", "09:06", **GROUP, user="701")
    room_by_id = await tell(kernel, "10", f"/resume {salary}", "09:06", **GROUP, user="701")

    assert {unknown, by_title, by_id, room, room_by_id} == {"There is no such conversation here."}
    assert four.session != salary
    assert await lane(kernel, four.session) == four.session
    assert await everything(kernel) == before


async def test_c34_resume_goes_back_to_the_one_with_the_title(kernel: Kernel) -> None:
    first = await talk(kernel, "a")
    await tell(kernel, "2", "/title plan", "09:01")
    await tell(kernel, "3", "/new", "09:02")
    second = await talk(kernel, "b")
    assert await tell(kernel, "5", "/resume plan", "09:04") == "Back in “plan”."
    assert await lane(kernel, first) == first
    six = await kernel.say(event(**ANN, mid="x", text="back"), at("09:05"))
    assert six.session == first
    ends = await kernel.fetch("SELECT id, end_reason FROM sessions ORDER BY id")
    assert {row[0]: row[1] for row in ends} == {first: None, second: "switched"}
    await tell(kernel, "6", "/new", "09:05")
    assert "already" in await tell(kernel, "7", "/title plan", "09:06")


async def test_resume_by_number_and_by_id(kernel: Kernel) -> None:
    first = await talk(kernel, "first words")
    await tell(kernel, "1", "/new", "09:11")
    second = await talk(kernel, "second words")
    listed = (await tell(kernel, "2", "/resume", "09:12")).splitlines()
    assert [line[:8] for line in listed[:2]] == ["1. secon", "2. first"]
    assert listed[2] == "Write /resume and a number to go back to one."
    assert await tell(kernel, "3", "/resume 2", "09:13") == "Back in first words."
    assert await lane(kernel, first) == first
    assert await tell(kernel, "4", f"/resume {str(second).upper()}", "09:14")
    assert await lane(kernel, first) == second
    assert await tell(kernel, "5", "/resume 1", "09:15") == "You are already in this conversation."
    for wrong in ("3", "0", "first words", str(uuid4())):
        told = await tell(kernel, f"w{wrong}", f"/resume {wrong}", "09:16")
        assert told == "There is no such conversation here."
    assert await lane(kernel, first) == second


async def test_resume_in_the_batch_of_what_it_goes_back_to(kernel: Kernel) -> None:
    said = ["a", "/title x", "/new y", "b", "/resume x", "c", "/new", "/resume 2", "d"]
    *_, last = await kernel.say_together(
        event(**ANN, mid=str(n), text=text) for n, text in enumerate(said)
    )
    titles = await kernel.fetch("SELECT title, id FROM sessions")
    assert last.session == {row[0]: row[1] for row in titles}["y"]
    told = await kernel.told()
    assert told[2] == "Back in “x”.\nThe answer in progress will still arrive."
    assert told[4].startswith("Back in “y”.")


async def test_resume_where_nobody_has_talked_leads_the_new_place_there(kernel: Kernel) -> None:
    first = await talk(kernel, "a", thr="1")
    assert await tell(kernel, "1", "/resume 1", thr="2") == "Back in a."
    placed = await kernel.say(event(**ANN, thr="2", mid="2", text="b"))
    also = await kernel.say(event(**ANN, thr="1", mid="3", text="c"))
    assert placed.session == also.session == first


@pytest.mark.parametrize("is_together", [False, True])
async def test_f08_new_moves_the_place_where_it_is_said(
    kernel: Kernel, *, is_together: bool
) -> None:
    first = await talk(kernel, "a", thr="1")
    said = [
        event(**ANN, thr="2", mid=f"n{n}", text=text)
        for n, text in enumerate(["/resume 1", "/new"])
    ]
    if is_together:
        await kernel.say_together(said, at("09:11"))
    else:
        for one in said:
            await kernel.say(one, at("09:11"))
    here = await kernel.say(event(**ANN, thr="2", mid="2", text="b"), at("09:12"))
    there = await kernel.say(event(**ANN, thr="1", mid="3", text="c"), at("09:13"))
    assert there.session == first != here.session
    assert "only in this chat" in (await kernel.told())[-1]
    assert await kernel.value("SELECT count(*) FROM sessions") == 2
    assert await kernel.value("SELECT count(*) FROM sessions WHERE ended_at IS NULL") == 2
    # Each place is alone in its conversation again.
    told = await tell(kernel, "4", "/new", "09:14", thr="1")
    assert "only here" not in told
    ends = "SELECT end_reason FROM sessions WHERE id = $1"
    assert await kernel.value(ends, first) == "requested"


async def test_f08_new_in_a_thread_leaves_what_runs_in_its_channel(kernel: Kernel) -> None:
    channel = {"chat": "C5", "user": "U1", "kind_of_chat": "channel", "platform": "slack"}
    one = await kernel.say(event(**channel, mid="1", text="long job"), at("09:00"))
    running = await kernel.claim_live(one.session)
    await kernel.say(event(**channel, mid="2", text="and more"), at("09:01"))
    opened = event(**channel, thr="1", mid="3", reply_to="1", kind="service")
    new = event(**channel, thr="1", mid="4", text="/new\nsomething else")
    _, other = await kernel.say_together([opened, new], at("09:02"))
    assert other.session != one.session
    assert (await kernel.renew(running)).cancel is None
    assert (await kernel.told())[-1].endswith("will still arrive.")
    await kernel.answer(running, "done", at("09:03"))
    assert texts(await kernel.run_turn(one.session)) == ["and more"]
    assert await lane(kernel, one.session) == one.session


async def test_f08_a_branch_in_one_place_leaves_the_other_alone(kernel: Kernel) -> None:
    first = await talk(kernel, "a", thr="1")
    await tell(kernel, "1", "/resume 1", thr="2")
    events = [event(**ANN, thr="2", mid=f"b{n}", text=text) for n, text in enumerate(["/branch"])]
    await kernel.say_together([*events, event(**ANN, thr="1", mid="n", text="/new")], at("09:12"))
    assert "only here" not in (await kernel.told())[-1]
    ends = "SELECT end_reason FROM sessions WHERE id = $1"
    assert await kernel.value(ends, first) == "requested"


@pytest.mark.parametrize("is_together", [False, True])
async def test_f08_a_number_means_the_list_that_was_shown(
    kernel: Kernel, *, is_together: bool
) -> None:
    first = await talk(kernel, "a")
    await tell(kernel, "1", "/new", "09:11")
    await talk(kernel, "b")
    said = [
        event(**ANN, mid="2", text="/sessions"),
        event(**ANN, mid="3", text="/new"),
        event(**ANN, mid="4", text="c"),
        event(**ANN, mid="5", text="/resume 2"),
    ]
    if is_together:
        await kernel.say_together(said, at("09:12"))
    else:
        for number, one in enumerate(said):
            await kernel.restarted().say(one, at(f"09:12:0{number}"))
    assert (await kernel.told())[-1].splitlines()[0] == "Back in a."
    assert await lane(kernel, first) == first


async def test_f08_each_person_and_place_has_a_list(kernel: Kernel) -> None:
    room = {**GROUP, "thr": "5", "is_forum": True}
    await talk(kernel, "a", **room, user="7")
    await tell(kernel, "1", "/sessions", **room, user="7")
    await tell(kernel, "2", "/new", "09:11", **room, user="8")
    await talk(kernel, "b", **room, user="8")
    await tell(kernel, "3", "/sessions", "09:12", **room, user="8")
    told = await tell(kernel, "4", "/resume 1", "09:13", **room, user="8")
    assert told == ENGLISH.text(NoticeId.ALREADY_HERE)
    assert (await tell(kernel, "5", "/resume 1", "09:14", **room, user="7")).startswith("Back in a")


async def test_f08_a_number_of_an_old_list_is_refused_and_the_list_shown(kernel: Kernel) -> None:
    await talk(kernel, "a")
    await tell(kernel, "1", "/new", "09:11")
    second = await talk(kernel, "b")
    await tell(kernel, "2", "/sessions", "09:12")
    late = event(**ANN, mid="3", text="/resume 2")
    await kernel.say(late, at("09:13", "2026-05-12"))
    refused, *listed = (await kernel.told())[-1].splitlines()
    assert refused == "That list is outdated. This is the current list:"
    assert [line[:4] for line in listed] == ["1. b", "2. a", "Writ"]
    assert await lane(kernel, second) == second
    await kernel.say(event(**ANN, mid="4", text="/resume 2"), at("09:14", "2026-05-12"))
    assert (await kernel.told())[-1].startswith("Back in a.")


async def test_f08_a_number_beyond_the_list_or_of_what_is_gone_is_refused(kernel: Kernel) -> None:
    first = await talk(kernel, "a")
    await tell(kernel, "1", "/new", "09:11")
    await talk(kernel, "b")
    await tell(kernel, "2", "/sessions", "09:12")
    await tell(kernel, "3", "/new", "09:12")
    await talk(kernel, "c")
    await kernel.fetch("UPDATE sessions SET owner = 'telegram:bot:999' WHERE id = $1", first)
    assert await tell(kernel, "4", "/resume 3", "09:13") == ENGLISH.text(NoticeId.NOT_FOUND)
    assert await tell(kernel, "5", "/resume 2", "09:13") == ENGLISH.text(NoticeId.NOT_FOUND)


async def test_what_runs_is_still_answered_when_its_conversation_is_left(kernel: Kernel) -> None:
    first = await talk(kernel, "a")
    await tell(kernel, "1", "/new", "09:11")
    second = await kernel.say(event(**ANN, mid="2", text="long job"), at("09:12"))
    running = await kernel.claim_live(second.session)
    assert (await tell(kernel, "3", "/resume 2", "09:13")).endswith("will still arrive.")
    await kernel.answer(running, "long answer", at("09:14"))
    outbound = await kernel.published("OUTBOUND")
    assert outbound[-1]["text"] == "long answer"
    assert await lane(kernel, first) == first


async def test_everybody_who_shares_a_conversation_may_go_back_in_it(kernel: Kernel) -> None:
    thread = {**GROUP, "thr": "5", "is_forum": True}
    first = await kernel.say(event(**thread, user="7", mid="1", text="a"))
    await kernel.run_all()
    await kernel.say(event(**thread, user="8", mid="2", text="/new"), at("09:01"))
    await kernel.say(event(**thread, user="8", mid="3", text="b"), at("09:02"))
    await kernel.say(event(**thread, user="9", mid="4", text="/resume 2"), at("09:03"))
    assert await lane(kernel, first.session) == first.session


async def test_two_at_once_on_one_session_keep_one_order(kernel: Kernel) -> None:
    """Two lanes of one person, both led to the same session at the same time."""
    first = await talk(kernel, "a", thr="0")
    routers = [kernel.restarted(), kernel.restarted()]
    for place in ("1", "2"):
        await kernel.say(event(**ANN, thr=place, mid=f"p{place}", text="b"))
    await asyncio.gather(
        *(
            router.decide_in_the_end(
                [
                    router.logged(
                        event(**ANN, thr=place, mid="r" + place, text=f"/resume {first}"), DAY
                    ),
                    router.logged(event(**ANN, thr=place, mid="s" + place, text="c"), DAY),
                ]
            )
            for router, place in zip(routers, ("1", "2"), strict=True)
        )
    )
    assert await kernel.waiting(first) == ["c", "c"]
    numbers = await kernel.fetch("SELECT session_id FROM lanes WHERE session_id = $1", first)
    assert len(numbers) == 3


async def test_c36_branch_goes_on_in_a_copy(kernel: Kernel) -> None:
    parent = await talk(kernel, "u1", "u2")
    rows = await kernel.transcript(parent)
    told = await tell(kernel, "1", "/branch try", "09:11")
    child = await lane(kernel, parent)
    assert told.splitlines()[1] == "This conversation is called “try”."
    assert child != parent
    assert await kernel.transcript(child) == rows
    assert await tell(kernel, "1", "/branch try", "09:11") == told
    assert await lane(kernel, parent) == child

    assert await talk(kernel, "x") == child
    assert await kernel.transcript(parent) == rows
    assert (await kernel.said(child))[4:] == ["x", "answer to x"]
    linked = await kernel.fetch("SELECT parent_id, link_kind FROM sessions WHERE id = $1", child)
    assert [tuple(row.values()) for row in linked] == [(parent, "branch")]
    assert await tell(kernel, "2", "/resume 2", "09:12") == "Back in u1."
    assert await lane(kernel, parent) == parent
    status = await tell(kernel, "3", "/status", "09:13")
    assert "2 messages" in status


async def test_branch_while_a_turn_runs_leaves_it_to_its_parent(kernel: Kernel) -> None:
    parent = await talk(kernel, "a")
    await kernel.say(event(**ANN, mid="1", text="b"))
    running = await kernel.claim_live(parent)
    assert (await tell(kernel, "2", "/branch")).endswith("will still arrive.")
    child = await lane(kernel, parent)
    await kernel.answer(running, "answer to b")
    assert (await kernel.said(parent))[-1] == "answer to b"
    assert await kernel.said(child) == ["a", "answer to a", "b"]


async def test_branch_undo_and_branch_in_one_batch(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", delivery="stream")]))
    said = ["a", "b", "/branch x", "/undo", "c", "/branch y", "d", "/resume x", "e"]
    *_, last = await kernel.say_together(
        event(**ANN, mid=str(n), text=text) for n, text in enumerate(said)
    )
    found = dict(
        tuple(row.values()) for row in await kernel.fetch("SELECT title, id FROM sessions")
    )
    assert last.session == found["x"]
    assert await kernel.said(found[None]) == ["a", "b"]
    assert await kernel.said(found["x"]) == ["a", "c", "e"]
    assert await kernel.said(found["y"]) == ["a", "c", "d"]


# The model.


async def test_the_model_is_chosen_for_one_conversation(kernel: Kernel) -> None:
    session = await talk(kernel, "a")
    assert await tell(kernel, "1", "/model") == "The agent chooses the model."
    assert await tell(kernel, "2", "/model small-1") == "Model small-1, from the next answer on."
    assert await tell(kernel, "3", "/model") == "Model small-1."
    assert "model small-1" in await tell(kernel, "4", "/status")
    await kernel.say(event(**ANN, mid="5", text="b"))
    claimed = await kernel.run_turn(session)
    assert claimed.model_override is not None
    assert claimed.model_override.model == "small-1"
    assert await tell(kernel, "6", "/model " + "x" * 300) == "That is not a valid model name."
    pasted = "/model sk-" + "4f9d2c6f1b0e4b6c8f0a7d3c"
    assert await tell(kernel, "6b", pasted) == "That is not a valid model name."
    assert (await tell(kernel, "7", "/model -")).startswith("The agent will choose the model")
    assert await tell(kernel, "8", "/model") == "The agent chooses the model."
    await tell(kernel, "9", "/model large-1")
    await tell(kernel, "10", "/new")
    assert await tell(kernel, "11", "/model") == "The agent chooses the model."


async def test_a_shared_conversation_in_a_group_is_nobodys_private_one(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(catalog(keys=KeyRules(group_sessions_per_user=False)))
    await kernel.say(event(**GROUP, user="7", mid="1", text="a"))
    await kernel.say(event(**GROUP, user="8", mid="2", text="/title ours"))
    assert await tell(kernel, "3", "/title", **GROUP, user="9") == (
        "This conversation is called “ours”."
    )
    private = {"chat": "7", "user": "7"}
    assert await tell(kernel, "4", "/resume ours", **private) == (
        "There is no such conversation here."
    )


# What is said behind a command.


async def test_queue_is_a_turn_of_its_own(kernel: Kernel) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="long job"))
    running = await kernel.claim_live(one.session)
    await kernel.say(event(**ANN, mid="2", text="a"))
    files = [{"url": "https://example.org/a.png", "media_type": "image/png"}]
    queued = await kernel.say(event(**ANN, mid="3", text="/queue by itself", attachments=files))
    again = await kernel.say(event(**ANN, mid="3", text="/queue by itself", attachments=files))
    await kernel.say(event(**ANN, mid="4", text="b"))
    await kernel.answer(running)
    runs = await kernel.run_all()

    assert queued.session == again.session == one.session
    assert [texts(claimed) for claimed in runs] == [["a"], ["by itself"], ["b"]]
    assert [len(claimed.messages[0].attachments) for claimed in runs] == [0, 1, 0]
    assert await kernel.told() == [
        "Queued. This will be answered separately, after the current answer."
    ]


async def test_steer_goes_to_the_turn_that_runs(kernel: Kernel) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="long job"))
    running = await kernel.claim_live(one.session)
    await kernel.say(event(**ANN, mid="2", text="/steer more slowly"))
    assert await kernel.told() == [
        "Sent to the answer in progress. If it is too late, this will be answered next."
    ]
    assert [told[1].get("steer") for told in kernel.controls] == [True]
    await kernel.answer(running)
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["more slowly"]]


@pytest.mark.parametrize("command", ["queue", "steer"])
async def test_where_nothing_runs_it_is_a_message(kernel: Kernel, command: str) -> None:
    placed = await kernel.say(event(**ANN, mid="1", text=f"/{command} hello\nworld"))
    assert texts(await kernel.run_turn(placed.session)) == ["hello\nworld"]
    assert await kernel.told() == ["No answer is in progress. This will be answered now."]


@pytest.mark.parametrize("command", ["queue", "steer"])
async def test_without_words_there_is_nothing_to_pass_on(kernel: Kernel, command: str) -> None:
    assert await tell(kernel, "1", f"/{command}") == f"Write your message after /{command}."
    assert await tell(kernel, "1", f"/{command}") == f"Write your message after /{command}."
    assert len(await kernel.told()) == 1
    assert await everything(kernel) == []


async def test_an_edit_of_what_waits_behind_a_command_changes_the_words_only(
    kernel: Kernel,
) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="long job"))
    running = await kernel.claim_live(one.session)
    await kernel.say(event(**ANN, mid="2", text="/queue by itsef"), at("09:01"))
    edit = event(**ANN, mid="2", kind="edit", version="2", text="/queue by itself")
    await kernel.say(edit, at("09:02"))
    await kernel.answer(running)
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["by itself"]]


@pytest.mark.slow
async def test_a_death_at_any_statement_obeys_each_command_once(kernel: Kernel) -> None:
    """Alone in its batch, and between others; what is seen from outside is the same."""
    batches = [["/title x", "/branch y", "a", "/stop"], ["/resume x", "/undo"], ["/new z", "b"]]
    seen = set[tuple[object, ...]]()
    died = 0
    for survives in range(60):
        chat: Fields = {"chat": f"c{survives}", "user": f"c{survives}"}
        await talk(kernel, "u1", "u2", **chat)
        told = len(await kernel.told())
        for number, batch in enumerate(batches):
            messages = [
                kernel.logged(event(**chat, mid=f"{number}.{n}", text=text), at(f"09:1{number}"))
                for n, text in enumerate(batch)
            ]
            kernel, is_dead = await in_the_end(kernel, survives, decision(messages))
            died += is_dead
        await kernel.run_all()
        rows = await kernel.fetch(
            "SELECT title, end_reason, parent_id IS NOT NULL, user_messages, next_out_seq,"
            " (SELECT string_agg(content, ',' ORDER BY seq) FROM messages WHERE session_id = s.id)"
            " FROM sessions AS s WHERE session_key LIKE $1 ORDER BY title",
            f"%:c{survives}",
        )
        seen.add((*map(tuple, rows), *(await kernel.told())[told:]))
    assert len(seen) == 1
    assert died > 60


def decision(messages: list[LogMessage]) -> Stage:
    return lambda router: router.decide_in_the_end(messages)


SAYINGS = (
    *("one", "two", "three", "/title x", "/title y", "/title -", "/new", "/new x", "/stop"),
    *("/undo", "/undo 2", "/retry", "/resume 1", "/resume 2", "/resume x", "/resume y", "/branch"),
    *("/branch y", "/model m", "/model -", "/model", "/queue four", "/steer five", "/status"),
    *("/sessions", "/help", "/new@other_bot"),
)


@pytest.mark.parametrize("delivery", ["turns", "stream"])
@pytest.mark.parametrize("seed", range(12))
async def test_any_batch_decides_what_its_messages_would_have_decided_alone(
    kernel_with: KernelWith, delivery: str, seed: int
) -> None:
    agent = Agent("main", delivery="stream" if delivery == "stream" else "turns")
    kernel = await kernel_with(catalog(agents=[agent]))
    said = Random(seed).choices(SAYINGS, k=16)  # noqa: S311 - a test that can be repeated
    seen = []
    for name in ("alone", "together"):
        chat: Fields = {"chat": name, "user": name}
        events = [event(**chat, mid=str(n), text=text) for n, text in enumerate(said)]
        told = len(await kernel.told())
        if name == "together":
            await kernel.say_together(events)
        else:
            for n, one in enumerate(events):
                await kernel.say(one, DAY + timedelta(milliseconds=n))
        rows = await kernel.fetch(
            "SELECT title, end_reason, link_kind, user_messages, next_seq, next_arrival,"
            " next_out_seq, started_at, model_override, active_turn IS NULL,"
            " (SELECT string_agg(content, ',' ORDER BY seq) FROM messages WHERE session_id = s.id),"
            " (SELECT string_agg(content, ',' ORDER BY arrival) FROM waiting"
            "  WHERE session_id = s.id),"
            " EXISTS (SELECT FROM lanes WHERE session_id = s.id)"
            " FROM sessions AS s WHERE session_key LIKE $1 ORDER BY id",
            f"%:{name}",
        )
        answers = (await kernel.told())[told:]
        seen.append([*map(tuple, rows), *map(_without_previews, answers)])
    alone, together = seen
    assert together == alone, said


def _without_previews(told: str) -> str:
    """Leave out ids, and how a conversation began, which its own batch cannot show."""
    without_ids = re.sub(r"Id \S+", "", told)
    return re.sub(r"(\d\. |Back in )[^“\n].*?( \(|\.$|\.\n|$)", r"\1\2", without_ids)


async def test_routers_that_obey_one_person_in_three_places_at_once(kernel: Kernel) -> None:
    """Whatever the order: each is answered once, and nothing contradicts itself."""
    chance = Random(5)  # noqa: S311 - a test that can be repeated
    places = ("1", "2", "3")
    routers = [kernel.restarted() for _ in places]
    for rounds in range(8):
        batches = [
            [
                router.logged(
                    event(**ANN, thr=place, mid=f"{place}.{rounds}.{n}", text=text),
                    DAY + timedelta(seconds=rounds, milliseconds=n),
                )
                for n, text in enumerate(chance.choices(SAYINGS, k=6))
            ]
            for router, place in zip(routers, places, strict=True)
        ]
        await asyncio.gather(
            *(
                router.decide_in_the_end(batch)
                for router, batch in zip(routers, batches, strict=True)
            )
        )
        await kernel.run_all(DAY + timedelta(seconds=rounds, milliseconds=500))
    numbers: dict[str, list[int]] = {}
    replies = Counter[str]()
    for row in await kernel.published("OUTBOUND"):
        numbers.setdefault(row["session_id"], []).append(row["out_seq"])
        replies[f"{row['reply_to']} {row['kind']}"] += 1
    assert all(its == list(range(1, len(its) + 1)) for its in numbers.values())
    assert all(count == 1 for reply, count in replies.items() if reply.endswith("notice"))
    assert await kernel.dead() == []
    led = await kernel.fetch(
        "SELECT s.ended_at IS NULL AND s.id IS NOT NULL FROM lanes AS l"
        " LEFT JOIN sessions AS s ON s.id = l.session_id"
    )
    assert [row[0] for row in led] == [True] * len(led)
    orphans = await kernel.value("SELECT count(*) FROM waiting")
    assert orphans == 0


# What follows the line of a command.


@pytest.mark.parametrize("is_running", [False, True])
async def test_f07_what_follows_new_is_the_first_message(
    kernel: Kernel, *, is_running: bool
) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="long job"), at("09:00"))
    await kernel.run_turn(one.session)
    if is_running:
        await kernel.say(event(**ANN, mid="2", text="another"), at("09:01"))
        await kernel.claim_live(one.session)
    rest = event(**ANN, mid="3", text="/new trip\nfind a train\nto Rome")
    placed = await kernel.say(rest, at("09:02"))

    assert placed.session != one.session
    claimed = await kernel.run_turn(placed.session)
    assert texts(claimed) == ["find a train\nto Rome"]
    assert (claimed.session_is_new, claimed.reset_reason) == (True, "requested")
    title = "SELECT title FROM sessions WHERE id = $1"
    assert await kernel.value(title, placed.session) == "trip"
    sessions = "SELECT count(*) FROM sessions"
    assert await kernel.value(sessions) == 2
    await kernel.say(rest, at("09:03"))
    assert await kernel.value(sessions) == 2
    assert await kernel.waiting(placed.session) == []


async def test_f07_what_follows_stop_is_answered_after_it(kernel: Kernel) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="long job"), at("09:00"))
    running = await kernel.claim_live(one.session)
    two = await kernel.say(event(**ANN, mid="2", text="/stop\n\nthe short one"), at("09:01"))
    assert two.session == one.session
    assert (await kernel.renew(running)).cancel == "stopped"
    assert await kernel.told() == ["Stopped."]
    await kernel.answer(running, "", outcome="no_reply", parts=[])
    assert texts(await kernel.run_turn(one.session)) == ["the short one"]


async def test_f07_what_follows_resume_is_said_there(kernel: Kernel) -> None:
    first = await talk(kernel, "a")
    await tell(kernel, "2", "/new")
    second = await talk(kernel, "b")
    placed = await kernel.say(event(**ANN, mid="3", text="/resume 2\ngo on"), at("09:10"))
    assert placed.session == first != second


async def test_f07_files_go_with_what_follows_a_command(kernel: Kernel) -> None:
    await talk(kernel, "a")
    file = {"url": "https://files.example/1", "media_type": "image/png"}
    with_words = event(**ANN, mid="2", text="/new\nwhat is this?", attachments=[file])
    placed = await kernel.say(with_words, at("09:10"))
    claimed = await kernel.run_turn(placed.session)
    assert [len(message.attachments) for message in claimed.messages] == [1]
    await kernel.say(event(**ANN, mid="3", text="/new", attachments=[file]), at("09:11"))
    told = await kernel.told()
    assert ["Attachments on commands" in one for one in told] == [False, True]


async def test_f07_what_follows_a_refused_command_is_said(kernel_with: KernelWith) -> None:
    rules = CommandRules(access={"new": frozenset({"702"})})
    kernel = await kernel_with(catalog(commands=rules))
    here = await talk(kernel, "a")
    placed = await kernel.say(event(**ANN, mid="2", text="/new\nhello"), at("09:10"))
    assert placed.session == here
    assert await kernel.told() == ["You may not use /new here."]


async def test_f07_an_edit_changes_what_follows_a_command(kernel: Kernel) -> None:
    said = event(**ANN, mid="1", text="/new\nmeet at 4")
    placed = await kernel.say(said, at("09:00"))
    await kernel.say(event(**ANN, mid="1", kind="edit", text="/new\nmeet at 5"), at("09:01"))
    assert await kernel.waiting(placed.session) == ["meet at 5"]


async def test_f07_an_edit_may_overtake_what_follows_a_command(kernel: Kernel) -> None:
    await kernel.say(event(**ANN, mid="1", kind="edit", text="/new\nmeet at 5"), at("09:01"))
    placed = await kernel.say(event(**ANN, mid="1", text="/new\nmeet at 4"), at("09:02"))
    assert await kernel.waiting(placed.session) == ["meet at 5"]


async def test_f07_a_mention_of_us_may_lead_a_command(kernel: Kernel) -> None:
    here = await talk(kernel, "a")
    assert "New conversation started" in await tell(kernel, "2", "@our_bot /new")
    assert await lane(kernel, here) != here
    placed = await kernel.say(event(**ANN, mid="3", text="@other_bot /new"), at("09:11"))
    assert await kernel.waiting(placed.session) == ["@other_bot /new"]
