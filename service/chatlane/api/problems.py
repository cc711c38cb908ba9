"""Describe why a body is not a valid request: the field and what is wrong with it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from chatlane_schemas.dead import DeadReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chatlane_schemas.codec import DecodeError

_NO_TIME: Final = "must be a time with an offset, such as 2026-03-01T12:00:00Z"
_NO_UUID: Final = "must be a UUID"
_NO_LIST: Final = "must be a list"
_NO_OBJECT: Final = "must be an object"
_CREDENTIAL: Final = "holds a credential, which is not stored; pass a reference to it"
_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "missing": "is missing",
        "string_type": "must be text",
        "string_pattern_mismatch": "is not in the form that the contract allows",
        "string_too_long": "is too long",
        "string_too_short": "is too short",
        "bool_type": "must be true or false",
        "int_type": "must be a whole number",
        "int_parsing_size": "is too large",
        "greater_than_equal": "is too small",
        "less_than_equal": "is too large",
        "enum": "is none of the values that the contract allows",
        "uuid_type": _NO_UUID,
        "uuid_parsing": _NO_UUID,
        "datetime_type": _NO_TIME,
        "datetime_parsing": _NO_TIME,
        "datetime_from_date_parsing": _NO_TIME,
        "timezone_aware": _NO_TIME,
        "datetime_range": "is outside the calendar",
        "model_type": _NO_OBJECT,
        "dict_type": _NO_OBJECT,
        "list_type": _NO_LIST,
        "tuple_type": _NO_LIST,
        "too_long": "is too long",
        "too_short": "is too short",
        "bad_id": "must be an id: text of at most 256 bytes without NUL, or a whole number",
        "no_person": "names no person",
        "json_depth": "is nested too deeply",
        "json_value": "holds a value that is not JSON, such as NaN",
        "config_size": "is larger than 16 kB",
        "config_credential": _CREDENTIAL,
        "credential": _CREDENTIAL,
        "base_url": "must be a plain http(s) URL without user, query and fragment",
        "override_empty": "must name a model, a provider or a base_url",
        "set_and_cleared": "a value is both set and cleared",
        "set_and_patched": "config and config_patch exclude each other",
        "profile": "session_key says the profile: leave profile out",
        "field_value": "must be a text of at most 4,000 characters, a number, true or false",
        "field_number": "must be a number of at most 2^53",
        "form_values": "must be an object of at most 20 fields",
        "form_name": "a name is not in the form that the contract allows",
        "nothing": "text and attachments are both empty",
        "label": "has no visible character",
        "project_name": "has no visible character",
        "json_object": "must be a JSON object as text",
        "tool_names": "two tools have the same name",
        "large_tools": "names, descriptions and schemas are larger than 64 KiB",
        "large_context": "is larger than 32 KiB",
        "large_state": "is larger than 32 KiB",
        "draft_size": "is larger than 16 kB",
        "origin": "is reserved for sessions that messages open",
    }
)


def problem_text(error: DecodeError) -> str:
    """Return one sentence for the caller, without any of the input."""
    match error.reason:
        case DeadReason.NOT_JSON:
            return "the body is not JSON"
        case DeadReason.OVERSIZED:
            return f"the body is too large: {error.detail}"
        case DeadReason.TOO_DEEP:
            return f"the body is {error.detail}"
        case DeadReason.UNKNOWN_VERSION:
            return "v: must be 1"
        case _:
            return "; ".join(map(_in_words, error.detail.split(", ")))


def _in_words(problem: str) -> str:
    place, _, kind = problem.rpartition(": ")
    return f"{place or 'the request'}: {_WORDS.get(kind, 'is not valid')}"
