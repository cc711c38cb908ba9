"""Conversations of other programs, as an import reads them, and the parts that they share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.prompts.sanitize import beginning
from chatlane.importer.file_values import instant_of
from chatlane_schemas.content.visible_text import shown_title
from chatlane_schemas.fields import scrubbed, scrubbed_json
from chatlane_schemas.results import MAX_REASONING_BYTES
from chatlane_schemas.session_api.session_changes import MAX_TITLE_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from chatlane.importer.records import Omissions

MAX_CALL_CHARACTERS: Final = 200_000
"""Longest arguments of a tool call that are kept: a page of a transcript must hold them."""
_MAX_DEPTH: Final = 8
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ForeignRow(NamedTuple):
    """A row of another program's conversation.

    Attributes:
        key: What identifies the row in its conversation, in every later read of the file.
        written_at: Its own time; None if it has none.
        details: Tool calls and the like, as in the details of a transcript row.
        thought: What the model thought before the row.
        is_context: Whether the program wrote the row, and not the person.
    """

    key: str
    role: str
    content: str | None
    written_at: datetime | None
    details: Mapping[str, object] | None = None
    thought: str | None = None
    is_context: bool = False


class NoConversationError(ValueError):
    """Raised for something that is no conversation; the message says why, without its text."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of another program.

    Attributes:
        source: The program, which becomes the origin of the session, such as `claude_code`.
        id: Its id there.
        name: Its name in reports: a file name or the id.
        began_at: A time that every later read of the file gives as well; a part of all ids.
        file_at: Time of rows before the first time in the conversation.
        rows: Yields the rows from the first to the last; may be called several times.
        keys: The keys of all rows, also of those that are on other branches.
    """

    source: str
    id: str
    name: str
    began_at: datetime
    file_at: datetime
    rows: Callable[[Omissions], Iterator[ForeignRow]]
    title: str | None = None
    cwd: str | None = None
    model: str | None = None
    is_archived: bool = False
    is_pinned: bool = False
    keys: tuple[str, ...] = ()


def title_of(*texts: object) -> str | None:
    """Return the first text that has a visible character, as a title: one line, cut to its limit."""
    for text in texts:
        if isinstance(text, str) and (shown := shown_title(scrubbed(text))):
            cut = beginning(shown, MAX_TITLE_CHARACTERS)
            return cut if len(cut) <= MAX_TITLE_CHARACTERS else cut[:MAX_TITLE_CHARACTERS].strip()
    return None


def time_of(*values: object) -> datetime | None:
    """Return the first value that is a time: seconds or milliseconds since 1970, or ISO 8601."""
    for value in values:
        if isinstance(value, bool) or value is None:
            continue
        at = _number_time(value)
        if at is None and isinstance(value, str):
            at = _written_time(value)
        if at is not None:
            return at
    return None


def _number_time(value: object) -> datetime | None:
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    # No program wrote anything after the year 5000, and none before 1970 and some months.
    return instant_of(seconds / 1000 if seconds > 1e11 else seconds)  # noqa: PLR2004


def _written_time(value: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(value.strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def text_in(value: object, depth: int = 0) -> str:
    """Return the text of a content: of a list that of its parts, of an object its `text` or `content`.

    A part without text becomes its type in brackets.
    """
    if value is None or depth > _MAX_DEPTH:
        return ""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, list):
        return "\n".join(filter(None, (text_in(part, depth + 1) for part in value)))
    if isinstance(value, dict):
        for name in ("text", "content"):
            if value.get(name):
                return text_in(value[name], depth + 1)
        kind = value.get("type") or value.get("content_type")
        return f"[{scrubbed(kind)}]" if isinstance(kind, str) else ""
    return scrubbed(str(value))


class Call(NamedTuple):
    """A tool call as a transcript keeps it; `is_cut` says that its arguments are too long."""

    stored: dict[str, object]
    is_cut: bool


def call_of(call_id: str, name: str, arguments: object) -> Call:
    """Return a tool call.

    Raises:
        NoConversationError: The arguments are nested too deeply.
    """
    try:
        text = json.dumps(scrubbed_json(arguments), ensure_ascii=False)
    except (ValueError, RecursionError) as exc:
        raise NoConversationError("its tool call cannot be stored") from exc
    is_cut = len(text) > MAX_CALL_CHARACTERS
    function = {"name": scrubbed(name), "arguments": "{}" if is_cut else text}
    return Call({"id": scrubbed(call_id), "type": "function", "function": function}, is_cut)


def thought_of(text: str, omissions: Omissions, name: str) -> str | None:
    """Return reasoning that fits into a row; a longer one is cut, and reported."""
    if len(text) <= MAX_REASONING_BYTES:
        return text or None
    omissions.add("reasoning of a message", "longer than 64 KiB: its end", name)
    return text[:MAX_REASONING_BYTES]
