"""Cases C27 and C29: nothing said while busy is lost, and first messages make one session."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

import pytest

from chatlane.domain.catalog import Agent, BusyMode, Catalog
from tests.support.worlds.kernel import Fields, Kernel, at, catalog, event, texts

if TYPE_CHECKING:
    from chatlane.domain.log import LogMessage

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ANN: Fields = {"chat": "701", "user": "701"}


@pytest.mark.parametrize(
    ("busy", "turns"),
    [
        ("collect", [["also A", "also B", "also C", "also D"]]),
        ("queue", [["also A"], ["also B"], ["also C"], ["also D"]]),
    ],
)
async def test_all_that_is_said_while_busy_reaches_the_agent_in_order(
    kernel_with: KernelWith, busy: BusyMode, turns: list[list[str]]
) -> None:
    """C27."""
    kernel = await kernel_with(catalog(agents=[Agent("main", busy=busy)]))
    first = await kernel.say(event(**ANN, mid="1", text="long job"), at("09:00:00"))
    running = await kernel.claim_live(first.session)
    for number, letter in enumerate("ABCD", 2):
        text = f"also {letter}"
        await kernel.say(event(**ANN, mid=str(number), text=text), at(f"09:00:0{number}"))
    await kernel.answer(running, "done", at("09:00:20"))
    seen = await kernel.run_all(at("09:00:21"))
    assert [texts(claimed) for claimed in seen] == turns
    numbers = [one.source.message_id for claimed in seen for one in claimed.messages]
    assert numbers == ["2", "3", "4", "5"]
    rows = await kernel.transcript(first.session)
    assert [seq for seq, _, _ in rows] == list(range(1, len(rows) + 1))


async def test_an_answer_goes_where_the_last_question_of_its_turn_came_from(
    kernel: Kernel,
) -> None:
    """C27 with C09: of all that a turn collected."""
    group: Fields = {"kind_of_chat": "group", "chat": "-60", "user": "7", "is_forum": False}
    placed = await kernel.say(event(**group, mid="1", thr="41", text="a"), at("09:00"))
    await kernel.say(event(**group, mid="2", thr="43", text="b"), at("09:01"))
    await kernel.run_turn(placed.session)
    (answer,) = await kernel.published("OUTBOUND")
    assert (answer["target"]["thread_id"], answer["reply_to"]) == ("43", "2")


async def test_what_comes_after_the_claim_waits_for_the_next_turn(kernel: Kernel) -> None:
    """C27: a claim freezes what its turn answers; before it, everything is taken along."""
    first = await kernel.say(event(**ANN, mid="1", text="a"), at("09:00"))
    await kernel.say(event(**ANN, mid="2", text="b"), at("09:01"))
    running = await kernel.claim_live(first.session)
    await kernel.say(event(**ANN, mid="3", text="c"), at("09:02"))
    assert texts(running) == ["a", "b"]
    await kernel.expire(running.turn_id)
    again = await kernel.claim(running.turn_id)
    assert again.messages == running.messages
    await kernel.answer(again)
    assert texts(await kernel.run_turn(first.session)) == ["c"]


async def test_two_first_messages_at_two_replicas_make_one_session(kernel: Kernel) -> None:
    """C29: the two of the report, 90 ms apart, decided at once."""
    other = kernel.restarted()
    topic: Fields = {"kind_of_chat": "group", "chat": "-90", "is_forum": True}
    for number in range(30):
        one: Fields = topic | {"thr": str(501 + number)}
        first = kernel.logged(event(**one, user="7", mid=f"a{number}", text="x"), at("09:00:00.00"))
        second = other.logged(event(**one, user="8", mid=f"b{number}", text="y"), at("09:00:00.09"))
        await asyncio.gather(kernel.decide_in_the_end([first]), other.decide_in_the_end([second]))
        placed = {(await kernel.placed(first)).session, (await kernel.placed(second)).session}
        assert len(placed) == 1
    assert await kernel.value("SELECT count(*) FROM sessions") == 30
    assert await kernel.value("SELECT count(*) FROM turns") == 30


THREADS = 501


async def test_five_hundred_threads_over_two_replicas_make_five_hundred_sessions(
    kernel: Kernel,
) -> None:
    """C29: both replicas decide about all of them at the same time, in batches of their own."""
    other = kernel.restarted()
    chance = Random(29)  # noqa: S311 - the same threads every time
    logs: dict[Kernel, list[LogMessage]] = {kernel: [], other: []}
    expected: dict[str, set[str]] = {}
    for thread in map(str, range(501, 501 + THREADS)):
        said = {f"{thread}/{number}" for number in range(chance.randint(2, 8))}
        expected[thread] = said
        for mid in sorted(said):
            topic: Fields = {"kind_of_chat": "group", "chat": "-90", "thr": thread}
            one = event(**topic, is_forum=True, user=str(chance.randrange(9)), mid=mid, text=mid)
            router = chance.choice([kernel, other])
            logs[router].append(router.logged(one, at("09:00")))

    async def decide_all(router: Kernel) -> None:
        log = logs[router]
        chance.shuffle(log)
        for start in range(0, len(log), 40):
            await router.decide_in_the_end(log[start : start + 40])

    await asyncio.gather(decide_all(kernel), decide_all(other))

    assert await kernel.value("SELECT count(*) FROM sessions") == THREADS
    assert await kernel.value("SELECT count(*) FROM lanes") == THREADS
    assert await kernel.value("SELECT count(*) FROM turns") == THREADS
    rows = await kernel.fetch("SELECT session_key, session_id, content FROM waiting")
    found: dict[str, set[str]] = {}
    for session_key, _, content in rows:
        found.setdefault(session_key.rpartition("=")[2], set()).add(content)
    assert found == expected
    assert len({(key, session) for key, session, _ in rows}) == THREADS
    assert len(rows) == sum(map(len, expected.values()))
    # The places in each line are taken without holes: nobody overwrote anybody.
    assert await kernel.value(
        "SELECT bool_and(last = number) FROM (SELECT max(arrival) AS last, count(*) AS number"
        " FROM waiting GROUP BY session_id) AS lines"
    )
    assert await kernel.dead() == []


async def test_routers_workers_and_results_at_once_keep_every_count(kernel: Kernel) -> None:
    """C27 with C29: one busy group, two routers, claims and answers in between."""
    routers = [kernel, kernel.restarted()]
    group: Fields = {"kind_of_chat": "group", "chat": "-90", "thr": "1000", "is_forum": True}
    first = await kernel.say(event(**group, user="7", mid="first", text="first"), at("09:00"))
    left = asyncio.Event()

    async def speak(router: Kernel, name: str) -> None:
        for number in range(25):
            one = event(**group, user=name, mid=f"{name}{number}", text=f"{name}{number}")
            await router.decide_in_the_end([router.logged(one, at("09:00"))])

    async def work(router: Kernel) -> None:
        while not left.is_set() or await router.live_turn(first.session) is not None:
            turn = await router.live_turn(first.session)
            if turn is not None:
                claimed = await router.claim(turn)
                if claimed.status == "claimed":
                    await router.decide_in_the_end([router.turn_result(claimed, "ok")])

    async def speak_all() -> None:
        await asyncio.gather(speak(routers[0], "a"), speak(routers[1], "b"))
        left.set()

    await asyncio.gather(speak_all(), work(routers[0]), work(routers[1]))
    rows = await kernel.transcript(first.session)
    assert [seq for seq, _, _ in rows] == list(range(1, len(rows) + 1))
    said = [content for _, role, content in rows if role == "user" and content is not None]
    assert sorted(said) == sorted(["first", *(f"{name}{n}" for n in range(25) for name in "ab")])
    for name in "ab":
        own = [content for content in said if content.startswith(name)]
        assert own == [f"{name}{number}" for number in range(25)]
    told = [one["out_seq"] for one in await kernel.published("OUTBOUND")]
    assert told == list(range(1, await kernel.turns_of(first.session) + 1))
