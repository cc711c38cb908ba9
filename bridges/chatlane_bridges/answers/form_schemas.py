"""JSON schemas of the forms that questions of turns have."""

from collections.abc import Iterable
from typing import Any, Final

from chatlane_schemas.content.buttons import Button
from chatlane_schemas.content.questions import FieldKind, FormField

_JSON_TYPES: Final = {
    FieldKind.TEXT: "string",
    FieldKind.CHOICE: "string",
    FieldKind.BOOLEAN: "boolean",
    FieldKind.NUMBER: "number",
}


def form_schema(fields: Iterable[FormField]) -> dict[str, Any]:
    """Return the schema of an object with a value for each field."""
    known = tuple(fields)
    return {
        "type": "object",
        "properties": {field.name: _property(field) for field in known},
        "required": [field.name for field in known if field.required],
    }


def value_of(option: Button) -> str:
    """Return the value with which an option is chosen."""
    return option.value or option.label


def _property(field: FormField) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": _JSON_TYPES[field.kind], "title": field.label}
    if field.kind is FieldKind.CHOICE:
        shown["oneOf"] = [{"const": value_of(it), "title": it.label} for it in field.options]
    bounds = {
        FieldKind.TEXT: ("minLength", "maxLength"),
        FieldKind.NUMBER: ("minimum", "maximum"),
    }
    for name, bound in zip(
        bounds.get(field.kind, ()), (field.minimum, field.maximum), strict=False
    ):
        if bound is not None:
            shown[name] = int(bound) if field.kind is FieldKind.TEXT else bound
    if field.default is not None:
        shown["default"] = field.default
    return shown
