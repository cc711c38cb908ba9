"""Forms of running turns: what a field takes, and what is wrong with a value."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.notices import ENGLISH, NoticeId
from chatlane_schemas.content.questions import MAX_VALUE_CHARACTERS, FieldKind
from chatlane_schemas.content.visible_text import is_blank

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chatlane.domain.notices import Notices
    from chatlane_schemas.content.questions import FieldValue, FormField

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?")
_CHOSEN: Final = frozenset({FieldKind.CHOICE, FieldKind.BOOLEAN})


class Given(NamedTuple):
    """The value that answers a question or a field; None leaves the field out."""

    value: FieldValue | None


class Wrong(NamedTuple):
    """Why a value does not answer a field, for people."""

    reason: str


def options_of(field: FormField, notices: Notices) -> list[tuple[str, FieldValue | None]]:
    """Return label and value of each option of a field; text and numbers have none."""
    options: list[tuple[str, FieldValue | None]] = []
    if field.kind is FieldKind.CHOICE:
        options += [(option.label, option.value or option.label) for option in field.options]
    elif field.kind is FieldKind.BOOLEAN:
        yes, no = notices.text(NoticeId.PART_YES), notices.text(NoticeId.PART_NO)
        options += [(yes, True), (no, False)]
    if options and not field.required:
        options.append((notices.text(NoticeId.PART_SKIP), field.default))
    return options


def question_of(field: FormField, notices: Notices) -> str:
    """Return the text that asks a chat for a field."""
    if field.required or field.kind in _CHOSEN:
        return field.label
    skip = notices.text(NoticeId.PART_SKIP)
    return f"{field.label}\n{notices.text(NoticeId.FORM_OPTIONAL, word=skip)}"


def value_of(field: FormField, written: str, notices: Notices) -> Given | Wrong:
    """Return the value of a field as a person wrote it; options are found by `option_named`."""
    text = unicodedata.normalize("NFKC", written).strip()
    skip = notices.text(NoticeId.PART_SKIP)
    if not field.required and text.casefold() == skip.casefold():
        return Given(field.default)
    if field.kind is FieldKind.NUMBER:
        found = _NUMBER.fullmatch(text)
        if found is None:
            return Wrong(notices.text(NoticeId.FORM_NUMBER))
        return _checked(field, float(text) if found[1] else int(text), notices)
    return _checked(field, written.strip(), notices)


def _checked(field: FormField, value: FieldValue, notices: Notices) -> Given | Wrong:
    """Return a value if its field takes it."""
    wrong: str | None = None
    match field.kind:
        case FieldKind.CHOICE:
            if value not in [option.value or option.label for option in field.options]:
                wrong = notices.text(NoticeId.FORM_CHOICE)
        case FieldKind.BOOLEAN:
            if not isinstance(value, bool):
                wrong = notices.text(NoticeId.FORM_CHOICE)
        case FieldKind.NUMBER:
            if isinstance(value, bool) or not isinstance(value, int | float):
                wrong = notices.text(NoticeId.FORM_NUMBER)
            else:
                wrong = _out_of_bounds(field, value, notices)
        case FieldKind.TEXT:
            if not isinstance(value, str) or is_blank(value):
                wrong = notices.text(NoticeId.FORM_TEXT)
            else:
                wrong = _wrong_length(field, len(value), notices)
    return Given(value) if wrong is None else Wrong(wrong)


def _out_of_bounds(field: FormField, value: float, notices: Notices) -> str | None:
    if field.minimum is not None and value < field.minimum:
        return notices.text(NoticeId.FORM_LEAST, minimum=_shown(field.minimum))
    if field.maximum is not None and value > field.maximum:
        return notices.text(NoticeId.FORM_MOST, maximum=_shown(field.maximum))
    return None


def _wrong_length(field: FormField, length: int, notices: Notices) -> str | None:
    most = min(field.maximum or MAX_VALUE_CHARACTERS, MAX_VALUE_CHARACTERS)
    if field.minimum is not None and length < field.minimum:
        return notices.text(NoticeId.FORM_SHORT, minimum=_shown(field.minimum))
    if length > most:
        return notices.text(NoticeId.FORM_LONG, maximum=_shown(most))
    return None


def _shown(bound: float) -> str:
    return f"{bound:g}" if abs(bound) < 1e6 or not bound.is_integer() else str(int(bound))  # noqa: PLR2004


def checked_values(
    fields: Sequence[FormField], given: Mapping[str, FieldValue]
) -> dict[str, FieldValue] | Wrong:
    """Return the values of a whole form, with defaults; or what is wrong, with the field's name."""
    unknown = given.keys() - {field.name for field in fields}
    if unknown:
        return Wrong(f"values.{min(unknown)}: the form has no such field")
    values: dict[str, FieldValue] = {}
    for field in fields:
        value = given.get(field.name)
        if value is None:
            if field.required:
                return Wrong(f"values.{field.name}: is missing")
            value = field.default
        else:
            checked = _checked(field, value, ENGLISH)
            if isinstance(checked, Wrong):
                return Wrong(f"values.{field.name}: {checked.reason}")
        if value is not None:
            values[field.name] = value
    return values


def problem_of(fields: Sequence[FormField]) -> str | None:
    """Return the first error in the fields of a form, for the worker that asks; None if it has none."""
    names = [field.name for field in fields]
    for place, field in enumerate(fields):
        if field.name in names[:place]:
            return f"fields.{place}.name: another field has this name"
        if is_blank(field.label):
            return f"fields.{place}.label: says nothing"
        if bool(field.options) != (field.kind is FieldKind.CHOICE):
            return f"fields.{place}.options: a choice has options, and no other field has any"
        if None not in {field.minimum, field.maximum} and (field.minimum or 0) > (
            field.maximum or 0
        ):
            return f"fields.{place}.minimum: is larger than the maximum"
        if field.default is not None and isinstance(_checked(field, field.default, ENGLISH), Wrong):
            return f"fields.{place}.default: is no value of the field"
    return None


def defaults_of(fields: Sequence[FormField]) -> dict[str, FieldValue]:
    """Return the values of a form without an answer."""
    return {field.name: field.default for field in fields if field.default is not None}


def summary_of(fields: Sequence[FormField], values: Mapping[str, FieldValue]) -> str:
    """Return the values of a form as lines for the transcript."""
    answers: list[str] = []
    for field in fields:
        value = values.get(field.name)
        if value is None:
            continue
        labels = {given: label for label, given in options_of(field, ENGLISH)}
        answers.append(f"{field.label}: {labels.get(value, value)}")
    return "\n".join(answers)
