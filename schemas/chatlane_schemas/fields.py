"""The field types that messages are made of.

Everything a stranger can put into a field is settled here, so that nothing
behind the codec meets a NUL, a lone surrogate or an id that is not text.
"""

import re
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Final, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    JsonValue,
    SkipValidation,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, to_json

MAX_ID_BYTES: Final = 256
MAX_JSON_DEPTH: Final = 32
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
MAX_COUNTERS: Final = 64
MAX_TOOL_CALLS: Final = 256
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

# Checked by hand in `scrubbed_json`: pydantic would put keys into the place of an error.
JsonObject: TypeAlias = dict[str, SkipValidation[JsonValue]]

# Larger integers are refused before they are written out: Python raises above 4,300 digits.
_ID_INTEGERS: Final = range(1 - 10 ** (MAX_ID_BYTES - 1), 10**MAX_ID_BYTES)

_TRACES: Final = (rb"\u0000", b"NaN", b"Infinity")
_COUNTER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def _bad_id(problem: str) -> PydanticCustomError:
    return PydanticCustomError("bad_id", "id {problem}", {"problem": problem})


def _byte_length(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as exc:
        problem = "holds a lone surrogate"
        raise _bad_id(problem) from exc


def _id_text(value: object) -> str:
    """Return a foreign id as text; integers keep all their digits.

    Ids are opaque: nothing is trimmed, folded or normalised, since that would
    merge two people.
    """
    if type(value) is int:
        if value not in _ID_INTEGERS:
            raise _bad_id("is too long")
        return str(value)
    if not isinstance(value, str):
        raise _bad_id("is neither text nor an integer")
    if "\0" in value:
        raise _bad_id("holds a NUL")
    length = len(value) if value.isascii() else _byte_length(value)
    if length > MAX_ID_BYTES:
        raise _bad_id("is too long")
    return value


def scrubbed(text: str) -> str:
    """Return the text with NUL and lone surrogates shown as U+FFFD.

    Postgres stores neither, and UTF-8 cannot carry the second.
    """
    if text.isascii():
        return text.replace("\0", REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        # A pair split by the JSON escape is joined again by UTF-16; what is left is alone.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", REPLACEMENT)


def _scrubbed_value(value: object) -> object:
    """Scrub text; leave what is no text to the type check behind."""
    return scrubbed(value) if isinstance(value, str) else value


def _in_utc(value: datetime) -> datetime:
    if not value.utcoffset():
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError as exc:
        raise PydanticCustomError("datetime_range", "time is outside the calendar") from exc


def scrubbed_json(value: object, depth: int = 0) -> JsonValue:
    """Return a JSON value that jsonb takes: no NUL, no lone surrogate, finite, not too deep.

    Two keys that differ only in what is scrubbed become one; the last wins, as
    with any repeated key.
    """
    if depth > MAX_JSON_DEPTH:
        raise PydanticCustomError("json_depth", "value is nested too deeply")
    match value:
        case str():
            return scrubbed(value)
        case list():
            return [scrubbed_json(item, depth + 1) for item in value]
        case dict():
            return {
                scrubbed(str(key)): scrubbed_json(item, depth + 1) for key, item in value.items()
            }
        case None | bool() | int():
            return value
        case float() if isfinite(value):
            return value
        case _:
            raise PydanticCustomError("json_value", "value is not a finite JSON value")


def _scrubbed_objects(value: list[JsonObject], info: ValidationInfo) -> list[JsonObject]:
    if info.mode == "json" and not _may_need_scrubbing(value):
        return value
    return [
        {scrubbed(key): scrubbed_json(item, 1) for key, item in entry.items()} for entry in value
    ]


def _may_need_scrubbing(parsed: list[JsonObject]) -> bool:
    """Return whether parsed JSON shows a trace of what jsonb refuses.

    Writing it again takes 1 ms for 256 kB, looking at every value in Python 65 ms.
    """
    written = to_json(parsed, inf_nan_mode="constants")
    return any(trace in written for trace in _TRACES)


def _counters(value: object) -> dict[str, int]:
    """Return named counts; an own check, so that no error names a key a stranger chose."""
    if not isinstance(value, dict) or len(value) > MAX_COUNTERS:
        raise PydanticCustomError("counters", "value is not a small object of counts")
    for key, count in value.items():
        if not isinstance(key, str) or _COUNTER_NAME.fullmatch(key) is None:
            raise PydanticCustomError("counter_name", "name of a count is not a plain word")
        if type(count) is not int or not 0 <= count <= MAX_INT64:
            raise PydanticCustomError("counter_value", "count is not a whole number from 0")
    return value


PlatformId = Annotated[
    str,
    BeforeValidator(_id_text),
    WithJsonSchema({"type": ["string", "integer"], "maxLength": MAX_ID_BYTES}, mode="validation"),
    WithJsonSchema({"type": "string", "maxLength": MAX_ID_BYTES}, mode="serialization"),
]
"""An id made by a platform, as opaque text of at most 256 bytes; `""` means none."""

Text = Annotated[str, BeforeValidator(_scrubbed_value)]
"""Text written by people or models; NUL and lone surrogates become U+FFFD."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
"""A declared name: account, agent, principal."""

# pydantic-core looks at the pattern before it folds, so the pattern takes both cases.
PlatformName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$", to_lower=True),
]
"""The declared name of a platform; folded to lower case when read."""

EnvelopeId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]
"""The id of an envelope, fit for the header `Nats-Msg-Id`."""

Instant = Annotated[AwareDatetime, Field(strict=True), AfterValidator(_in_utc)]
"""An aware time, in UTC."""

Flag = Annotated[bool, Field(strict=True)]
Number = Annotated[int, Field(strict=True, ge=0, le=MAX_INT32)]
BigNumber = Annotated[int, Field(strict=True, ge=0, le=MAX_INT64)]

ToolCalls = Annotated[
    list[JsonObject],
    Field(max_length=MAX_TOOL_CALLS, fail_fast=True),
    AfterValidator(_scrubbed_objects),
]
"""Tool calls as the model made them; strings and keys are scrubbed."""

Counters = Annotated[dict[str, int], BeforeValidator(_counters)]
"""Named counts, such as the tokens a model used."""
