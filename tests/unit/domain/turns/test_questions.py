"""What answers a question of a running turn, and what takes the question back."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from pydantic_core import from_json

from chatlane.domain.effects import Effects
from chatlane.domain.notices import ENGLISH
from chatlane.domain.states import AskedQuestion, Session, Turn
from chatlane.domain.turns.answers import Moment, field_part, take
from chatlane.domain.turns.forms import (
    Given,
    Wrong,
    checked_values,
    defaults_of,
    problem_of,
    summary_of,
    value_of,
)
from chatlane.domain.turns.lifecycle import TurnFailed, expire_lease, fail_turn, void_turn
from chatlane.domain.turns.questions import OpenQuestion, buttons_of
from chatlane.domain.turns.turn_events import TurnPointer
from chatlane.domain.turns.worker_controls import stop_turn
from chatlane_schemas.content.elements import Press
from chatlane_schemas.content.questions import FieldKind, FieldValue, FormField
from chatlane_schemas.inbound import InboundEvent, Kind
from chatlane_schemas.live_turns import TurnFailure
from chatlane_schemas.source import Source
from chatlane_schemas.turns import CancelReason

AT: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
SESSION_ID, TURN_ID, QUESTION_ID, MESSAGE_ID = (UUID(int=number) for number in (1, 2, 3, 4))
SOURCE = Source.model_validate({"platform": "telegram", "account": "bot", "chat": {"id": "701"}})
SIZE: Final = FormField.model_validate(
    {
        "name": "size",
        "label": "Which size?",
        "kind": "choice",
        "options": [{"label": "Small", "value": "s"}, {"label": "Large", "value": "l"}],
    }
)
COUNT: Final = FormField(
    name="count", label="How many?", kind=FieldKind.NUMBER, minimum=1, maximum=12
)
GIFT: Final = FormField(name="gift", label="A gift?", kind=FieldKind.BOOLEAN)
NOTE: Final = FormField(name="note", label="A note?", required=False, minimum=3, maximum=20)
FIELDS: Final = (SIZE, COUNT, GIFT, NOTE)


def session() -> Session:
    one = Session(SESSION_ID, "agent:main:telegram:bot:dm:701", "main", "telegram", AT)
    one.active_turn = TURN_ID
    return one


def said(text: str | None = None, press: str | None = None) -> InboundEvent:
    return InboundEvent(
        id="e1",
        at=AT,
        kind=Kind.MESSAGE if press is None else Kind.ACTION,
        platform="telegram",
        account="bot",
        text=text,
        press=None if press is None else Press(value=press, label="Small"),
    )


def form(place: int = 0, **values: Any) -> OpenQuestion:  # noqa: ANN401 - any values of the form
    return OpenQuestion(
        id=QUESTION_ID,
        turn=TurnPointer(TURN_ID, 1, "main", SOURCE),
        session_id=SESSION_ID,
        message_id=MESSAGE_ID,
        fields=FIELDS,
        values=values,
        place=place,
        due_at=AT + timedelta(minutes=1),
    )


def verbs(effects: Effects) -> list[str]:
    """Return the events about turns, with the outcome of those that have one."""
    return [
        f"{row.subject.split('.')[4]} {from_json(row.payload).get('outcome', '')}".strip()
        for row in effects.publications
        if row.stream == "EVENTS"
    ]


@pytest.mark.parametrize(
    ("field", "written", "value"),
    [
        (COUNT, "3", 3),
        (COUNT, " 2.5 ", 2.5),
        (COUNT, "\N{FULLWIDTH DIGIT SEVEN}", 7),
        (NOTE, "  with love ", "with love"),
        (NOTE, "Skip", None),
        (NOTE, "skip", None),
    ],
)
def test_a_field_takes_what_a_person_writes(
    field: FormField, written: str, value: str | float | None
) -> None:
    assert value_of(field, written, ENGLISH) == Given(value)


@pytest.mark.parametrize(
    ("field", "written", "reason"),
    [
        (COUNT, "many", "Please write a number, such as 3 or 2.5."),
        (COUNT, "1,500", "Please write a number, such as 3 or 2.5."),
        (COUNT, "0", "Please write a number of 1 or more."),
        (COUNT, "13", "Please write a number of 12 or less."),
        (COUNT, "skip", "Please write a number, such as 3 or 2.5."),
        (NOTE, "hi", "Please write 3 characters or more."),
        (NOTE, "x" * 21, "Please write 20 characters at most."),
        (GIFT, "perhaps", "Please choose one of the answers."),
        (SIZE, "medium", "Please choose one of the answers."),
    ],
)
def test_a_wrong_value_has_a_reason(field: FormField, written: str, reason: str) -> None:
    assert value_of(field, written, ENGLISH) == Wrong(reason)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"size": "s", "count": 3, "gift": True}, {"size": "s", "count": 3, "gift": True}),
        ({"size": "s", "gift": True}, "values.count: is missing"),
        ({"size": "m", "count": 3, "gift": True}, "values.size: Please choose one of the answers."),
        (
            {"size": "s", "count": True, "gift": True},
            "values.count: Please write a number, such as 3 or 2.5.",
        ),
        ({"size": "s", "count": 3, "gift": 1}, "values.gift: Please choose one of the answers."),
        ({"size": "s", "count": 3, "gift": True, "x": 1}, "values.x: the form has no such field"),
    ],
)
def test_a_whole_form_is_checked_field_by_field(
    values: dict[str, Any], found: dict[str, Any] | str
) -> None:
    checked = checked_values(FIELDS, values)
    assert found == (checked.reason if isinstance(checked, Wrong) else checked)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (FIELDS, None),
        ((COUNT, COUNT), "fields.1.name: another field has this name"),
        (
            (FormField(name="a", label="?", kind=FieldKind.CHOICE),),
            "fields.0.options: a choice has options, and no other field has any",
        ),
        ((FormField(name="a", label=" "),), "fields.0.label: says nothing"),
        (
            (FormField(name="a", label="?", minimum=3, maximum=2),),
            "fields.0.minimum: is larger than the maximum",
        ),
        (
            (FormField(name="a", label="?", kind=FieldKind.BOOLEAN, default="y"),),
            "fields.0.default: is no value of the field",
        ),
    ],
)
def test_a_form_that_contradicts_itself_is_refused(
    fields: tuple[FormField, ...], problem: str | None
) -> None:
    assert problem_of(fields) == problem


def test_a_field_that_is_left_out_has_its_default() -> None:
    field = FormField(name="n", label="?", kind=FieldKind.NUMBER, required=False, default=2)
    assert checked_values([field], {}) == {"n": 2}
    assert value_of(field, "skip", ENGLISH) == Given(2)
    assert defaults_of([field, COUNT]) == {"n": 2}


def test_the_transcript_shows_labels() -> None:
    values: dict[str, FieldValue] = {"size": "l", "count": 3, "gift": False}
    assert summary_of(FIELDS, values) == "Which size?: Large\nHow many?: 3\nA gift?: No"


def test_a_field_is_asked_with_buttons_or_with_words() -> None:
    size = field_part(SIZE, 0, QUESTION_ID, ENGLISH)
    assert (size.text, [button.label for button in size.buttons or ()]) == (
        "Which size?",
        ["Small", "Large"],
    )
    note = field_part(NOTE, 3, QUESTION_ID, ENGLISH, "Too short.")
    assert note.text == "Too short.\n\nA note?\n(Write Skip to leave this out.)"
    assert note.buttons is None


def test_a_form_is_filled_in_field_by_field() -> None:
    effects, where = Effects(), session()
    question = form()
    for number, text in enumerate(("2", "0", "4", "yes", "skip")):
        reading = question.reading_of(said(text), AT, ENGLISH)
        assert reading is not None
        moment = Moment(where, AT, bytes([number]), ENGLISH)
        following = take(question, reading, moment, effects)
        assert (following is None) is (text == "skip")
        question = following or question
    asked = [
        from_json(row.payload)["text"] for row in effects.publications if row.stream == "OUTBOUND"
    ]
    assert asked == [
        "How many?",
        "Please write a number of 1 or more.\n\nHow many?",
        "A gift?",
        "A note?\n(Write Skip to leave this out.)",
    ]
    [answer] = effects.question_changes.values()
    patch = from_json(answer.patch)
    assert (patch["state"], patch["values"]) == (
        "answered",
        {"size": "l", "count": 4, "gift": True},
    )
    assert verbs(effects) == ["answered answered"]
    assert len(effects.controls) == 1


def test_a_press_answers_only_the_field_that_is_asked() -> None:
    first, second = buttons_of(QUESTION_ID, ["Small", "Large"], 0)
    assert form().reading_of(said(press=second.value), AT, ENGLISH) == Given("l")
    assert form(2).reading_of(said(press=first.value), AT, ENGLISH) is None
    [other] = buttons_of(UUID(int=9), ["Small"], 0)
    assert form().reading_of(said(press=other.value), AT, ENGLISH) is None


def test_no_answer_counts_after_the_time_of_a_question() -> None:
    assert form().reading_of(said("1"), AT + timedelta(minutes=2), ENGLISH) is None


def asking_turn() -> Turn:
    one = Turn(TURN_ID, SESSION_ID, "main", "claimed", source=SOURCE, attempt=1)
    one.token, one.open_question = "t1", AskedQuestion(QUESTION_ID, MESSAGE_ID)
    return one


@pytest.mark.parametrize("reason", CancelReason)
def test_a_stop_withdraws_the_question_once(reason: CancelReason) -> None:
    effects, one, where = Effects(), asking_turn(), session()
    stop_turn(one, where, reason, AT, has_waiting=False, effects=effects)
    stop_turn(one, where, reason, AT, has_waiting=False, effects=effects)
    assert verbs(effects) == ["answered withdrawn"]


def test_a_lost_lease_withdraws_the_question() -> None:
    effects = Effects()
    expire_lease(
        asking_turn(),
        session(),
        max_attempts=3,
        has_waiting=False,
        notices=ENGLISH,
        effects=effects,
    )
    assert verbs(effects) == ["answered withdrawn", "waiting"]


def test_the_end_of_a_turn_withdraws_the_question() -> None:
    for end in ("failed", "void"):
        effects, one, where = Effects(), asking_turn(), session()
        if end == "failed":
            failure = TurnFailed(TurnFailure.ERROR, "error", "Sorry.")
            fail_turn(one, where, failure, has_waiting=False, effects=effects)
        else:
            void_turn(one, where, has_waiting=False, effects=effects)
        assert verbs(effects)[0] == "answered withdrawn"
        assert verbs(effects)[1].startswith("ended")


def test_a_turn_without_a_question_says_nothing_about_one() -> None:
    effects, one, where = Effects(), asking_turn(), session()
    one.open_question = None
    stop_turn(one, where, CancelReason.STOPPED, AT, has_waiting=False, effects=effects)
    assert verbs(effects) == []


@pytest.mark.parametrize("options", [(("Yes", "y"), ("No", "n")), ()])
def test_words_from_before_the_question_do_not_answer_it(
    options: tuple[tuple[str, str], ...],
) -> None:
    asked = replace(form(), fields=(), options=options, asked_at=AT)
    second = timedelta(seconds=1)
    assert asked.reading_of(said("yes"), AT - second, ENGLISH) is None
    assert asked.reading_of(said("yes"), AT + second, ENGLISH) == Given("y" if options else "yes")
