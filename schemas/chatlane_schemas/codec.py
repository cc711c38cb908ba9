"""Decode bodies into messages and encode messages into bodies.

No other module looks at bytes. The codec checks limits before it parses anything, and pydantic-core
parses a body once. An unreadable body raises `DecodeError` with a reason that a dead letter can
carry. The error never repeats the input.
"""

import re
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from chatlane_schemas.dead import DeadReason
from chatlane_schemas.envelope import Envelope
from chatlane_schemas.fields import MAX_JSON_DEPTH

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MessageT = TypeVar("MessageT", bound=Envelope)

MAX_ERRORS_SHOWN: Final = 3

# The closing quote is optional, so an unterminated string is scanned once and not again from each
# of its quotes.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_ALL_BUT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND_OF_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")

_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE: Final = re.compile(
    rb"""\\(?:
        (?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})
        |(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})
        |.)""",
    re.DOTALL | re.VERBOSE,
)
_NUL_ESCAPE: Final = rb"\u0000"


class DecodeError(ValueError):
    """A body that is not a valid message.

    Attributes:
        reason: The reason as a dead letter states it.
        detail: Place and kind of the error; never any of the input.
    """

    def __init__(self, reason: DeadReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def encode(message: Envelope) -> bytes:
    """Return the body of a message, without the fields that are None."""
    return message.__pydantic_serializer__.to_json(message, exclude_none=True)


def encode_part(message: Envelope, fields: set[str]) -> str:
    """Return some fields of a message as JSON text, without those that are None."""
    part = message.__pydantic_serializer__.to_json(message, include=fields, exclude_none=True)
    return part.decode()


def decode(model: type[MessageT], body: bytes) -> MessageT:
    """Return the message in a body.

    Raises:
        DecodeError: The body is too large, too deep, not JSON, of another version, or does not
            match the model.
    """
    _check_limits(model, body)
    try:
        message = _parsed(model, body)
    except ValidationError as exc:
        raise _decode_error(exc) from None
    if "v" not in message.__pydantic_fields_set__:
        raise DecodeError(DeadReason.INVALID, "v: missing")
    return message


def _check_limits(model: type[Envelope], body: bytes) -> None:
    if len(body) > model.max_bytes:
        detail = f"{len(body)} bytes, at most {model.max_bytes}"
        raise DecodeError(DeadReason.OVERSIZED, detail)
    if body.count(b"{") + body.count(b"[") > MAX_JSON_DEPTH and _is_too_deep(body):
        raise DecodeError(DeadReason.TOO_DEEP, f"nested deeper than {MAX_JSON_DEPTH}")
    if b"NaN" in body or b"Infinity" in body:
        _check_numbers(body)


def _is_too_deep(body: bytes) -> bool:
    """Return whether a body nests brackets deeper than allowed.

    Removes the innermost brackets once per allowed level and looks for brackets that remain.
    """
    brackets = _STRING.sub(b"", body).translate(_ONE_KIND_OF_BRACKETS, _ALL_BUT_BRACKETS)
    for _ in range(MAX_JSON_DEPTH):
        left = brackets.replace(b"[]", b"")
        if len(left) == len(brackets):
            break
        brackets = left
    return bool(brackets)


def _check_numbers(body: bytes) -> None:
    """Reject NaN and Infinity, which pydantic accepts and jsonb does not."""
    try:
        from_json(_without_lone_surrogates(body), allow_inf_nan=False)
    except ValueError as exc:
        raise DecodeError(DeadReason.NOT_JSON, "json_invalid") from exc


def _parsed(model: type[MessageT], body: bytes) -> MessageT:
    # Calls the validator directly: `model_validate_json` adds a Python call per message.
    validator = model.__pydantic_validator__
    message: MessageT
    try:
        message = validator.validate_json(body)
    except ValidationError:
        if _SURROGATE_ESCAPE.search(body) is None:
            raise
        message = validator.validate_json(_without_lone_surrogates(body))
    return message


def _without_lone_surrogates(body: bytes) -> bytes:
    """Return the body with NUL in place of each lone surrogate.

    The field types then treat both alike: text shows U+FFFD, an id is rejected.
    """
    return _ESCAPE.sub(lambda found: _NUL_ESCAPE if found["lone"] else found[0], body)


def _decode_error(exc: ValidationError) -> DecodeError:
    errors = exc.errors(include_url=False, include_context=False, include_input=False)
    shown = ", ".join(_place(error) for error in errors[:MAX_ERRORS_SHOWN])
    return DecodeError(_reason(errors), shown)


def _place(error: "ErrorDetails") -> str:
    path = ".".join(str(step) for step in error["loc"])
    return f"{path}: {error['type']}" if path else error["type"]


def _reason(errors: "list[ErrorDetails]") -> DeadReason:
    """Return the most useful reason: an unknown version explains all other errors."""
    types = {error["type"] for error in errors}
    if "json_invalid" in types:
        return DeadReason.NOT_JSON
    if any(error["loc"] == ("v",) for error in errors):
        return DeadReason.UNKNOWN_VERSION
    return DeadReason.BAD_ID if "bad_id" in types else DeadReason.INVALID
