"""The text of an answer over attempts, recaps and stored rows."""

from datetime import UTC, datetime
from uuid import UUID

from chatlane_bridges.answers.answer_text import AnswerText
from chatlane_schemas import new_envelope_id
from chatlane_schemas.live_turns import LivePiece, PieceKind, TurnPiece, TurnRecap
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import TranscriptEntry

TURN = UUID(int=1)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def piece(text: str, attempt: int = 1, kind: PieceKind = PieceKind.TEXT) -> TurnPiece:
    return TurnPiece(
        id=new_envelope_id(),
        at=AT,
        turn_id=TURN,
        session_id=TURN,
        attempt=attempt,
        index=0,
        piece=LivePiece(kind=kind, text=text),
    )


def recap(text: str, attempt: int = 1, *, is_shortened: bool = False) -> TurnRecap:
    return TurnRecap(
        id=new_envelope_id(),
        at=AT,
        turn_id=TURN,
        session_id=TURN,
        attempt=attempt,
        next_index=9,
        pieces=(LivePiece(kind=PieceKind.TEXT, text=text),),
        is_shortened=is_shortened,
    )


def row(seq: int, text: str) -> TranscriptEntry:
    return TranscriptEntry(seq=seq, role=Role.ASSISTANT, content=text, created_at=AT)


def test_the_stored_answer_adds_what_the_pieces_lack() -> None:
    text = AnswerText()
    assert text.take(piece("You ")) == "You "
    assert text.take(piece("thinking", kind=PieceKind.THOUGHT)) == ""
    assert text.settle([row(2, "You said: one")], is_over=True) == "said: one"
    assert text.settle([row(2, "You said: one")], is_over=True) == ""
    assert text.given == "You said: one"


def test_another_attempt_says_nothing_twice() -> None:
    text = AnswerText()
    text.take(piece("You said"))
    assert text.take(piece("You ", attempt=2)) == ""
    assert text.take(piece("said: one", attempt=2)) == ": one"
    assert text.take(piece("late", attempt=1)) == ""
    assert text.settle([row(2, "You said: one")], is_over=True) == ""


def test_another_text_begins_a_paragraph() -> None:
    text = AnswerText()
    text.take(piece("You sa"))
    assert text.take(piece("I said", attempt=2)) == "\n\nI said"
    assert text.settle([row(2, "I said no")], is_over=True) == " no"
    assert text.given == "You sa\n\nI said no"


def test_a_recap_replaces_the_pieces_before_it() -> None:
    text = AnswerText()
    text.take(piece("You "))
    assert text.take_recap(recap("You said: ")) == "said: "
    assert text.take_recap(recap("the end", is_shortened=True)) == ""
    assert text.take(piece("of it")) == ""
    assert text.settle([row(2, "You said: one")], is_over=True) == "one"


def test_what_a_turn_says_before_its_answer_is_a_paragraph() -> None:
    text = AnswerText()
    assert text.settle([row(2, "One moment.")], is_over=False) == "One moment."
    assert text.take(piece("You said")) == "\n\nYou said"
    rows = [row(2, "One moment."), row(3, "You said: one")]
    assert text.settle(rows, is_over=True) == ": one"
    assert text.given == "One moment.\n\nYou said: one"


def test_a_row_whose_pieces_still_come_waits_for_them() -> None:
    text = AnswerText()
    text.take(piece("One "))
    assert text.settle([row(2, "One moment.")], is_over=False) == ""
    assert text.take(piece("moment.")) == "moment."
    rows = [row(2, "One moment."), row(3, "Done.")]
    assert text.settle(rows, is_over=True) == "\n\nDone."


def test_a_client_that_goes_on_gets_only_what_it_lacks() -> None:
    text = AnswerText()
    text.note_shown("I look. ")
    assert text.take_recap(recap("I look. It ", attempt=2)) == "It "
    assert text.take(piece("is blue.", attempt=2)) == "is blue."
    rows = [row(2, "I look."), row(4, "It is blue.")]
    assert text.settle(rows, is_over=True) == ""
    assert text.given == "It is blue."
