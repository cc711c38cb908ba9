"""Which messages answer an open question."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from chatlane.domain.turns.questions import OpenQuestion, buttons_of
from chatlane_schemas import Button, Chat, InboundEvent, Kind
from chatlane_schemas.content.elements import Press

ASKED = datetime(2026, 3, 12, 12, tzinfo=UTC)
OPTIONS = (("Yes", "y"), ("No", "n"))
SECOND = timedelta(seconds=1)


def question(options: tuple[tuple[str, str], ...] = OPTIONS) -> OpenQuestion:
    return OpenQuestion(
        id=UUID(int=1),
        turn_id=UUID(int=2),
        session_id=UUID(int=3),
        agent="main",
        options=options,
        due_at=ASKED + 60 * SECOND,
        asked_at=ASKED,
    )


def event(text: str | None = None, press: Press | None = None) -> InboundEvent:
    return InboundEvent(
        id="e1",
        at=ASKED,
        kind=Kind.MESSAGE if press is None else Kind.ACTION,
        platform="test",
        account="bot",
        message_id="1",
        event_id=None if press is None else "p1",
        chat=Chat(id="1", kind="dm"),
        text=text,
        press=press,
    )


@pytest.mark.parametrize("options", [OPTIONS, ()])
def test_words_from_before_the_question_do_not_answer_it(
    options: tuple[tuple[str, str], ...],
) -> None:
    asked = question(options)
    assert asked.answer_of(event("yes"), ASKED - SECOND) is None
    assert asked.answer_of(event("yes"), ASKED + SECOND) == ("y" if options else "yes")


def test_words_after_its_time_do_not_answer_it() -> None:
    assert question().answer_of(event("yes"), ASKED + 61 * SECOND) is None


def test_a_press_answers_only_the_question_that_it_names() -> None:
    options = tuple(Button(label=label, value=value) for label, value in OPTIONS)
    own = buttons_of(UUID(int=1), options)[1]
    other = buttons_of(UUID(int=9), options)[1]
    assert question().answer_of(event(press=Press(value=own.value)), ASKED + SECOND) == "n"
    assert question().answer_of(event(press=Press(value=other.value)), ASKED + SECOND) is None
