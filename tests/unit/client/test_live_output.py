"""What a worker remembers of a running turn for readers that join late."""

import pytest

from chatlane_client.live_output import Recap
from chatlane_schemas import LivePiece, PieceKind, PlanEntry, StepState


def text(words: str) -> LivePiece:
    return LivePiece(kind=PieceKind.TEXT, text=words)


def call(state: StepState, title: str | None = None) -> LivePiece:
    return LivePiece(kind=PieceKind.TOOL_CALL, tool_id="1", title=title, state=state)


def recap_of(*pieces: LivePiece, max_bytes: int = 65536) -> Recap:
    recap = Recap(max_bytes)
    for piece in pieces:
        recap.add(piece)
    return recap


def test_text_and_thoughts_that_continue_are_joined() -> None:
    thought = LivePiece(kind=PieceKind.THOUGHT, text="hm")
    recap = recap_of(text("a"), text("b"), thought, thought, text("c"))
    assert [piece.text for piece in recap.pieces] == ["ab", "hmhm", "c"]
    assert not recap.is_shortened


def test_a_tool_call_keeps_what_later_pieces_do_not_change() -> None:
    recap = recap_of(call(StepState.RUNNING, "Searching"), text("a"), call(StepState.DONE))
    assert recap.pieces == (call(StepState.DONE, "Searching"), text("a"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            LivePiece(kind=PieceKind.PLAN, plan=(PlanEntry(text="a"),)),
            LivePiece(kind=PieceKind.PLAN, plan=(PlanEntry(text="b"),)),
        ),
        (
            LivePiece(kind=PieceKind.USAGE, usage={"input_tokens": 1}),
            LivePiece(kind=PieceKind.USAGE, usage={"input_tokens": 2}),
        ),
        (
            LivePiece(kind=PieceKind.PROGRESS, text="reading"),
            LivePiece(kind=PieceKind.PROGRESS, text="writing"),
        ),
    ],
)
def test_plans_counts_and_notes_replace_the_one_before(first: LivePiece, second: LivePiece) -> None:
    assert recap_of(first, text("a"), second).pieces == (second, text("a"))


def test_the_oldest_pieces_are_dropped_first() -> None:
    thought = LivePiece(kind=PieceKind.THOUGHT, text="x" * 300)
    recap = recap_of(text("a" * 300), thought, text("b"), max_bytes=600)
    assert [piece.text for piece in recap.pieces] == ["x" * 300, "b"]
    assert recap.is_shortened


@pytest.mark.parametrize("letter", ["a", "ä", "🍳", "\n"])
def test_one_long_text_keeps_its_end(letter: str) -> None:
    recap = recap_of(*(text(letter) for _ in range(3000)), text("end"), max_bytes=1000)
    [piece] = recap.pieces
    assert piece.text is not None
    assert piece.text.endswith(f"{letter}end")
    assert len(piece.text.encode()) <= 1000
    assert recap.is_shortened


def test_many_results_of_tools_stay_within_what_a_recap_takes() -> None:
    results = [
        LivePiece(kind=PieceKind.TOOL_RESULT, tool_id=str(number), text="")
        for number in range(1500)
    ]
    recap = recap_of(*results, max_bytes=10**9)
    assert [piece.tool_id for piece in recap.pieces] == [str(it) for it in range(500, 1500)]
