"""Cases C22 to C25: conversations start afresh at the right message, once, by the right clock."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.policy import ResetPolicy
from chatlane_schemas.turns import TurnTake
from tests.support.worlds.kernel import (
    SESSION_EVENTS,
    Fields,
    Kernel,
    Placed,
    at,
    catalog,
    event,
    texts,
)

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]

ANN: Fields = {"chat": "701", "user": "701"}
NO_QUIET = timedelta(0)


@pytest.fixture(params=["UTC", "Asia/Shanghai", "America/Los_Angeles"])
async def zone_of_the_server(
    request: pytest.FixtureRequest, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    """Let the process and the database live in some zone of their own."""
    zone: str = request.param
    await execute(database_url, "ALTER DATABASE {} SET timezone = '" + zone + "'")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    yield zone
    monkeypatch.undo()
    time.tzset()
    await execute(database_url, "ALTER DATABASE {} RESET timezone")


async def execute(database_url: str, about_the_database: str) -> None:
    connection = await asyncpg.connect(database_url)
    database = await connection.fetchval("SELECT current_database()")
    await connection.execute(about_the_database.format(database))
    await connection.close()


async def talk(kernel: Kernel, *lines: tuple[datetime, str]) -> list[Placed]:
    """Say something at each of these times, each answered before the next."""
    said = []
    for number, (stored_at, text) in enumerate(lines, 1):
        placed = await kernel.say(event(**ANN, mid=str(number), text=text), stored_at)
        await kernel.run_all(stored_at)
        said.append(placed)
    return said


def letters(said: list[Placed]) -> str:
    """Return the sessions of these messages as letters, in order of appearance."""
    order = list(dict.fromkeys(one.session for one in said))
    return "".join("ABCDEFG"[order.index(one.session)] for one in said)


async def test_the_daily_hour_is_one_of_the_zone_that_is_set(
    kernel_with: KernelWith, zone_of_the_server: str
) -> None:
    """C22: 04:00 in Shanghai, wherever the server is."""
    policy = ResetPolicy("daily", at_hour=4, timezone="Asia/Shanghai")
    kernel = await kernel_with(catalog(reset=policy))
    assert await kernel.value("SHOW timezone") == zone_of_the_server
    said = await talk(
        kernel,
        (at("15:00", "2026-05-10"), "a"),
        (at("19:30", "2026-05-10"), "b"),
        (at("20:10", "2026-05-10"), "c"),
        (at("04:05", "2026-05-11"), "d"),
        (at("19:00", "2026-05-11"), "e"),
    )
    assert letters(said) == "AABBB"


EVENING_AND_MORNING = (
    (at("18:27", "2026-09-05"), "evening"),
    (at("08:58", "2026-09-06"), "morning"),
    (at("09:06", "2026-09-06"), "more"),
    (at("09:10", "2026-09-06"), "more"),
    (at("09:13", "2026-09-06"), "more"),
    (at("01:59", "2026-09-07"), "late night"),
    (at("02:01", "2026-09-07"), "still talking"),
)
BOTH = {"at_hour": 4, "timezone": "Europe/Zurich", "idle": timedelta(minutes=600)}


async def test_the_first_message_after_the_hour_resets_and_only_that_one(
    kernel_with: KernelWith,
) -> None:
    """C23, with the literal rule: a boundary cuts a talk that is going on."""
    kernel = await kernel_with(catalog(reset=ResetPolicy("both", quiet=NO_QUIET, **BOTH)))  # type: ignore[arg-type]
    said = await talk(kernel, *EVENING_AND_MORNING)
    assert letters(said) == "ABBBBCD"
    assert await kernel.said(said[1].session) == ["morning", "ok", *["more", "ok"] * 3]
    rows = await kernel.fetch("SELECT start_reason, end_reason FROM sessions ORDER BY started_at")
    assert [tuple(row) for row in rows] == [
        (None, "idle"),
        ("idle", "idle"),
        ("idle", "daily"),
        ("daily", None),
    ]
    events = [
        (one.get("reason"), "source" in one)
        for one in await kernel.published("EVENTS", f"{SESSION_EVENTS}%")
    ]
    assert events == [
        (None, True),
        ("idle", False),
        ("idle", True),
        ("idle", False),
        ("idle", True),
        ("daily", False),
        ("daily", True),
    ]


async def test_a_talk_in_progress_is_not_cut_at_the_hour(kernel_with: KernelWith) -> None:
    """C23, as delivered: the reset waits for half an hour of quiet, and then comes."""
    kernel = await kernel_with(catalog(reset=ResetPolicy("both", **BOTH)))  # type: ignore[arg-type]
    said = await talk(
        kernel,
        *EVENING_AND_MORNING,
        (at("02:20", "2026-09-07"), "and on"),
        (at("02:50", "2026-09-07"), "half an hour later"),
        (at("03:30", "2026-09-07"), "once a day only"),
    )
    assert letters(said) == "ABBBBCCCDD"


async def test_the_message_that_resets_is_the_first_of_the_new_session(
    kernel_with: KernelWith,
) -> None:
    """C23: delivered once, and its turn says why the session is new."""
    kernel = await kernel_with(catalog(reset=ResetPolicy("idle", idle=timedelta(hours=1))))
    first = await kernel.say(event(**ANN, mid="1", text="evening"), at("09:00"))
    opening = await kernel.run_turn(first.session)
    assert (opening.session_is_new, opening.reset_reason) == (True, None)
    second = await kernel.say(event(**ANN, mid="2", text="morning"), at("20:00"))
    claimed = await kernel.run_turn(second.session)
    assert (claimed.session_is_new, claimed.reset_reason) == (True, "idle")
    assert (texts(claimed), claimed.messages[0].seq) == (["morning"], 1)
    third = await kernel.say(event(**ANN, mid="3", text="more"), at("20:01"))
    claimed = await kernel.run_turn(third.session)
    assert (claimed.session_is_new, claimed.reset_reason) == (False, None)
    started = [
        one for one in await kernel.published("EVENTS", f"{SESSION_EVENTS}%") if "source" in one
    ]
    assert started[1]["previous_session_id"] == str(first.session)


async def test_a_stream_agent_is_told_of_a_reset_once(kernel_with: KernelWith) -> None:
    """C23."""
    policy = ResetPolicy("idle", idle=timedelta(hours=1))
    kernel = await kernel_with(catalog(reset=policy, agents=[Agent("main", delivery="stream")]))
    for number, clock in enumerate(("09:00", "09:30", "12:00", "12:01")):
        await kernel.say(event(**ANN, mid=str(number), text="x"), at(clock))
    told = [
        (one["seq"], one["session_is_new"], one.get("reset_reason"))
        for one in await kernel.published("ROUTED")
    ]
    assert told == [(1, True, None), (2, False, None), (1, True, "idle"), (2, False, None)]


async def test_a_reset_waits_for_the_running_turn(kernel_with: KernelWith) -> None:
    """C23: whoever waits for an answer has not gone away; it comes with the next message."""
    policy = ResetPolicy("both", idle=timedelta(hours=1), quiet=NO_QUIET)
    kernel = await kernel_with(catalog(reset=policy))
    first = await kernel.say(event(**ANN, mid="1", text="long job"), at("03:00"))
    running = await kernel.claim_live(first.session)
    waiting = await kernel.say(event(**ANN, mid="2", text="well?"), at("05:00"))
    assert waiting.session == first.session
    await kernel.answer(running, "done", at("05:01"))
    await kernel.run_all(at("05:02"))
    third = await kernel.say(event(**ANN, mid="3", text="thanks"), at("05:10"))
    assert third.session != first.session
    assert await kernel.value("SELECT end_reason FROM sessions WHERE id = $1", first.session) == (
        "daily"
    )


IDLE_60 = ResetPolicy("idle", idle=timedelta(minutes=60))


async def test_timers_neither_extend_nor_reset(kernel_with: KernelWith) -> None:
    """C24."""
    kernel = await kernel_with(catalog(reset=IDLE_60))
    first = await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))
    await kernel.run_all(at("09:00"))
    for number, clock in enumerate(("09:20", "09:50", "10:20")):
        timer = await kernel.say(
            event(**ANN, kind="system", text="tick", event_id=number), at(clock)
        )
        assert timer.session == first.session
        assert texts((await kernel.run_all(at(clock)))[0]) == ["tick"]
    back = await kernel.say(event(**ANN, mid="2", text="back"), at("10:30"))
    assert back.session != first.session
    assert await kernel.said(first.session) == ["hi", "ok", *["tick", "ok"] * 3]


async def test_a_timer_after_the_deadline_still_runs_in_the_old_session(
    kernel_with: KernelWith,
) -> None:
    """C24: it does not take the context away from a person who is away."""
    kernel = await kernel_with(catalog(reset=IDLE_60))
    first = await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))
    await kernel.run_all(at("09:00"))
    timer = await kernel.say(event(**ANN, kind="system", text="tick"), at("23:00"))
    assert timer.session == first.session


async def test_a_timer_opens_a_session_where_there_is_none(kernel_with: KernelWith) -> None:
    """C24: and the person who comes soon after finds it."""
    kernel = await kernel_with(catalog(reset=IDLE_60))
    timer = await kernel.say(event(**ANN, kind="system", text="good morning"), at("09:00"))
    await kernel.run_all(at("09:00"))
    soon = await kernel.say(event(**ANN, mid="1", text="thanks"), at("09:30"))
    assert soon.session == timer.session
    await kernel.run_all(at("09:30"))
    later = await kernel.say(event(**ANN, mid="2", text="back"), at("10:31"))
    assert later.session != timer.session


@pytest.mark.parametrize(
    "bookkeeping",
    [
        pytest.param({"kind": "reaction"}, id="reaction"),
        pytest.param({"kind": "receipt", "mid": "1"}, id="receipt"),
        pytest.param({"kind": "edit", "mid": "1", "text": "hi!"}, id="edit"),
        pytest.param({"kind": "delete", "mid": "1"}, id="delete"),
        pytest.param({"kind": "service", "text": "joined"}, id="service"),
        pytest.param({"kind": "migration"}, id="migration"),
        pytest.param({"mid": "1", "text": "hi"}, id="repeat"),
        pytest.param({"mid": "9", "text": "hi", "is_bot": True}, id="bot"),
    ],
)
async def test_what_no_person_said_is_no_activity(
    kernel_with: KernelWith, bookkeeping: Fields
) -> None:
    """C24."""
    kernel = await kernel_with(catalog(reset=IDLE_60))
    first = await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))
    await kernel.run_all(at("09:00"))
    for clock in ("09:30", "09:50", "11:50"):
        await kernel.say(event(**(ANN | bookkeeping)), at(clock))
    assert await kernel.turns_of(first.session) == 1
    back = await kernel.say(event(**ANN, mid="2", text="back"), at("10:01"))
    assert back.session != first.session
    assert await kernel.turns_of(first.session) == 1


async def test_f05_idle_counts_from_the_end_of_the_turn(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(reset=IDLE_60))
    first = await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))
    claimed = await kernel.claim_live(first.session)
    answer = kernel.turn_result(claimed, "slow", at("10:20"))
    await kernel.decide([answer])
    thanks = await kernel.restarted().say(event(**ANN, mid="2", text="thanks"), at("10:21"))
    assert thanks.session == first.session
    await kernel.run_all(at("10:22"))
    # A result that is read again is no turn of its own.
    await kernel.decide([answer._replace(stored_at=at("11:00"))])
    back = await kernel.say(event(**ANN, mid="3", text="back"), at("11:23"))
    assert back.session != first.session


async def test_f05_a_talk_is_not_idle_while_its_question_is_open(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(reset=IDLE_60))
    first = await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))
    for number, clock in enumerate(("10:30", "12:00"), 2):
        asked = await kernel.say(event(**ANN, mid=str(number), text="hello?"), at(clock))
        assert asked.session == first.session
        await kernel.claim_live(first.session)


async def test_f05_the_turn_of_a_timer_extends_nothing(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(reset=IDLE_60, bots_allowed=True, own_ids=frozenset({"1"})))
    first = await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))
    await kernel.run_turn(first.session, "hello", at("09:01"))
    await kernel.say(event(**ANN, kind="system", text="tick"), at("09:30"))
    await kernel.run_turn(first.session, "tock", at("09:50"))
    bot = {"chat": ANN["chat"], "user": "9", "is_bot": True}
    await kernel.say(event(**bot, mid="2", text="beep"), at("09:51"))
    await kernel.run_turn(first.session, "boop", at("09:59"))
    back = await kernel.say(event(**ANN, mid="3", text="back"), at("10:02"))
    assert back.session != first.session


async def test_f05_a_turn_of_a_timer_and_a_person_counts(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(reset=IDLE_60))
    first = await kernel.say(event(**ANN, kind="system", text="tick"), at("09:00"))
    await kernel.say(event(**ANN, mid="1", text="and mine"), at("09:01"))
    await kernel.say(event(**ANN, kind="system", text="tack"), at("09:02"))
    await kernel.run_turn(first.session, "both", at("10:30"))
    back = await kernel.say(event(**ANN, mid="2", text="back"), at("11:30"))
    assert back.session == first.session


async def test_f05_a_message_that_is_steered_in_counts(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(reset=IDLE_60))
    first = await kernel.say(event(**ANN, kind="system", text="tick"), at("09:00"))
    running = await kernel.claim_live(first.session)
    await kernel.say(event(**ANN, mid="1", text="/steer be brief"), at("09:10"))
    assert running.attempt is not None
    assert running.token is not None
    take = TurnTake(
        id="t1",
        at=at("09:11"),
        turn_id=running.turn_id,
        attempt=running.attempt,
        token=running.token,
        after_seq=1,
    )
    taken = await kernel.desk.take("main", take)
    assert [one.text for one in taken.messages] == ["be brief"]
    await kernel.answer(running, "ok", at("10:30"))
    back = await kernel.say(event(**ANN, mid="2", text="back"), at("11:30"))
    assert back.session == first.session


@pytest.mark.parametrize("outcome", ["failed", "no_reply"])
async def test_f05_however_the_turn_ends(kernel_with: KernelWith, outcome: str) -> None:
    kernel = await kernel_with(catalog(reset=IDLE_60))
    first = await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))
    claimed = await kernel.claim_live(first.session)
    await kernel.answer(claimed, "", at("10:20"), outcome=outcome, parts=[])
    again = await kernel.say(event(**ANN, mid="2", text="again"), at("11:20"))
    assert again.session == first.session


async def test_f05_a_turn_that_is_given_up_counts_until_then(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(reset=IDLE_60, agents=[Agent("main", max_attempts=1)]))
    now = datetime.now(UTC)
    first = await kernel.say(event(**ANN, mid="1", text="hi"), now - timedelta(hours=3))
    claimed = await kernel.claim_live(first.session)
    await kernel.expire(claimed.turn_id)
    assert await kernel.dead() == [("turns", "turn_failed")]
    again = await kernel.say(event(**ANN, mid="2", text="again"), now + timedelta(minutes=1))
    assert again.session == first.session


async def test_f05_an_answer_of_a_stream_agent_counts(kernel_with: KernelWith) -> None:
    streaming = Agent("main", delivery="stream")
    kernel = await kernel_with(catalog(reset=IDLE_60, agents=[streaming]))
    first = await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))
    await kernel.say(event(**ANN, kind="system", text="tick"), at("09:01"))
    asked, ticked = await kernel.published("ROUTED")
    await kernel.decide([kernel.stream_answer(asked, "slow", at("09:50"))])
    await kernel.decide([kernel.stream_answer(ticked, "tock", at("10:30"))])
    thanks = await kernel.say(event(**ANN, mid="2", text="thanks"), at("10:40"))
    assert thanks.session == first.session
    back = await kernel.say(event(**ANN, mid="3", text="back"), at("11:41"))
    assert back.session != first.session


async def test_f05_a_daily_reset_does_not_cut_a_talk_after_a_slow_answer(
    kernel_with: KernelWith,
) -> None:
    daily = ResetPolicy("daily", at_hour=4, quiet=timedelta(minutes=30))
    kernel = await kernel_with(catalog(reset=daily))
    first = await kernel.say(event(**ANN, mid="1", text="hi"), at("03:50"))
    await kernel.run_turn(first.session, "slow", at("04:40"))
    thanks = await kernel.say(event(**ANN, mid="2", text="thanks"), at("04:41"))
    assert thanks.session == first.session


BOTH_60 = ResetPolicy("both", idle=timedelta(minutes=60), at_hour=4)


async def test_a_restart_makes_no_session_young_again(kernel_with: KernelWith) -> None:
    """C25."""
    kernel = await kernel_with(catalog(reset=BOTH_60))
    old = await kernel.say(event(**ANN, mid="1", text="old"), at("10:00", "2026-05-08"))
    await kernel.run_all(at("10:00", "2026-05-08"))
    query = "SELECT * FROM sessions"
    before = await kernel.fetch(query)
    kernel = kernel.restarted()
    await kernel.deadlines.sweep()
    assert await kernel.fetch(query) == before
    new = await kernel.say(event(**ANN, mid="2", text="new"), at("09:05"))
    assert new.session != old.session


@pytest.mark.parametrize("sent_at", ["2027-01-01T00:00:00Z", "1970-01-01T00:00:00Z", None])
async def test_the_clock_of_a_phone_is_data(kernel_with: KernelWith, sent_at: str | None) -> None:
    """C25: also the envelope's own time is one."""
    kernel = await kernel_with(catalog(reset=BOTH_60))
    wrong: Fields = {"at": "2031-01-01T00:00:00Z"} | ({"sent_at": sent_at} if sent_at else {})
    first = await kernel.say(event(**ANN, mid="1", text="x", **wrong), at("09:00"))
    await kernel.run_all(at("09:00"))
    soon = await kernel.say(event(**ANN, mid="2", text="y", **wrong), at("09:59"))
    await kernel.run_all(at("09:59"))
    later = await kernel.say(event(**ANN, mid="3", text="z"), at("11:00"))
    assert (soon.session, later.session != first.session) == (first.session, True)


