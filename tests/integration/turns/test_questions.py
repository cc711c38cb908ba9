"""Questions of running turns against every event that answers or withdraws them."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import pytest

from chatlane.api.questions import QuestionQueries
from chatlane.api.steps import StepQueries
from chatlane.domain.catalog import Agent, BusyMode
from chatlane.privacy import erase_sql
from chatlane.requests.change_service import ChangeService
from chatlane.store.conversations.session_reads import SessionReads
from chatlane.store.history.transcripts import TranscriptReads
from chatlane.turns.message_expiry import MessageExpiry
from chatlane_schemas.content.buttons import Button
from chatlane_schemas.content.editor_calls import EditorCall, EditorMethod, EditorResult
from chatlane_schemas.content.front_end import (
    ContextEntry,
    FrontEnd,
    FrontEndCall,
    FrontEndTool,
)
from chatlane_schemas.content.questions import FieldKind, FormField, QuestionKind, QuestionState
from chatlane_schemas.envelope import Envelope, new_envelope_id
from chatlane_schemas.questions import (
    ANSWER_PREFIX,
    LARGEST_STEP,
    OpenQuestionView,
    QuestionReply,
    QuestionViewReply,
    StepReply,
    TurnAnswer,
    TurnAsk,
    TurnQuestion,
    TurnReply,
    TurnStep,
)
from chatlane_schemas.results import Part
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_changes import SessionReset, SessionStop
from chatlane_schemas.session_api.session_openings import SessionSubmit
from chatlane_schemas.session_api.sessions import ApiErrorCode, ApiReply, SessionReply
from chatlane_schemas.turns import ClaimReply
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import SLOTS, Kernel, catalog, event

pytestmark = pytest.mark.integration

CALL: Final = FrontEndCall(id="0" * 32, name="set_colour", arguments='{"colour": "blue"}')
YES_NO: Final = (Button(label="Yes", value="y"), Button(label="No", value="n"))
FIELDS: Final = (
    FormField(name="city", label="Which city?"),
    FormField(name="days", label="How many days?", kind=FieldKind.NUMBER, minimum=1, default=2),
)
EVENTS: Final = "chat.v1.event.turn."
ANN: Final = Person(platform="telegram", account="bot", id="701")


@dataclass
class Desk:
    """Requests of workers and readers, as a router decides them."""

    kernel: Kernel

    def __post_init__(self) -> None:
        kernel = self.kernel
        self._changes = ChangeService(kernel.store, kernel.writer, kernel.catalog, SLOTS)
        reads = QuestionQueries(kernel.store, kernel.writer, SessionReads(kernel.store))
        self._reads = reads.table()

    async def change(self, request: Envelope) -> Any:  # noqa: ANN401 - the reply of the request
        content = request.model_dump_json(exclude={"at"}).encode()
        return await self._changes.change("someone", request, sha256(content).digest())

    async def read(self, method: str, request: Envelope) -> Any:  # noqa: ANN401 - the reply of the request
        return await self._reads[method][1](request)

    async def claimed(self, text: str = "clean up") -> ClaimReply:
        placed = await self.say(text=text, mid="1")
        return await self.kernel.claim_live(placed)

    async def say(self, **fields: Any) -> UUID:  # noqa: ANN401 - fields of the event
        placed = await self.kernel.say(event(chat="701", user="701", **fields), datetime.now(UTC))
        return placed.session_id or UUID(int=0)

    async def ask(self, claimed: ClaimReply, **fields: Any) -> QuestionReply:  # noqa: ANN401 - of the request
        given: dict[str, Any] = {
            "message": Part(text="Delete it?"),
            "options": YES_NO,
            "within_ms": 60_000,
        }
        request = TurnAsk(**stamp(), **of_attempt(claimed), **(given | fields))
        reply: QuestionReply = await self.change(request)
        assert reply.error is None, reply.error
        return reply

    async def state(self, claimed: ClaimReply, asked: QuestionReply) -> QuestionReply:
        assert asked.question_id is not None
        request = TurnAnswer(**stamp(), **of_attempt(claimed), question_id=asked.question_id)
        reply: QuestionReply = await self.read("turn.answer", request)
        return reply

    async def open_question(
        self,
        session_id: UUID,
        person: Person | None = None,
        *,
        calls: bool = False,
        front_end_calls: bool = False,
    ) -> OpenQuestionView | None:
        request = TurnQuestion(
            **stamp(),
            session_id=session_id,
            acting_for=person,
            calls=calls,
            front_end_calls=front_end_calls,
        )
        reply: QuestionViewReply = await self.read("turn.question", request)
        assert reply.error is None, reply.error
        return reply.question

    async def reply(
        self,
        claimed: ClaimReply,
        asked: QuestionReply,
        **fields: Any,  # noqa: ANN401 - of the request
    ) -> QuestionReply:
        request = TurnReply(
            **(
                stamp()
                | {"session_id": claimed.session_id, "question_id": asked.question_id}
                | fields
            )
        )
        reply: QuestionReply = await self.change(request)
        return reply

    async def ends(self) -> list[str]:
        """Return how questions ended, as readers of the turn hear it."""
        heard = await self.kernel.published("EVENTS", f"{EVENTS}answered.%")
        return [event["outcome"] for event in heard]


def stamp() -> dict[str, Any]:
    return {"id": new_envelope_id(), "at": datetime.now(UTC)}


def session_of(claimed: ClaimReply) -> UUID:
    assert claimed.session_id is not None
    return claimed.session_id


def of_attempt(claimed: ClaimReply) -> dict[str, Any]:
    return {
        "session_id": claimed.session_id,
        "turn_id": claimed.turn_id,
        "attempt": claimed.attempt,
        "token": claimed.token,
    }


@pytest.fixture
def desk(kernel: Kernel) -> Desk:
    return Desk(kernel)


async def test_readers_of_a_turn_hear_a_question_and_its_end(desk: Desk) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed)
    [heard] = await desk.kernel.published("EVENTS", f"{EVENTS}asked.telegram.bot.person.%")
    assert heard["question_id"] == str(asked.question_id)
    assert (heard["kind"], heard["attempt"]) == ("choice", 1)
    assert "Delete it?" not in str(heard)
    await desk.say(text="1", mid="2")
    assert await desk.ends() == ["answered"]
    found = await desk.state(claimed, asked)
    assert (found.state, found.answer) == (QuestionState.ANSWERED, "y")


async def test_only_an_editor_answers_a_call(desk: Desk) -> None:
    claimed = await desk.claimed()
    call = EditorCall(method=EditorMethod.READ_TEXT_FILE, path="/srv/main.py")
    asked = await desk.ask(claimed, call=call, options=())
    session_id = session_of(claimed)
    assert await desk.open_question(session_id) is None
    shown = await desk.open_question(session_id, calls=True)
    assert shown is not None
    assert (shown.kind, shown.call) == (QuestionKind.CALL, call)
    # No message asks for it, and no message answers it.
    assert await desk.kernel.published("OUTBOUND", "%") == []
    await desk.say(text="yes", mid="2")
    assert (await desk.state(claimed, asked)).state is QuestionState.OPEN
    refused = await desk.reply(claimed, asked, value="no result")
    assert refused.error is not None
    assert refused.error.code is ApiErrorCode.INVALID
    result = EditorResult(content="print()").model_dump_json(exclude_none=True)
    assert (await desk.reply(claimed, asked, value=result)).error is None
    assert (await desk.state(claimed, asked)).answer == result
    assert await desk.ends() == ["answered"]


async def test_only_a_front_end_answers_a_call_of_its_tool(desk: Desk) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed, front_end_call=CALL, options=())
    session_id = session_of(claimed)
    assert await desk.open_question(session_id) is None
    # An editor does not run it.
    assert await desk.open_question(session_id, calls=True) is None
    shown = await desk.open_question(session_id, front_end_calls=True)
    assert shown is not None
    assert (shown.kind, shown.front_end_call) == (QuestionKind.CALL, CALL)
    assert await desk.kernel.published("OUTBOUND", "%") == []
    await desk.say(text="yes", mid="2")
    assert (await desk.state(claimed, asked)).state is QuestionState.OPEN
    refused = await desk.reply(claimed, asked, value="x" * LARGEST_STEP)
    assert refused.error is not None
    assert refused.error.code is ApiErrorCode.INVALID
    assert (await desk.reply(claimed, asked, value="It is blue.")).error is None
    assert (await desk.state(claimed, asked)).answer == "It is blue."


async def test_the_next_attempt_finds_the_result_of_a_call_of_a_tool(desk: Desk) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed, front_end_call=CALL, options=())
    # The worker is dead, and its lease lasts.
    assert (await desk.reply(claimed, asked, value="It is blue.")).error is None
    await desk.kernel.expire(claimed.turn_id)
    again = await desk.kernel.claim_live(session_of(claimed))
    assert again.attempt == 2
    steps = StepQueries(desk.kernel.store).table()["turn.step"][1]
    step = TurnStep(**stamp(), **of_attempt(again), name=ANSWER_PREFIX + CALL.id)
    reply = await steps(step)
    assert isinstance(reply, StepReply)
    assert json.loads(reply.result or "") == {"value": "It is blue.", "is_default": False}
    await desk.kernel.answer(again, "done")
    assert await desk.kernel.value("SELECT count(*) FROM turn_steps") == 0


async def test_a_new_state_of_a_front_end_is_offered_and_not_kept(desk: Desk) -> None:
    claimed = await desk.claimed()
    state = FrontEndCall(id="1" * 32, name="state", arguments='{"colour": "blue"}', is_state=True)
    asked = await desk.ask(claimed, front_end_call=state, options=())
    session_id = session_of(claimed)
    assert await desk.open_question(session_id, calls=True) is None
    shown = await desk.open_question(session_id, front_end_calls=True)
    assert shown is not None
    assert shown.front_end_call == state
    assert (await desk.reply(claimed, asked, value="")).error is None
    assert (await desk.state(claimed, asked)).answer == ""
    assert await desk.kernel.value("SELECT count(*) FROM turn_steps") == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"call": EditorCall(method=EditorMethod.READ_TEXT_FILE, path="/a")},
        {"kind": QuestionKind.TEXT},
        {"park_as": "later"},
        {"options": YES_NO},
    ],
)
async def test_a_call_of_a_tool_is_nothing_else(desk: Desk, fields: dict[str, Any]) -> None:
    claimed = await desk.claimed()
    given: dict[str, Any] = {
        "message": Part(text="Run it"),
        "within_ms": 60_000,
        "front_end_call": CALL,
    } | fields
    request = TurnAsk(**stamp(), **of_attempt(claimed), **given)
    reply: QuestionReply = await desk.change(request)
    assert reply.error is not None
    assert reply.error.code is ApiErrorCode.INVALID


async def test_only_the_turn_of_a_message_gets_what_its_front_end_gave(desk: Desk) -> None:
    front_end = FrontEnd(
        tools=(FrontEndTool(name="set_colour"),), context=(ContextEntry(value="a cart"),)
    )
    claimed = await desk.claimed()
    session_id = session_of(claimed)
    await desk.kernel.answer(claimed, "first")
    submitted = SessionSubmit(
        **stamp(), session_id=session_id, text="paint it", front_end=front_end
    )
    reply: SessionReply = await desk.change(submitted)
    assert reply.error is None
    for attempt in (1, 2):
        turn = await desk.kernel.claim_live(session_id)
        assert (turn.attempt, turn.messages[0].front_end) == (attempt, front_end)
        await desk.kernel.expire(turn.turn_id)
    reads = TranscriptReads(desk.kernel.store)
    for with_reasoning in (True, False):
        found = await reads.rows(
            session_id, below_seq=100, limit=10, max_bytes=10_000, with_reasoning=with_reasoning
        )
        assert "paint it" in str(found)
        assert "a cart" not in str(found)


async def test_whoever_may_see_the_session_reads_the_question(desk: Desk) -> None:
    claimed = await desk.claimed()
    assert await desk.open_question(session_of(claimed)) is None
    asked = await desk.ask(claimed, kind="permission", default="n")
    for person in (None, ANN):
        found = await desk.open_question(session_of(claimed), person)
        assert found is not None
        assert (found.question_id, found.text, found.options) == (
            asked.question_id,
            "Delete it?",
            YES_NO,
        )
        assert (found.kind, found.default, found.attempt) == ("permission", "n", 1)


@pytest.mark.parametrize(
    "stranger",
    [
        Person(platform="telegram", account="bot", id="702"),
        Person(platform="slack", account="bot", id="701"),
        Person(platform="telegram", account="other", id="701"),
    ],
)
async def test_nobody_else_reads_or_answers_it(desk: Desk, stranger: Person) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed)
    request = TurnQuestion(**stamp(), session_id=session_of(claimed), acting_for=stranger)
    read: ApiReply = await desk.read("turn.question", request)
    replied = await desk.reply(claimed, asked, value="y", acting_for=stranger)
    for error in (read.error, replied.error):
        assert error is not None
        assert error.code is ApiErrorCode.NOT_FOUND
    assert (await desk.state(claimed, asked)).state is QuestionState.OPEN


async def test_a_reply_answers_once_however_often_it_is_sent(desk: Desk) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed)
    request_id = new_envelope_id()
    for _ in range(2):
        reply = await desk.reply(claimed, asked, value="n", id=request_id, acting_for=ANN)
        assert (reply.error, reply.answer) == (None, "n")
    later = await desk.reply(claimed, asked, value="y", acting_for=ANN)
    assert later.error is not None
    assert later.error.code is ApiErrorCode.CONFLICT
    assert (await desk.state(claimed, asked)).answer == "n"
    assert await desk.kernel.said(session_of(claimed)) == ["clean up", "Delete it?", "No"]
    assert await desk.ends() == ["answered"]
    assert [body for _, body in desk.kernel.controls if body.get("answered")] != []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"value": "maybe"}, "value: is none of the options"),
        ({}, "value: a question that is no form takes one value"),
        ({"values": {"a": 1}}, "value: a question that is no form takes one value"),
    ],
)
async def test_a_wrong_reply_is_refused_and_the_question_stands(
    desk: Desk, fields: dict[str, Any], problem: str
) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed)
    reply = await desk.reply(claimed, asked, **fields)
    assert reply.error is not None
    assert (reply.error.code, reply.error.message) == (ApiErrorCode.INVALID, problem)
    assert (await desk.state(claimed, asked)).state is QuestionState.OPEN


async def test_a_submitted_text_answers_as_a_message_does(desk: Desk) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed)
    for text, answers in (("not now", False), ("yes", True), ("yes", False)):
        request = SessionSubmit(
            **stamp(), session_id=session_of(claimed), text=text, acting_for=ANN
        )
        reply: SessionReply = await desk.change(request)
        assert reply.turn_id == (claimed.turn_id if answers else None)
    assert (await desk.state(claimed, asked)).answer == "y"
    assert await desk.kernel.waiting(session_of(claimed)) == ["not now", "yes"]


async def test_a_whole_form_names_the_field_that_is_wrong(desk: Desk) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed, options=(), fields=FIELDS, message=Part(text="The trip"))
    found = await desk.open_question(session_of(claimed))
    assert found is not None
    assert (found.kind, found.fields) == ("form", FIELDS)
    wrong = await desk.reply(claimed, asked, values={"city": "Oslo", "days": 0})
    assert wrong.error is not None
    assert wrong.error.message == "values.days: Please write a number of 1 or more."
    right = await desk.reply(claimed, asked, values={"city": "Oslo", "days": 3})
    assert (right.error, right.values) == (None, {"city": "Oslo", "days": 3})
    assert (await desk.state(claimed, asked)).values == {"city": "Oslo", "days": 3}
    assert await desk.kernel.said(session_of(claimed)) == [
        "clean up",
        "The trip",
        "Which city?",
        "Which city?: Oslo\nHow many days?: 3",
    ]


async def test_a_chat_fills_in_a_form_field_by_field(desk: Desk) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed, options=(), fields=FIELDS, message=Part(text="The trip"))
    await desk.say(text="Oslo", mid="2")
    found = await desk.open_question(session_of(claimed))
    assert found is not None
    assert found.values == {"city": "Oslo"}
    assert found.message_id != asked.message_id
    # Another router, which knows only the database.
    other = Desk(desk.kernel.restarted())
    await other.say(text="none", mid="3")
    await other.say(text="4", mid="4")
    assert (await other.state(claimed, asked)).values == {"city": "Oslo", "days": 4}
    assert await desk.kernel.said(session_of(claimed)) == [
        "clean up",
        "The trip",
        "Which city?",
        "Oslo",
        "How many days?",
        "none",
        "Please write a number, such as 3 or 2.5.\n\nHow many days?",
        "4",
    ]
    assert await desk.ends() == ["answered"]


async def test_several_fields_may_be_answered_in_one_batch(desk: Desk) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed, options=(), fields=FIELDS, message=Part(text="The trip"))
    said = [event(chat="701", user="701", mid=mid, text=mid) for mid in ("Oslo", "0", "5", "6")]
    await desk.kernel.say_together(said, datetime.now(UTC))
    assert (await desk.state(claimed, asked)).values == {"city": "Oslo", "days": 5}
    assert await desk.kernel.waiting(session_of(claimed)) == ["6"]


async def test_without_an_answer_in_time_the_declared_default_counts(desk: Desk) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed, within_ms=1, default="n")
    found = await desk.state(claimed, asked)
    assert (found.state, found.answer) == (QuestionState.EXPIRED, "n")
    assert await desk.ends() == ["expired"]
    late = await desk.reply(claimed, asked, value="y")
    assert late.error is not None
    assert late.error.code is ApiErrorCode.CONFLICT
    assert await desk.open_question(session_of(claimed)) is None


async def test_a_form_has_the_defaults_of_its_fields_and_nothing_that_is_half(desk: Desk) -> None:
    claimed = await desk.claimed()
    form = {"options": (), "fields": FIELDS, "message": Part(text="The trip")}
    asked = await desk.ask(claimed, within_ms=1, **form)
    assert (await desk.state(claimed, asked)).values == {"days": 2}


@pytest.mark.parametrize("event_", ["stop", "/stop", "/new", "reset", "interrupt"])
async def test_what_ends_the_turn_withdraws_the_question(
    kernel_with: KernelWith, event_: str
) -> None:
    busy: BusyMode = "interrupt" if event_ == "interrupt" else "collect"
    desk = Desk(await kernel_with(catalog(agents=[Agent("main", busy=busy)])))
    claimed = await desk.claimed()
    asked = await desk.ask(claimed)
    if event_ == "stop":
        await desk.change(SessionStop(**stamp(), session_id=session_of(claimed)))
    elif event_ == "reset":
        await desk.change(SessionReset(**stamp(), session_id=session_of(claimed)))
    elif event_ == "interrupt":
        await desk.say(text="something else", mid="2")
    else:
        await desk.say(text=event_, mid="2")
    assert await desk.ends() == ["withdrawn"]
    assert await desk.open_question(session_of(claimed)) is None
    await desk.say(text="yes", mid="3")
    late = await desk.reply(claimed, asked, value="y")
    assert late.error is not None
    assert (await desk.state(claimed, asked)).state is QuestionState.OVER
    await desk.kernel.answer(claimed, "so far")
    assert await desk.ends() == ["withdrawn"]


@pytest.mark.parametrize("is_edited", [True, False])
async def test_an_edit_of_the_message_withdraws_the_question(
    desk: Desk, *, is_edited: bool
) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed)
    mid, text = ("1", "clean up the logs") if is_edited else ("9", "of another message")
    await desk.say(kind="edit", mid=mid, text=text)
    found = await desk.state(claimed, asked)
    assert found.state is (QuestionState.WITHDRAWN if is_edited else QuestionState.OPEN)
    assert await desk.ends() == (["withdrawn"] if is_edited else [])


async def test_an_edited_answer_leaves_the_next_question_open(desk: Desk) -> None:
    claimed = await desk.claimed()
    await desk.ask(claimed, options=(), fields=FIELDS, message=Part(text="The trip"))
    await desk.say(text="Olso", mid="2")
    await desk.say(kind="edit", mid="2", text="Oslo")
    assert await desk.open_question(session_of(claimed)) is not None


async def test_an_answer_reaches_no_other_attempt(desk: Desk) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed)
    await desk.kernel.expire(claimed.turn_id)
    assert await desk.ends() == ["withdrawn"]
    again = await desk.kernel.claim_live(session_of(claimed))
    assert again.attempt == 2
    for reply in (
        await desk.reply(claimed, asked, value="y"),
        await desk.reply(again, asked, value="y"),
    ):
        assert reply.error is not None
        assert reply.error.code is ApiErrorCode.CONFLICT
    second = await desk.ask(again, message=Part(text="Really?"))
    await desk.say(text="no", mid="2")
    assert (await desk.state(again, second)).answer == "n"
    assert (await desk.state(claimed, asked)).state is QuestionState.OVER


async def test_an_erasure_leaves_the_end_of_a_question_to_the_turn(desk: Desk) -> None:
    claimed = await desk.claimed()
    await desk.ask(claimed)
    async with desk.kernel.owner.transaction() as connection:
        await erase_sql.clear_turns(connection, [claimed.turn_id])
    stored = await desk.kernel.value(
        "SELECT question::text FROM turns WHERE id = $1", claimed.turn_id
    )
    assert "Delete it?" not in stored
    assert "Yes" not in stored
    assert await desk.open_question(session_of(claimed)) is None
    await desk.kernel.answer(claimed, "so far")
    assert await desk.ends() == ["withdrawn"]


@pytest.mark.parametrize("answers", [True, False])
async def test_c77_what_comes_with_a_press_ends_although_it_answers_a_question(
    desk: Desk,
    answers: bool,  # noqa: FBT001
) -> None:
    claimed = await desk.claimed()
    asked = await desk.ask(claimed)
    over = "2026-05-11T10:00:00Z"
    press = {"value": "y" if answers else "later", "label": "Yes" if answers else "Later"}
    await desk.say(
        kind="action",
        event_id="q1",
        mid="1",
        press=press,
        expires_at=over,
        return_address={"value": "token-1", "expires_at": over},
    )
    found = await desk.state(claimed, asked)
    assert (found.state is QuestionState.ANSWERED) is answers
    rows = "(SELECT content, details FROM messages UNION ALL SELECT content, details FROM waiting)"
    count = f"SELECT count(*) FROM {rows} AS said WHERE said::text LIKE $1"  # noqa: S608
    assert await desk.kernel.value(count, f"%{press['label']}%") > 0
    assert await MessageExpiry(desk.kernel.store, desk.kernel.writer).sweep() > 0
    assert await desk.kernel.value(count, "%token-1%") == 0
    if answers:
        assert "Yes" not in await desk.kernel.said(session_of(claimed))
