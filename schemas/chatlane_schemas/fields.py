"""Field types of the messages.

The types sanitize all untrusted input, so that no code after the codec meets a NUL, a lone
surrogate or an id that is not text.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Annotated, Final, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    JsonValue,
    PlainSerializer,
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
MAX_AMOUNT: Final = Decimal(10**12)
MAX_TOOL_CALLS: Final = 256
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

# Checked by hand in `scrubbed_json`: pydantic would include keys in the location of an error.
JsonObject: TypeAlias = dict[str, SkipValidation[JsonValue]]

# Larger integers are rejected before they are formatted: Python raises above 4,300 digits.
_ID_INTEGERS: Final = range(1 - 10 ** (MAX_ID_BYTES - 1), 10**MAX_ID_BYTES)

_TRACES: Final = (rb"\u0000", b"NaN", b"Infinity")
# Smaller fractions of an amount are noise of floating point numbers.
_AMOUNT_UNIT: Final = Decimal("1e-12")
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
    """Return a platform id as text; integers keep all their digits.

    Ids are opaque: trimming, case folding or normalising them could merge two people.
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
    """Return text with NUL and lone surrogates replaced by U+FFFD.

    Postgres stores neither, and UTF-8 cannot encode a lone surrogate.
    """
    if text.isascii():
        return text.replace("\0", REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        # UTF-16 joins a surrogate pair that a JSON escape split; the surrogates that remain are
        # alone.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", REPLACEMENT)


def _scrubbed_value(value: object) -> object:
    """Scrub text and pass other values on to the type check."""
    return scrubbed(value) if isinstance(value, str) else value


def _in_utc(value: datetime) -> datetime:
    if not value.utcoffset():
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError as exc:
        raise PydanticCustomError("datetime_range", "time is outside the calendar") from exc


def scrubbed_json(value: object, depth: int = 0) -> JsonValue:
    """Return a JSON value that jsonb accepts: no NUL, no lone surrogate, finite, not too deep.

    Two keys that are equal after scrubbing become one key; the last value wins, as with any
    repeated key.
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
    """Return whether parsed JSON may contain something that jsonb rejects.

    Serialising it again takes 1 ms for 256 kB; visiting every value in Python takes 65 ms.
    """
    written = to_json(parsed, inf_nan_mode="constants")
    return any(trace in written for trace in _TRACES)


def _counters(value: object) -> dict[str, int]:
    """Return validated counters by name.

    A separate check, so that no error shows a key that came from untrusted input.
    """
    if not isinstance(value, dict) or len(value) > MAX_COUNTERS:
        raise PydanticCustomError("counters", "value is not a small object of counts")
    for key, count in value.items():
        if not isinstance(key, str) or _COUNTER_NAME.fullmatch(key) is None:
            raise PydanticCustomError("counter_name", "name of a count is not a plain word")
        if type(count) is not int or not 0 <= count <= MAX_INT64:
            raise PydanticCustomError("counter_value", "count is not a whole number from 0")
    return value


def amount_text(amount: Decimal) -> str:
    """Return an amount as a decimal number without an exponent and without trailing zeros."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _amounts(value: object) -> dict[str, Decimal]:
    """Return validated amounts by name; a number of JSON counts as it is written there.

    A separate check, so that no error shows a key that came from untrusted input.
    """
    if not isinstance(value, dict) or len(value) > MAX_COUNTERS:
        raise PydanticCustomError("amounts", "value is not a small object of amounts")
    return {_amount_name(name): _amount(amount) for name, amount in value.items()}


def _amount_name(name: object) -> str:
    if not isinstance(name, str) or _COUNTER_NAME.fullmatch(name) is None:
        raise PydanticCustomError("amount_name", "name of an amount is not a plain word")
    return name


def _amount(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise PydanticCustomError("amount_value", "amount is not a number")
    try:
        # `str` gives the shortest decimal that the float stands for.
        amount = Decimal(str(value))
        if not 0 <= amount <= MAX_AMOUNT:
            raise PydanticCustomError("amount_value", "amount is not between 0 and 10^12")
        return amount.quantize(_AMOUNT_UNIT).normalize()
    except (InvalidOperation, ValueError) as exc:
        raise PydanticCustomError("amount_value", "amount is not a number") from exc


def _amount_texts(amounts: Mapping[str, Decimal]) -> dict[str, str]:
    return {name: amount_text(amount) for name, amount in amounts.items()}


def is_left_out(value: object) -> bool:
    """Return whether a field says nothing, so that a request keeps the digest it had without it."""
    return value is None or value == ()


PlatformId = Annotated[
    str,
    BeforeValidator(_id_text),
    WithJsonSchema({"type": ["string", "integer"], "maxLength": MAX_ID_BYTES}, mode="validation"),
    WithJsonSchema({"type": "string", "maxLength": MAX_ID_BYTES}, mode="serialization"),
]
"""An opaque platform id of at most 256 bytes; `""` means none."""

Text = Annotated[str, BeforeValidator(_scrubbed_value)]
"""Text from people or models; NUL and lone surrogates become U+FFFD."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
"""A declared name: account, agent, principal."""

# pydantic-core matches the pattern before it folds case, so the pattern accepts both cases.
PlatformName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$", to_lower=True),
]
"""The declared name of a platform; converted to lower case when read."""

EnvelopeId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]
"""An envelope id that fits the header `Nats-Msg-Id`."""

Instant = Annotated[AwareDatetime, Field(strict=True), AfterValidator(_in_utc)]
"""A time with a time zone, converted to UTC."""

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
"""Named counters, such as the tokens a model used."""

Amounts = Annotated[
    dict[str, Decimal],
    BeforeValidator(_amounts),
    PlainSerializer(_amount_texts, return_type=dict[str, str]),
    WithJsonSchema(
        {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
        mode="validation",
    ),
    WithJsonSchema(
        {"type": "object", "additionalProperties": {"type": "string"}}, mode="serialization"
    ),
]
"""Named amounts with fractions, such as `cost_usd`: decimals in text, cut to 12 places."""
