"""Events of a run: which calls a front end gets, and which it does not."""

from datetime import UTC, datetime
from uuid import UUID

from ag_ui.core import EventType

from chatlane_bridges.ag_ui.run_events import RunEvents
from chatlane_bridges.answers.answer_follower import Answer
from chatlane_bridges.answers.answer_steps import NewState, ToolCall, ToolResult
from chatlane_schemas.content.front_end import FrontEndCall
from chatlane_schemas.content.questions import QuestionKind
from chatlane_schemas.questions import OpenQuestionView

CALL = FrontEndCall(id="2" * 32, name="set_colour", arguments='{"colour": "blue"}')
ASKED = OpenQuestionView(
    question_id=UUID(int=5),
    turn_id=UUID(int=1),
    attempt=1,
    agent="main",
    kind=QuestionKind.CALL,
    message_id=UUID(int=6),
    due_at=datetime(2026, 1, 1, tzinfo=UTC),
    front_end_call=CALL,
)


def test_a_front_end_gets_a_call_of_its_tool_once_it_is_to_run_it() -> None:
    events = RunEvents("thread", "run", frozenset({"set_colour"}))
    # What the model said about it, and the result that the agent got.
    assert [*events.take(ToolCall("call_1", "set_colour", {"colour": "blue"}))] == []
    assert [*events.take(ToolResult("call_1", "It is blue."))] == []
    started, arguments, ended, finished = events.end(Answer(text="", question=ASKED))
    call_id = f"{UUID(int=1).hex}{CALL.id}"
    assert started.model_dump()["tool_call_id"] == call_id
    assert arguments.model_dump()["delta"] == CALL.arguments
    assert ended.type is EventType.TOOL_CALL_END
    assert finished.model_dump()["outcome"]["type"] == "success"


def test_a_front_end_sees_calls_of_the_agents_own_tools() -> None:
    events = RunEvents("thread", "run", frozenset({"set_colour"}))
    shown = [*events.take(ToolCall("1", "search")), *events.take(ToolResult("1", "Here."))]
    kinds = [event.type for event in shown]
    assert kinds == [EventType.TOOL_CALL_START, EventType.TOOL_CALL_END, EventType.TOOL_CALL_RESULT]


def test_a_new_state_ends_the_text_before_it() -> None:
    events = RunEvents("thread", "run")
    state = NewState(UUID(int=5), {"colour": "blue"})
    shown = [*events.take("Wait, "), *events.take(state), *events.take("done.")]
    kinds = [event.type for event in shown]
    text = [EventType.TEXT_MESSAGE_START, EventType.TEXT_MESSAGE_CONTENT]
    assert kinds == [*text, EventType.TEXT_MESSAGE_END, EventType.STATE_SNAPSHOT, *text]
    assert shown[3].model_dump()["snapshot"] == {"colour": "blue"}