async def test_a_session_without_any_recorded_activity_is_old(kernel_with: KernelWith) -> None:
    """C25: its start stands in."""
    kernel = await kernel_with(catalog(reset=BOTH_60))
    old = await kernel.say(event(**ANN, mid="1", text="old"), at("10:00", "2026-05-08"))
    await kernel.run_all()
    await kernel.fetch(
        "UPDATE sessions SET last_activity_at = NULL, served_boundary = NULL,"
        " asked_turn_ended_at = NULL"
    )
    new = await kernel.say(event(**ANN, mid="2", text="new"), at("09:05"))
    assert new.session != old.session


async def test_a_log_whose_clock_steps_back_resets_nobody(kernel_with: KernelWith) -> None:
    """C25: when its leader moves; the time of a conversation never runs backwards."""
    kernel = await kernel_with(catalog(reset=BOTH_60))
    said = await talk(
        kernel,
        (at("09:00"), "a"),
        (at("08:00"), "b"),
        (at("09:59"), "c"),
        (at("03:00"), "d"),
        (at("10:30"), "e"),
    )
    assert letters(said) == "AAAAA"
    assert await kernel.value("SELECT last_activity_at FROM sessions") == at("10:30")


async def test_each_class_and_platform_has_its_own_policy(kernel_with: KernelWith) -> None:
    """C22 to C25: whole policies replace each other."""
    declared = catalog(reset=IDLE_60)
    never = ResetPolicy("none")
    platforms = {
        **declared.platforms,
        "telegram": replace(declared.platforms["telegram"], class_reset={"group": never}),
        "slack": replace(declared.platforms["slack"], reset=never),
    }
    kernel = await kernel_with(replace(declared, platforms=platforms))
    places: list[Fields] = [
        {"platform": "telegram"},
        {"platform": "telegram", "kind_of_chat": "group"},
        {"platform": "slack"},
        {"platform": "discord", "kind_of_chat": "group"},
    ]
    resets = []
    for number, place in enumerate(places):
        here: Fields = place | {"chat": str(number), "user": "1"}
        first = await kernel.say(event(**here, mid="1", text="a"), at("09:00"))
        await kernel.run_all(at("09:00"))
        second = await kernel.say(event(**here, mid="2", text="b"), at("11:00"))
        resets.append(first.session != second.session)
    assert resets == [True, False, False, True]
