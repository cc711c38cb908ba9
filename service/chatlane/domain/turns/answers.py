"""Ask questions of running and parked turns, and take their answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import to_json

from chatlane.domain.ids import derived_id
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.turns.forms import Given, Wrong, options_of, question_of
from chatlane.domain.turns.parked_turns import note_woken
from chatlane.domain.turns.questions import QuestionChange, buttons_of
from chatlane.domain.turns.turn_events import note_question_over
from chatlane.domain.turns.turn_results import add_message
from chatlane.domain.turns.worker_controls import answered
from chatlane_schemas.content.questions import QuestionEnd, QuestionState
from chatlane_schemas.results import Part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.effects import Effects
    from chatlane.domain.notices import Notices
    from chatlane.domain.states import Session
    from chatlane.domain.turns.questions import OpenQuestion
    from chatlane_schemas.content.questions import FormField


class Moment(NamedTuple):
    """The session and the time of a change to a question.

    Attributes:
        session: The locked session of its turn.
        trigger: Seed of derived ids.
        notices: The texts in the language of the chat.
    """

    session: Session
    at: datetime
    trigger: bytes
    notices: Notices


def field_part(
    field: FormField, place: int, question_id: UUID, notices: Notices, reason: str | None = None
) -> Part:
    """Return the message that asks a chat for a field of a form."""
    text = question_of(field, notices)
    labels = [label for label, _ in options_of(field, notices)]
    buttons = buttons_of(question_id, labels, place) or None
    return Part(text=text if reason is None else f"{reason}\n\n{text}", buttons=buttons)


def take(
    question: OpenQuestion, reading: Given | Wrong, moment: Moment, effects: Effects
) -> OpenQuestion | None:
    """Take what a chat said to a question, and return the question if it is still open."""
    if not question.fields:
        value = reading.value if isinstance(reading, Given) else None
        settle(question, {"answer": value}, moment, effects)
        return None
    if isinstance(reading, Wrong):
        return _ask_field(question, moment, effects, reading.reason)
    values = dict(question.values)
    if reading.value is not None:
        values[question.fields[question.place].name] = reading.value
    if question.place + 1 == len(question.fields):
        settle(question, {"values": values}, moment, effects)
        return None
    following = replace(question, values=values, place=question.place + 1)
    return _ask_field(following, moment, effects)


def settle(
    question: OpenQuestion,
    answer: Mapping[str, object],
    moment: Moment,
    effects: Effects,
) -> None:
    """Give a question its answer, tell the worker and the readers, and wake a parked turn."""
    patch = {"state": QuestionState.ANSWERED, "answered_at": moment.at, **answer}
    _change(question, patch, effects)
    _tell_over(question, moment.session, moment.at, QuestionEnd.ANSWERED, effects)


def withdraw(question: OpenQuestion, session: Session, at: datetime, effects: Effects) -> None:
    """End a question whose attempt has to begin again, because its messages were changed.

    A parked turn gets its next attempt at once.
    """
    _change(question, {"state": QuestionState.WITHDRAWN}, effects)
    _tell_over(question, session, at, QuestionEnd.WITHDRAWN, effects)


def _ask_field(
    question: OpenQuestion, moment: Moment, effects: Effects, reason: str | None = None
) -> OpenQuestion:
    field = question.fields[question.place]
    part = field_part(field, question.place, question.id, moment.notices, reason)
    message_id = derived_id(moment.at, moment.trigger, "form field")
    turn = question.turn
    speaking = Speaking(
        moment.session, turn.agent, turn.source, moment.at, turn.id, is_interim=True
    )
    add_message(speaking, part, message_id, effects)
    patch = {"place": question.place, "values": question.values, "message_id": message_id}
    _change(question, patch, effects)
    return replace(question, message_id=message_id)


def _change(question: OpenQuestion, patch: Mapping[str, object], effects: Effects) -> None:
    changed = QuestionChange(question.turn.id, question.id, to_json(patch).decode())
    # It replaces an earlier change of the batch: it ends the question, or has all values so far.
    effects.question_changes[question.turn.id] = changed


def _tell_over(
    question: OpenQuestion, session: Session, at: datetime, end: QuestionEnd, effects: Effects
) -> None:
    if question.is_parked:
        note_woken(question.turn.agent, end, effects)
    else:
        effects.controls.append(answered(question.turn.id, question.turn.agent, at))
    note_question_over(question.turn, question, session, at, effects, outcome=end)
