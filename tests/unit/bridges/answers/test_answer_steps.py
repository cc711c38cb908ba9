"""The thoughts and tool calls of an answer over attempts, recaps and stored rows."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from chatlane_bridges.answers.answer_steps import AnswerSteps, Thought, ToolCall, ToolResult
from chatlane_schemas import new_envelope_id
from chatlane_schemas.live_turns import LivePiece, PieceKind, StepState, TurnPiece, TurnRecap
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import TranscriptEntry

TURN = UUID(int=1)
AT = datetime(2026, 1, 1, tzinfo=UTC)
CALL = LivePiece(kind=PieceKind.TOOL_CALL, tool_id="1", tool_name="search")
RESULT = LivePiece(kind=PieceKind.TOOL_RESULT, tool_id="1", text="Here.")


def thought(text: str) -> LivePiece:
    return LivePiece(kind=PieceKind.THOUGHT, text=text)


def piece(shown: LivePiece, attempt: int = 1) -> TurnPiece:
    return TurnPiece(
        id=new_envelope_id(),
        at=AT,
        turn_id=TURN,
        session_id=TURN,
        attempt=attempt,
        index=0,
        piece=shown,
    )


def test_another_attempt_shows_nothing_twice() -> None:
    steps = AnswerSteps()
    assert [*steps.take(piece(thought("Where ")))] == [Thought("Where ")]
    assert [*steps.take(piece(CALL))] == [ToolCall("1", "search")]
    again = TurnRecap(
        id=new_envelope_id(),
        at=AT,
        turn_id=TURN,
        session_id=TURN,
        attempt=2,
        next_index=9,
        pieces=(thought("Where is it?"), CALL, RESULT),
    )
    assert [*steps.take_recap(again)] == [Thought("is it?"), ToolResult("1", "Here.")]
    late = LivePiece(kind=PieceKind.TOOL_CALL, tool_id="2", tool_name="late")
    assert [*steps.take(piece(late, attempt=1))] == []


def test_stored_rows_add_calls_that_were_not_shown() -> None:
    steps = AnswerSteps()
    failed = LivePiece(kind=PieceKind.TOOL_RESULT, tool_id="1", state=StepState.FAILED)
    assert [*steps.take(piece(failed))] == [ToolCall("1", ""), ToolResult("1", "failed")]
    calls: list[dict[str, Any]] = [
        {"id": "1", "name": "search", "args": {}},
        {"id": "2", "type": "function", "function": {"name": "read", "arguments": '{"page": 1}'}},
    ]
    rows = [
        TranscriptEntry(seq=1, role=Role.ASSISTANT, tool_calls=calls, created_at=AT),
        TranscriptEntry(seq=2, role=Role.TOOL, content="Page 1", tool_call_id="2", created_at=AT),
        TranscriptEntry(
            seq=3, role=Role.TOOL, tool_call_id="3", is_placeholder=True, created_at=AT
        ),
    ]
    expected = [ToolCall("2", "read", '{"page": 1}'), ToolResult("2", "Page 1")]
    assert [*steps.settle(rows)] == expected
    assert [*steps.settle(rows)] == []


def test_a_client_that_goes_on_gets_no_step_again() -> None:
    steps = AnswerSteps()
    steps.note_shown("Where is it?", {"1"})
    assert [*steps.take(piece(thought("Where is it?")))] == []
    assert [*steps.take(piece(CALL)), *steps.take(piece(RESULT))] == []
