"""Read stored values that this release does not know without failing a chat.

A router of the next release may write a new value while this one runs beside it, and an operator
may have written a wrong one. Readers omit a value that they cannot read, count it, and log the
name of its column, never the value.
"""

import re
import time
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from chatlane.domain.turns.retries import PersonRow
from chatlane.observability.logs import get_logger
from chatlane_schemas.envelope import Record
from chatlane_schemas.inbound import CHAT_KINDS, Kind
from chatlane_schemas.session_api.session_state import ModelOverride
from chatlane_schemas.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import StrEnum

_log = get_logger("store")

EnumT = TypeVar("EnumT", bound="StrEnum")
RecordT = TypeVar("RecordT", bound=Record)

_NAME: Final = re.compile(r"[a-z0-9_-]{1,64}")
# Every message of a chat may read the same unknown value.
_LOG_EVERY_SECONDS: Final = 60
# A chat of an unknown kind may have several users, so nothing private is shown there.
_MANY_PERSON_KIND: Final = "group"


class UnknownValues:
    """Counts the values that this process could not read.

    Attributes:
        counts: Number of unknown values, by column such as `sessions.end_reason`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged_at: dict[str, float] = {}

    def note(self, column: str) -> None:
        """Count one value; log its column at most once a minute."""
        self.counts[column] += 1
        now = time.monotonic()
        if now - self._logged_at.get(column, -_LOG_EVERY_SECONDS) >= _LOG_EVERY_SECONDS:
            self._logged_at[column] = now
            _log.warning("stored_value_unknown", column=column, count=self.counts[column])


UNKNOWN_VALUES: Final = UnknownValues()
"""The counts of this process. They are global because readers are plain functions and a router
uses one database."""


def known_value(kind: type[EnumT], value: str | None, column: str) -> EnumT | None:
    """Return a member of an enum, or None; an unknown value is counted."""
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        UNKNOWN_VALUES.note(column)
        return None


def read_source(text: str, table: str) -> Source:
    """Parse a stored source; a chat of an unknown kind becomes a group.

    Raises:
        ValidationError: It lacks a field that an answer needs.
    """
    try:
        return _known_source(text)
    except ValidationError:
        fields = from_json(text)
        chat = fields.get("chat") if isinstance(fields, dict) else None
        if not isinstance(chat, dict) or str(chat.get("kind")).lower() in CHAT_KINDS:
            raise
        UNKNOWN_VALUES.note(f"{table}.source")
        return Source.model_validate(fields | {"chat": chat | {"kind": _MANY_PERSON_KIND}})


# A turn reads the source of its message several times: waiting, at its claim, and at its end.
@lru_cache(maxsize=4096)
def _known_source(text: str) -> Source:
    return Source.model_validate_json(text)


def read_person_row(row: PersonRow) -> PersonRow:
    """Return a stored user message without unknown values, for a new run."""
    details, source = row.details, row.source
    if details is not None:
        details = _known_details(details)
    if source is not None:
        source = read_source(source, "messages").model_dump_json(exclude_none=True)
    return row._replace(details=details, source=source)


def _known_details(text: str) -> str:
    details = from_json(text)
    kind = details.get("kind")
    if kind is None or known_value(Kind, kind, "messages.details") is not None:
        return text
    return to_json({name: value for name, value in details.items() if name != "kind"}).decode()


def read_override(text: str) -> ModelOverride | None:
    """Return the stored model override of a session; None if it has no known value."""
    fields = from_json(text)
    if isinstance(fields, dict):
        return read_record(ModelOverride, fields, "sessions.model_override")
    UNKNOWN_VALUES.note("sessions.model_override")
    return None


def read_reason(text: str) -> str:
    """Return the stored reason of an interruption, or `interrupted` if it is no valid name."""
    if _NAME.fullmatch(text) is not None:
        return text
    UNKNOWN_VALUES.note("sessions.resume_reason")
    return "interrupted"


def read_record(
    model: type[RecordT], fields: "Mapping[str, object]", table: str, *, is_json: bool = False
) -> RecordT | None:
    """Build a record from stored values, without the values that the model rejects.

    Returns None if the record is invalid without them.

    Args:
        model: The class of the record.
        fields: Its values by field name.
        table: The table that stores them.
        is_json: Whether the values have their JSON form, as opposed to Python objects.
    """

    def read(values: "Mapping[str, object]") -> RecordT:
        if is_json:
            return model.model_validate_json(to_json(values))
        return model.model_validate(values)

    try:
        return read(fields)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_context=False, include_input=False)
    wrong = {str(error["loc"][0]) for error in errors if error["loc"]}
    for name in sorted(wrong):
        UNKNOWN_VALUES.note(f"{table}.{name}")
    try:
        return read({name: value for name, value in fields.items() if name not in wrong})
    except ValidationError:
        return None
