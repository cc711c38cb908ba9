"""Parked turns against every event that wakes or ends them, and what is written meanwhile."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from typing_extensions import override

from chatlane.api.operators.explanations import ExplanationQueries
from chatlane.domain.catalog import Agent, BusyMode
from chatlane.domain.turns.questions import buttons_of
from chatlane.privacy import erase_sql
from chatlane.reconciliation import reconciliation_sql
from chatlane.store import questions
from chatlane.store.conversations import sessions
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.questions import (
    ANSWER_PREFIX,
    LARGEST_STEP,
    LONGEST_PARKED_MS,
    LONGEST_QUESTION_MS,
    QuestionReply,
    TurnAsk,
)
from chatlane_schemas.results import Part
from chatlane_schemas.session_api.operators.explanations import ExplainSession, ExplainSessionReply
from chatlane_schemas.session_api.session_changes import SessionReset, SessionStop
from chatlane_schemas.session_api.session_life import SessionHandback, SessionTakeover
from chatlane_schemas.session_api.session_sweeps import SessionPrune
from chatlane_schemas.turns import ClaimReply, ClaimStatus, RenewStatus
from tests.integration.turns.test_questions import (
    ANN,
    EVENTS,
    FIELDS,
    YES_NO,
    of_attempt,
    session_of,
    stamp,
)
from tests.integration.turns.test_resets import KernelWith
from tests.integration.turns.test_steps import StepDesk
from tests.support.worlds.kernel import Kernel, catalog, texts

pytestmark = pytest.mark.integration

DAY_MS: Final = 24 * 3600 * 1000
NAME: Final = "book"


class ParkedDesk(StepDesk):
    """Requests about turns that park, as a router decides them."""

    async def park(self, claimed: ClaimReply, **fields: Any) -> QuestionReply:  # noqa: ANN401 - of the request
        return await self.ask(claimed, **({"within_ms": 3 * DAY_MS, "park_as": NAME} | fields))

    async def parked(self, **fields: Any) -> tuple[ClaimReply, QuestionReply]:  # noqa: ANN401 - of the request
        claimed = await self.claimed()
        asked = await self.park(claimed, **fields)
        assert asked.parked
        return claimed, asked

    async def woken(self, claimed: ClaimReply) -> ClaimReply:
        """Return the next attempt of a turn that has woken."""
        await self.kernel.deadlines.sweep()
        assert await self.notified(claimed), "its workers were not notified"
        again = await self.kernel.claim_live(session_of(claimed))
        assert (again.turn_id, again.attempt) == (claimed.turn_id, (claimed.attempt or 0) + 1)
        return again

    async def notified(self, claimed: ClaimReply) -> bool:
        """Return whether the workers were notified of the turn again after its attempt."""
        told = await self.kernel.published("TURNS")
        its = [row for row in told if row["turn_id"] == str(claimed.turn_id)]
        return len(its) > (claimed.attempt or 0)

    async def kept(self, claimed: ClaimReply, name: str = NAME) -> Any:  # noqa: ANN401 - JSON
        """Return what an attempt finds as the answer to a question."""
        found = await self.find(claimed, ANSWER_PREFIX + name)
        assert found.error is None, found.error
        return None if found.result is None else json.loads(found.result)

    async def is_parked(self, claimed: ClaimReply) -> bool:
        query = "SELECT state = 'ready' AND rest = 'parked' FROM turns WHERE id = $1"
        return bool(await self.kernel.value(query, claimed.turn_id))

    @override
    async def claimed(self, text: str = "book a table") -> ClaimReply:
        return await super().claimed(text)


def pressed(asked: QuestionReply) -> str:
    """Return the value of the first button of a question."""
    assert asked.question_id is not None
    return buttons_of(asked.question_id, ["Yes"])[0].value or ""


@pytest.fixture
def desk(kernel: Kernel) -> ParkedDesk:
    return ParkedDesk(kernel)


@pytest.mark.parametrize("way", ["press", "number", "request"])
async def test_an_answer_wakes_the_turn_and_its_next_attempt_gets_it(
    desk: ParkedDesk, way: str
) -> None:
    first = await desk.claimed()
    await desk.keep(first, "search")
    asked = await desk.park(first, default="n")
    await desk.kernel.deadlines.sweep()
    assert await desk.is_parked(first)
    assert not await desk.notified(first)
    shown = await desk.open_question(session_of(first), ANN)
    assert shown is not None
    assert shown.question_id == asked.question_id

    # Another router, which knows only the database.
    desk = ParkedDesk(desk.kernel.restarted())
    if way == "request":
        assert (await desk.reply(first, asked, value="y", acting_for=ANN)).answer == "y"
    elif way == "number":
        await desk.say(text="1", mid="2")
    else:
        press = {"value": pressed(asked), "label": "Yes"}
        await desk.say(kind="action", event_id="q1", mid="2", press=press)
    second = await desk.woken(first)

    assert await desk.kept(second) == {"value": "y", "is_default": False}
    assert (await desk.find(second)).result is not None
    assert (texts(second), second.interruption) == (["book a table"], None)
    assert await desk.ends() == ["answered"]
    [heard] = await desk.kernel.published("EVENTS", f"{EVENTS}asked.%")
    assert heard["parked"] is True
    # A lost attempt leaves the answer to the next one; the end of the turn deletes it.
    await desk.kernel.expire(first.turn_id)
    third = await desk.kernel.claim_live(session_of(first))
    assert (await desk.kept(third))["value"] == "y"
    await desk.kernel.answer(third, "Booked.")
    assert await desk.stored() == []
    said = await desk.kernel.said(session_of(first))
    assert (said[0], said[1], said[-1]) == ("book a table", "Delete it?", "Booked.")


async def test_a_parked_turn_has_no_worker_and_a_late_one_changes_nothing(
    desk: ParkedDesk,
) -> None:
    request = {"message": Part(text="Sure?"), "within_ms": DAY_MS, "park_as": NAME}
    first = await desk.claimed()
    ask = TurnAsk(**stamp(), **of_attempt(first), options=YES_NO, **request)  # type: ignore[arg-type]
    replies = [await desk.change(ask) for _ in range(2)]
    assert replies[0] == replies[1]
    assert replies[0].parked
    # Notifications that come late, a renewal, and results of the attempt.
    for claim_id in ("another", ""):
        claim = await desk.kernel.claim(first.turn_id, claim_id=claim_id)
        assert claim.status is ClaimStatus.TAKEN
    assert (await desk.kernel.renew(first)).status is RenewStatus.STALE
    late = await desk.change(ask.model_copy(update={"id": "late"}))
    assert late.error is not None
    await desk.kernel.answer(first, "late")
    await desk.kernel.answer(first, outcome="failed", retry=True, parts=[])
    assert await desk.is_parked(first)
    assert await desk.kernel.due_in(first.turn_id) > timedelta(hours=23)
    assert await desk.kernel.said(session_of(first)) == ["book a table", "Sure?"]
    assert desk.kernel.metrics.counts["turns_parked", "main"] == 1


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"default": "n"}, {"value": "n", "is_default": True}),
        ({}, {"is_default": True}),
        (
            {"options": (), "fields": FIELDS, "message": Part(text="The trip")},
            {"values": {"days": 2}, "is_default": True},
        ),
    ],
)
async def test_the_deadline_wakes_the_turn_with_the_default(
    desk: ParkedDesk, fields: dict[str, Any], kept: object
) -> None:
    first, asked = await desk.parked(**fields)
    if "fields" in fields:
        # A form that is half filled in has its defaults.
        await desk.say(text="Oslo", mid="2")
    await desk.kernel.let_expire(first.turn_id)
    second = await desk.woken(first)
    assert await desk.kept(second) == kept
    assert await desk.ends() == ["expired"]
    late = await desk.reply(first, asked, value="y")
    assert late.error is not None
    assert await desk.kept(second) == kept
    assert desk.kernel.metrics.counts["turns_woken", "main", "expired"] == 1


async def test_a_turn_may_park_often_and_no_attempt_counts(kernel_with: KernelWith) -> None:
    desk = ParkedDesk(await kernel_with(catalog(agents=[Agent("main", max_attempts=2)])))
    claimed = await desk.claimed()
    for number in range(4):
        form = {"options": (), "fields": FIELDS, "message": Part(text="The trip")}
        asked = await desk.park(claimed, park_as=f"day {number}", **form)
        values = {"city": "Oslo", "days": number + 1}
        assert (await desk.reply(claimed, asked, values=values)).error is None
        claimed = await desk.woken(claimed)
    for number in range(4):
        assert (await desk.kept(claimed, f"day {number}"))["values"]["days"] == number + 1
    # The last answer of a name counts.
    asked = await desk.park(claimed, park_as="day 0")
    await desk.reply(claimed, asked, value="n")
    claimed = await desk.woken(claimed)
    assert await desk.kept(claimed, "day 0") == {"value": "n", "is_default": False}
    await desk.kernel.expire(claimed.turn_id)
    last = await desk.kernel.claim_live(session_of(claimed))
    assert last.interruption is not None
    assert last.interruption.count == 1
    await desk.kernel.answer(last, "done")
    assert await desk.kernel.dead() == []


@pytest.mark.parametrize("busy", ["collect", "queue", "steer", "interrupt"])
async def test_what_is_written_meanwhile_waits_or_interrupts(
    kernel_with: KernelWith, busy: BusyMode
) -> None:
    desk = ParkedDesk(await kernel_with(catalog(agents=[Agent("main", busy=busy)])))
    first, asked = await desk.parked()
    for mid in ("2", "3"):
        await desk.say(text=f"message {mid}", mid=mid)
    await desk.kernel.deadlines.sweep()
    if busy == "interrupt":
        # The turn is over at once, and the messages are the next one.
        assert await desk.ends() == ["withdrawn"]
        following = await desk.kernel.claim_live(session_of(first))
        assert following.turn_id != first.turn_id
        assert texts(following) == ["message 2", "message 3"]
        assert (await desk.reply(first, asked, value="y")).error is not None
        assert await desk.stored() == []
        return
    assert await desk.is_parked(first)
    assert await desk.kernel.waiting(session_of(first)) == ["message 2", "message 3"]
    await desk.say(text="yes", mid="4")
    second = await desk.woken(first)
    assert (await desk.kept(second))["value"] == "y"
    assert (await desk.kernel.renew(second)).steer is (busy == "steer")
    await desk.kernel.answer(second, "Booked.")
    following = await desk.kernel.claim_live(session_of(first))
    # With `queue` each message has its own turn; the order of the conversation stays.
    assert texts(following) == ["message 2", "message 3"][: 1 if busy == "queue" else 2]


@pytest.mark.parametrize("event_", ["/stop", "stop", "/new", "reset", "delete"])
async def test_what_ends_a_parked_turn_ends_it_at_once(desk: ParkedDesk, event_: str) -> None:
    first = await desk.claimed()
    await desk.keep(first)
    asked = await desk.park(first)
    await desk.say(text="and a cake", mid="2")
    if event_ == "stop":
        await desk.change(SessionStop(**stamp(), session_id=session_of(first)))
    elif event_ == "reset":
        await desk.change(SessionReset(**stamp(), session_id=session_of(first)))
    elif event_ == "delete":
        await desk.say(kind="delete", mid="1")
    else:
        await desk.say(text=event_, mid="3")
    assert await desk.ends() == ["withdrawn"]
    assert await desk.stored() == []
    assert await desk.open_question(session_of(first)) is None
    assert (await desk.kernel.claim(first.turn_id)).status is ClaimStatus.VOID
    press = {"value": pressed(asked), "label": "Yes"}
    await desk.say(kind="action", event_id="q1", mid="9", press=press)
    assert (await desk.reply(first, asked, value="y")).error is not None
    live = await desk.kernel.live_turn(session_of(first))
    assert (live is not None) is (event_ == "delete")
    ended = await desk.kernel.published("EVENTS", f"{EVENTS}ended.%")
    assert [row["outcome"] for row in ended] == ["cancelled"]


async def test_an_edit_wakes_the_turn_without_an_answer(desk: ParkedDesk) -> None:
    first = await desk.claimed()
    await desk.keep(first)
    asked = await desk.park(first)
    await desk.say(kind="edit", mid="1", text="book two tables")
    second = await desk.woken(first)
    assert texts(second) == ["book two tables"]
    assert await desk.kept(second) is None
    assert (await desk.find(second)).result is not None
    assert await desk.ends() == ["withdrawn"]
    assert (await desk.reply(second, asked, value="y")).error is not None
    again = await desk.park(second)
    assert (await desk.reply(second, again, value="y")).error is None
    assert (await desk.kept(await desk.woken(second)))["value"] == "y"


async def test_commands_refuse_what_they_refuse_while_a_turn_runs(desk: ParkedDesk) -> None:
    first, _ = await desk.parked()
    for mid, command in enumerate(("/undo", "/retry"), 2):
        await desk.say(text=command, mid=str(mid))
    long_ago = datetime.now(UTC) - timedelta(days=60)
    await desk.kernel.fetch("UPDATE sessions SET started_at = $1, last_activity_at = $1", long_ago)
    await desk.change(SessionPrune(**stamp(), idle_days=30))
    assert await desk.is_parked(first)
    assert await desk.ends() == []


async def test_people_of_the_team_may_talk_while_a_turn_is_parked(desk: ParkedDesk) -> None:
    first, asked = await desk.parked(options=())
    session_id = session_of(first)
    taken = await desk.change(SessionTakeover(**stamp(), session_id=session_id, lasts_s=3600))
    assert taken.error is None
    await desk.say(text="hello?", mid="2")
    assert await desk.is_parked(first)
    assert await desk.kernel.waiting(session_id) == ["hello?"]
    assert (await desk.reply(first, asked, value="at eight")).error is None
    await desk.kernel.deadlines.sweep()
    # The agent waits until the chat is handed back.
    assert (await desk.kernel.claim(first.turn_id)).status is ClaimStatus.TAKEN
    await desk.change(SessionHandback(**stamp(), session_id=session_id))
    second = await desk.woken(first)
    assert await desk.kept(second) == {"value": "at eight", "is_default": False}


async def test_an_erasure_ends_the_turn_and_takes_the_buttons_away(desk: ParkedDesk) -> None:
    first, _ = await desk.parked()
    await desk.keep(first)
    async with desk.kernel.owner.transaction() as connection:
        await erase_sql.clear_turns(connection, [first.turn_id])
    stored = await desk.kernel.value(
        "SELECT question::text FROM turns WHERE id = $1", first.turn_id
    )
    assert "Delete it?" not in stored
    assert await desk.open_question(session_of(first)) is None
    await desk.kernel.deadlines.sweep()
    assert await desk.kernel.live_turn(session_of(first)) is None
    assert await desk.ends() == ["withdrawn"]
    assert await desk.stored() == []


async def test_the_answer_of_an_erased_person_leaves_a_turn_of_others(desk: ParkedDesk) -> None:
    first, asked = await desk.parked(options=())
    await desk.reply(first, asked, value="my words")
    second = await desk.woken(first)
    await desk.keep(second, "search")
    async with desk.kernel.owner.transaction() as connection:
        await sessions.lock(connection, [session_of(first)])
        await questions.forget_answers(connection, session_of(first))
    assert await desk.kept(second) is None
    assert [name for name, _, _ in await desk.stored()] == ["search"]


async def test_a_parked_turn_is_explained_and_counted(desk: ParkedDesk) -> None:
    first, asked = await desk.parked()
    explain = ExplanationQueries(desk.kernel.store, desk.kernel.catalog).table()["explain.session"]
    request = ExplainSession(**stamp(), session_id=session_of(first))
    explained: ExplainSessionReply = await explain[1](request)  # type: ignore[assignment]
    assert explained.state == "parked"
    assert explained.next_at is not None
    assert asked.due_at is not None
    assert abs(explained.next_at - asked.due_at) < timedelta(minutes=1)
    view = await SessionReads(desk.kernel.store).find(session_of(first), None)
    assert view is not None
    assert view.turn is not None
    assert (view.turn.state, view.turn.has_worker, view.is_busy) == ("parked", False, True)
    async with desk.kernel.store.transaction() as connection:
        sampled = await reconciliation_sql.sample(connection)
    assert [(its.state, its.number) for its in sampled.turns] == [("parked", 1)]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"park_as": None, "within_ms": LONGEST_QUESTION_MS + 1}, "within_ms"),
        ({"within_ms": LONGEST_PARKED_MS, "options": ()}, None),
    ],
)
async def test_only_a_parked_question_may_be_open_for_months(
    desk: ParkedDesk, fields: dict[str, Any], problem: str | None
) -> None:
    claimed = await desk.claimed()
    given: dict[str, Any] = {"message": Part(text="When?"), "options": YES_NO, "park_as": NAME}
    reply = await desk.change(TurnAsk(**stamp(), **of_attempt(claimed), **(given | fields)))
    if problem is not None:
        assert problem in reply.error.message
        return
    assert reply.parked
    # What is too long to be kept is a message like any other, and not lost.
    await desk.say(text="x" * LARGEST_STEP, mid="2")
    assert await desk.is_parked(claimed)
    assert len(await desk.kernel.waiting(session_of(claimed))) == 1
    refused = await desk.reply(claimed, reply, value="x" * LARGEST_STEP)
    assert refused.error is not None
    await desk.say(text="at eight", mid="3")
    assert (await desk.kept(await desk.woken(claimed)))["value"] == "at eight"
