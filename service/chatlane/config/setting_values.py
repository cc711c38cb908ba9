"""Reject values of settings that a conversion would silently change."""

from __future__ import annotations

import types
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

_NUMBERS: Final = frozenset({int, float})
_NO_TRUTH: Final = "write a number, not true or false"
_NO_NUMBER: Final = "write true or false, not a number"
_WHOLE: Final = "write a whole number"
_UNQUOTED: Final = "write it without quotes"
# Placeholders, and names that stand for the zone of the host.
_NO_ZONES: Final = frozenset({"Factory", "localtime", "posixrules"})

ValueT = TypeVar("ValueT")


class QuotedText(str):
    """Text from a file format that separates numbers and texts; an environment has only texts."""

    __slots__ = ()


def quoted(value: object) -> object:
    """Return a file's value with its texts marked, in tables and lists as well."""
    match value:
        case str():
            return QuotedText(value)
        case dict():
            return {key: quoted(inner) for key, inner in value.items()}
        case list():
            return [quoted(inner) for inner in value]
        case _:
            return value


def plainly_written(annotation: Any, value: ValueT) -> ValueT:  # noqa: ANN401 - any type of a field
    """Return the value of a field if it is written in the field's type, not only convertible.

    Raises:
        ValueError: A conversion would change it, such as true to 1; the message says what to write.
    """
    if isinstance(value, dict):
        inner = _kinds_of_values(annotation)
        for item in value.values():
            _require_plain(inner, item)
    else:
        _require_plain(_kinds(annotation), value)
    return value


def _require_plain(kinds: frozenset[type], value: object) -> None:
    numbers = {kind for kind in kinds if issubclass(kind, (int, float)) and kind is not bool}
    if numbers and isinstance(value, bool) and bool not in kinds:
        raise ValueError(_NO_TRUTH)
    if bool in kinds and not numbers and type(value) in _NUMBERS:
        raise ValueError(_NO_NUMBER)
    if numbers and isinstance(value, float) and float not in kinds:
        raise ValueError(_WHOLE)
    if isinstance(value, QuotedText) and kinds and kinds <= {int, float, bool}:
        raise ValueError(_UNQUOTED)


@cache
def _kinds(annotation: Any) -> frozenset[type]:  # noqa: ANN401 - any type of a field
    """Return the plain types that an annotation allows, without None."""
    origin = get_origin(annotation)
    if origin is Literal:
        return frozenset(type(choice) for choice in get_args(annotation))
    if origin in {Union, types.UnionType}:
        return frozenset().union(*map(_kinds, get_args(annotation)))
    if hasattr(annotation, "__metadata__"):
        return _kinds(annotation.__origin__)
    is_plain = isinstance(annotation, type) and origin is None and annotation is not type(None)
    return frozenset({annotation}) if is_plain else frozenset()


@cache
def _kinds_of_values(annotation: Any) -> frozenset[type]:  # noqa: ANN401 - any type of a field
    if get_origin(annotation) is dict:
        return _kinds(get_args(annotation)[1])
    found = (_kinds_of_values(argument) for argument in get_args(annotation))
    return frozenset().union(*found)


@cache
def _zones() -> frozenset[str]:
    names = (files("tzdata") / "zones").read_text(encoding="utf-8").split()
    return frozenset(names) - _NO_ZONES


def known_zone(name: str) -> str:
    """Return the name of a time zone that means the same on every host.

    Raises:
        ValueError: The name is unknown or depends on the host.
    """
    if name not in _zones():
        raise ValueError(
            'not a time zone that is the same everywhere: use an IANA name such as "Europe/Berlin"'
        )
    return name
