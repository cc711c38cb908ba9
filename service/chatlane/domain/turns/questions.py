"""Questions of running and parked turns: which message answers one, and what it answers."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from pydantic_core import to_json

from chatlane.domain.turns.forms import Given, Wrong, options_of, value_of
from chatlane_schemas.content.buttons import Button
from chatlane_schemas.questions import LARGEST_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from chatlane.domain.notices import Notices
    from chatlane.domain.turns.turn_events import TurnPointer
    from chatlane_schemas.content.questions import FieldValue, FormField
    from chatlane_schemas.inbound import InboundEvent

_PREFIX: Final = "ask:"
_PRESSED: Final = re.compile(rf"{_PREFIX}([0-9a-f]{{32}}):(?:([0-9]{{1,2}})\.)?([0-9]{{1,3}})")
_NUMBER: Final = re.compile(r"[(#]?([0-9]{1,3})[.):]?")


class Pressed(NamedTuple):
    """An option of a question that was pressed; `place` is that of its field in a form."""

    question_id: UUID
    place: int
    number: int


class QuestionChange(NamedTuple):
    """A change to the question of a running turn.

    Attributes:
        patch: The new values of its record, as JSON text.
    """

    turn_id: UUID
    question_id: UUID
    patch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question that waits for its answer.

    Attributes:
        message_id: Id of the newest outbound message that asks.
        options: Label and value of each option; without any, each text is an answer.
        asked_at: When it was asked; None if a router of an earlier release noted it.
        fields: The fields of a form.
        values: Its values so far.
        place: The field that the chat is asked for.
        is_parked: Its turn waits for the answer without a worker.
        is_call: The editor or the front end of the person is to do something; no words answer that.
        is_front_end_call: The call is one of a tool of the front end, and its result is kept.
    """

    id: UUID
    turn: TurnPointer
    session_id: UUID
    message_id: UUID
    due_at: datetime
    options: tuple[tuple[str, str], ...] = ()
    fields: tuple[FormField, ...] = ()
    values: Mapping[str, FieldValue] = field(default_factory=dict)
    place: int = 0
    asked_at: datetime | None = None
    is_parked: bool = False
    is_call: bool = False
    is_front_end_call: bool = False

    def reading_of(
        self, event: InboundEvent, at: datetime, notices: Notices
    ) -> Given | Wrong | None:
        """Return the answer that a message gives to this question; None if it gives none.

        Args:
            event: The message.
            at: When it was stored. Words from before the question were meant for something else,
                such as the question of an earlier attempt.
            notices: The texts in the language of the chat.
        """
        if self.is_call or at > self.due_at:
            return None
        pressed = pressed_option(event)
        if pressed is not None:
            options = self._options(notices)
            is_own = (pressed.question_id, pressed.place) == (self.id, self.place)
            return (
                Given(options[pressed.number][1])
                if is_own and pressed.number < len(options)
                else None
            )
        is_early = self.asked_at is not None and at < self.asked_at
        if is_early or not _folded(event.text or ""):
            return None
        if not self.fields:
            return self._chosen_or_text(event.text or "")
        field = self.fields[self.place]
        chosen = option_named(self._options(notices), event.text or "")
        return chosen or value_of(field, event.text or "", notices)

    def _options(self, notices: Notices) -> list[tuple[str, FieldValue | None]]:
        if self.fields:
            return options_of(self.fields[self.place], notices)
        return list(self.options)

    def _chosen_or_text(self, text: str) -> Given | None:
        if self.options:
            return option_named(self.options, text)
        return Given(text) if self.can_keep(text) else None

    def can_keep(self, text: str) -> bool:
        """Return whether a text is short enough for an answer that is kept for the next attempt."""
        is_kept = self.is_parked or self.is_front_end_call
        return not is_kept or len(to_json(text)) <= LARGEST_STEP


def option_named(options: Iterable[tuple[str, FieldValue | None]], written: str) -> Given | None:
    """Return the option whose number or label was written."""
    known = list(options)
    text = _folded(written)
    number = _NUMBER.fullmatch(text)
    if number is not None and 1 <= int(number[1]) <= len(known):
        return Given(known[int(number[1]) - 1][1])
    fitting = [value for label, value in known if _folded(label) == text]
    return Given(fitting[0]) if len(set(fitting)) == 1 else None


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().casefold()


def buttons_of(
    question_id: UUID, labels: Iterable[str], place: int | None = None
) -> tuple[Button, ...]:
    """Return the buttons of a question, or of a field of a form, whose presses name it."""
    of_field = "" if place is None else f"{place}."
    return tuple(
        Button(label=label, value=f"{_PREFIX}{question_id.hex}:{of_field}{number}")
        for number, label in enumerate(labels)
    )


def with_value(event: InboundEvent, value: FieldValue | None) -> InboundEvent:
    """Return a press with the value of its option, and other events as they are."""
    if event.press is None:
        return event
    shown = value if value is None or isinstance(value, str) else str(value).lower()
    press = event.press.model_copy(update={"value": shown})
    return event.model_copy(update={"press": press, "text": event.text or press.label})


def pressed_option(event: InboundEvent) -> Pressed | None:
    """Return the option of a question that an event presses."""
    value = None if event.press is None else event.press.value
    found = None if value is None else _PRESSED.fullmatch(value)
    return None if found is None else Pressed(UUID(found[1]), int(found[2] or 0), int(found[3]))
