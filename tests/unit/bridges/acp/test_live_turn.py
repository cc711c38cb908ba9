"""What an editor is shown of a turn, over lost pieces, attempts and stored rows."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from chatlane_bridges.acp.live_turn import LiveTurn
from chatlane_schemas import new_envelope_id
from chatlane_schemas.live_turns import LivePiece, PieceKind, StepState, TurnPiece, TurnRecap
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import TranscriptEntry

TURN: Final = UUID(int=1)
SESSION: Final = UUID(int=2)
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


def text(words: str) -> LivePiece:
    return LivePiece(kind=PieceKind.TEXT, text=words)


def piece(shown: LivePiece, *, attempt: int = 1) -> TurnPiece:
    return TurnPiece(
        id=new_envelope_id(),
        at=NOW,
        turn_id=TURN,
        session_id=SESSION,
        attempt=attempt,
        index=0,
        piece=shown,
    )


def recap(*pieces: LivePiece, is_shortened: bool = False, attempt: int = 1) -> TurnRecap:
    return TurnRecap(
        id=new_envelope_id(),
        at=NOW,
        turn_id=TURN,
        session_id=SESSION,
        attempt=attempt,
        next_index=9,
        pieces=pieces,
        is_shortened=is_shortened,
    )


def row(seq: int, words: str | None, role: Role = Role.ASSISTANT, **more: Any) -> TranscriptEntry:  # noqa: ANN401 - any field
    return TranscriptEntry(
        row_id=UUID(int=seq),
        seq=seq,
        role=role,
        content=words,
        created_at=NOW,
        turn_id=TURN,
        **more,
    )


def said(updates: Iterable[dict[str, Any]]) -> list[str]:
    """Return the messages of the agent, each with all of its parts."""
    messages: dict[str, str] = {}
    for update in updates:
        if update["sessionUpdate"] == "agent_message_chunk":
            key = update["messageId"]
            messages[key] = messages.get(key, "") + update["content"]["text"]
    return [*messages.values()]


def test_a_recap_adds_only_what_is_missing() -> None:
    turn = LiveTurn(TURN)
    shown = [
        *turn.take(piece(text("It is"))),
        *turn.take_recap(recap(text("It is 4"))),
        *turn.take_recap(recap(text("It is 4"))),
        *turn.take(piece(text(" °C"))),
        *turn.settle([row(1, "It is 4 °C")], is_over=True),
    ]
    assert said(shown) == ["It is 4 °C"]


def test_a_shortened_recap_waits_for_the_stored_answer() -> None:
    turn = LiveTurn(TURN)
    shown = [
        *turn.take(piece(text("It "))),
        *turn.take_recap(recap(text("4"), is_shortened=True)),
        *turn.take(piece(text(" °C"))),
        *turn.settle([row(1, "It is 4 °C")], is_over=True),
    ]
    assert said(shown) == ["It is 4 °C"]


def test_an_attempt_that_says_something_else_is_another_message() -> None:
    turn = LiveTurn(TURN)
    shown = [
        *turn.take(piece(text("It is hot"))),
        *turn.take(piece(text("It is "), attempt=2)),
        *turn.take(piece(text("cold"), attempt=2)),
        *turn.take(piece(text(" late"), attempt=1)),
        *turn.settle([row(1, "It is cold")], is_over=True),
    ]
    assert said(shown) == ["It is hot", "It is cold"]


def test_an_answer_that_was_not_streamed_is_shown_once() -> None:
    turn = LiveTurn(TURN)
    rows = [row(1, "Looking it up."), row(2, "It is 4 °C")]
    shown = [*turn.settle(rows[:1], is_over=False), *turn.settle(rows, is_over=True)]
    assert said(shown) == ["Looking it up.", "It is 4 °C"]
    assert [*turn.settle(rows, is_over=True)] == []


def test_a_message_beside_the_stream_is_shown_beside_it() -> None:
    turn = LiveTurn(TURN)
    shown = [
        *turn.take(piece(text("It is "))),
        *turn.settle([row(1, "One moment.")], is_over=False),
        *turn.take(piece(text("4 °C"))),
        *turn.settle([row(1, "One moment."), row(2, "It is 4 °C")], is_over=True),
    ]
    assert said(shown) == ["It is 4 °C", "One moment."]


def test_a_row_that_comes_before_its_last_pieces_is_shown_once() -> None:
    turn = LiveTurn(TURN)
    rows = [row(1, "It is 4 °C"), row(2, "Anything else?")]
    shown = [
        *turn.take(piece(text("It is "))),
        *turn.settle(rows, is_over=False),
        *turn.take(piece(text("4 °C"))),
        *turn.settle(rows, is_over=False),
        *turn.settle(rows, is_over=True),
    ]
    assert said(shown) == ["It is 4 °C", "Anything else?"]


def test_questions_are_not_words_of_the_agent() -> None:
    turn = LiveTurn(TURN)
    turn.asks("Delete it?", "City")
    rows = [row(1, "Delete it?"), row(2, "City\nor skip"), row(3, "Yes", Role.USER), row(4, "Done")]
    assert said(turn.settle(rows, is_over=True)) == ["Done"]


def test_calls_are_shown_once_and_end() -> None:
    turn = LiveTurn(TURN)
    call = LivePiece(kind=PieceKind.TOOL_CALL, tool_id="a", tool_name="search")
    lost = LivePiece(kind=PieceKind.TOOL_CALL, tool_id="b", tool_name="read")
    live = [*turn.take(piece(call)), *turn.take(piece(lost)), *turn.take(piece(call))]
    stored = [
        row(1, None, tool_calls=[{"id": "a", "function": {"name": "search", "arguments": "{}"}}]),
        row(2, "found", Role.TOOL, tool_call_id="a", tool_name="search"),
    ]
    settled = [*turn.settle(stored, is_over=True)]
    assert [it["sessionUpdate"] for it in live] == ["tool_call", "tool_call", "tool_call_update"]
    assert [(it["toolCallId"][-1], it["status"]) for it in settled] == [
        ("a", "completed"),
        ("b", "failed"),
    ]


def test_a_failed_call_stays_failed() -> None:
    turn = LiveTurn(TURN)
    call: dict[str, Any] = {"tool_id": "a", "tool_name": "search"}
    failed = LivePiece(kind=PieceKind.TOOL_CALL, state=StepState.FAILED, **call)
    result = LivePiece(kind=PieceKind.TOOL_RESULT, text="no access", **call)
    shown = [*turn.take(piece(failed)), *turn.take(piece(result))]
    assert [it["status"] for it in shown] == ["failed", "failed"]
