"""Define questions of running turns: their options, and the fields of a form."""

from enum import StrEnum
from math import isfinite
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from chatlane_schemas.content.buttons import Button
from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import Flag, Text, scrubbed

MAX_OPTIONS: Final = 20
MAX_FIELDS: Final = 20
MAX_VALUE_CHARACTERS: Final = 4000
_MAX_NUMBER: Final = 2**53

Options = Annotated[tuple[Button, ...], Field(max_length=MAX_OPTIONS, fail_fast=True)]
FieldName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class QuestionKind(StrEnum):
    """Kinds of questions.

    `permission`: whether something may be done, one of the options. `choice`: one of the options.
    `text`: any text. `form`: a value for each field. `call`: the editor or the front end of the
    person is to do something; no message asks for it, and only a `TurnReply` answers it.
    """

    PERMISSION = "permission"
    CHOICE = "choice"
    TEXT = "text"
    FORM = "form"
    CALL = "call"


class QuestionState(StrEnum):
    """State of a question.

    `withdrawn`: a person changed the message that the turn answers, so the attempt has to begin
    again. `over`: its attempt has ended.
    """

    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    OVER = "over"


class QuestionEnd(StrEnum):
    """How a question ended.

    `expired`: the default counts. `withdrawn`: no answer counts any more.
    """

    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class FieldKind(StrEnum):
    """Kinds of values of a form's fields."""

    TEXT = "text"
    CHOICE = "choice"
    BOOLEAN = "boolean"
    NUMBER = "number"


FieldValue: TypeAlias = str | bool | int | float
"""The value of a field: a text, the value of an option, true or false, or a number."""


def _field_value(value: object) -> object:
    is_known = value is None or isinstance(value, str | bool | int | float)
    if not is_known or (isinstance(value, str) and len(value) > MAX_VALUE_CHARACTERS):
        raise PydanticCustomError("field_value", "value is no short text, number or truth value")
    if isinstance(value, str):
        return scrubbed(value)
    return value if value is None or isinstance(value, bool) else _bounded(value)


def _bounded(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (
        is_number and -_MAX_NUMBER <= value <= _MAX_NUMBER and isfinite(value)  # type: ignore[operator, arg-type]
    ):
        raise PydanticCustomError("field_number", "value is no number up to 2^53")
    return value


def _form_values(value: object) -> object:
    if value is None:
        return value
    # A separate check, so that no error shows a key that came from untrusted input.
    if not isinstance(value, dict) or len(value) > MAX_FIELDS:
        raise PydanticCustomError("form_values", "value is not a small object")
    for name in value:
        if not isinstance(name, str) or not _is_field_name(name):
            raise PydanticCustomError("form_name", "name of a field is not a plain word")
    return {name: _field_value(given) for name, given in value.items() if given is not None}


def _is_field_name(name: str) -> bool:
    return 0 < len(name) <= 64 and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)  # noqa: PLR2004


_VALUE_SCHEMA: Final = {"type": ["string", "boolean", "number"]}
# Checked by hand: pydantic would try the types one after the other and name each in an error.
OneValue = Annotated[
    FieldValue | None, BeforeValidator(_field_value), WithJsonSchema(_VALUE_SCHEMA)
]
FormValues = Annotated[
    dict[str, FieldValue],
    BeforeValidator(_form_values),
    WithJsonSchema({"type": "object", "additionalProperties": _VALUE_SCHEMA}),
]
"""Values of a form by the names of its fields."""
Bound = Annotated[float | None, BeforeValidator(_bounded), WithJsonSchema({"type": "number"})]


class FormField(Record):
    """A field of a form."""

    name: FieldName = Field(description="Name of the value in the answer.")
    label: Text = Field(description="What is asked for, for people.")
    kind: FieldKind = Field(default=FieldKind.TEXT, description="What it takes.")
    required: Flag = Field(default=True, description="Whether it must be filled in.")
    options: Options = Field(default=(), description="The possible values of a `choice`.")
    minimum: Bound = Field(
        default=None, description="Least number, or least count of characters of a text."
    )
    maximum: Bound = Field(
        default=None, description="Largest number, or largest count of characters of a text."
    )
    default: OneValue = Field(
        default=None,
        description="Value if the field is left out, or if there is no answer in time.",
    )


FormFields = Annotated[tuple[FormField, ...], Field(max_length=MAX_FIELDS, fail_fast=True)]
