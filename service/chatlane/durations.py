"""Parse and format durations: `30s`, `2ms`, `1h30m`, ISO 8601, or seconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, TypeAdapter, ValidationError

_UNITS: Final = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")
_SHORT: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:us|ms|s|m|h|d)\s*)+")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_ISO: Final = TypeAdapter(timedelta)
_HINT: Final = 'write a duration as "30s", "2ms", "1h30m", ISO 8601 ("PT30S") or seconds'


def parse_duration(value: object) -> timedelta:
    """Return the duration that a setting names.

    Raises:
        ValueError: Not a duration; the message says how to write one.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _seconds(value)
    if isinstance(value, str):
        return _parse_text(value.strip())
    raise ValueError(_HINT)


def _parse_text(text: str) -> timedelta:
    if _NUMBER.fullmatch(text):
        return _seconds(float(text))
    if _SHORT.fullmatch(text):
        return sum((float(n) * _UNITS[unit] for n, unit in _PART.findall(text)), timedelta())
    if not text.upper().startswith(("P", "-P", "+P")):
        raise ValueError(_HINT)
    try:
        return _ISO.validate_python(text)
    except ValidationError as exc:
        raise ValueError(_HINT) from exc


def _seconds(value: float) -> timedelta:
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError) as exc:
        raise ValueError(_HINT) from exc


def format_duration(span: timedelta) -> str:
    """Return the shortest text that `parse_duration` reads back, such as `1h30m` or `2ms`."""
    rest = abs(span)
    parts = []
    for name in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _UNITS[name])
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
