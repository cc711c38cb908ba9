"""Questions of running turns: which message answers one, and what it answers."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from chatlane_schemas.content.buttons import Button

if TYPE_CHECKING:
    from datetime import datetime

    from chatlane_schemas.inbound import InboundEvent

_PREFIX: Final = "ask:"
_PRESSED: Final = re.compile(rf"{_PREFIX}([0-9a-f]{{32}}):([0-9]{{1,3}})")
_NUMBER: Final = re.compile(r"[(#]?([0-9]{1,3})[.):]?")


class Pressed(NamedTuple):
    """An option of a question that was pressed."""

    question_id: UUID
    number: int


class Answer(NamedTuple):
    """The answer to a question of a turn."""

    turn_id: UUID
    question_id: UUID
    value: str
    at: datetime


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that waits for its answer.

    Attributes:
        options: Label and value of each option; without any, each text is an answer.
        asked_at: When it was asked; None if a router of an earlier release noted it.
    """

    id: UUID
    turn_id: UUID
    session_id: UUID
    agent: str
    options: tuple[tuple[str, str], ...]
    due_at: datetime
    asked_at: datetime | None = None

    def answer_of(self, event: InboundEvent, at: datetime) -> str | None:
        """Return the choice of a message; None if it does not answer this question.

        Args:
            event: The message.
            at: When it was stored. Words from before the question were meant for something else,
                such as the question of an earlier attempt.
        """
        if at > self.due_at:
            return None
        pressed = pressed_option(event)
        if pressed is not None:
            is_own = pressed.question_id == self.id and pressed.number < len(self.options)
            return self.options[pressed.number][1] if is_own else None
        if self.asked_at is not None and at < self.asked_at:
            return None
        text = _folded(event.text or "")
        if not self.options:
            return event.text if text else None
        number = _NUMBER.fullmatch(text)
        if number is not None and 1 <= int(number[1]) <= len(self.options):
            return self.options[int(number[1]) - 1][1]
        fitting = {value for label, value in self.options if _folded(label) == text}
        return fitting.pop() if len(fitting) == 1 else None


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().casefold()


def buttons_of(question_id: UUID, options: tuple[Button, ...]) -> tuple[Button, ...]:
    """Return the buttons of a question, whose presses name it."""
    return tuple(
        Button(label=option.label, value=f"{_PREFIX}{question_id.hex}:{number}")
        for number, option in enumerate(options)
    )


def with_value(event: InboundEvent, value: str) -> InboundEvent:
    """Return a press with the value of its option, and other events as they are."""
    if event.press is None:
        return event
    press = event.press.model_copy(update={"value": value})
    return event.model_copy(update={"press": press, "text": event.text or press.label})


def pressed_option(event: InboundEvent) -> Pressed | None:
    """Return the option of a question that an event presses."""
    value = None if event.press is None else event.press.value
    found = None if value is None else _PRESSED.fullmatch(value)
    return None if found is None else Pressed(UUID(found[1]), int(found[2]))
