"""Rows of one conversation in memory, or in a temporary file, so that memory does not grow with them.

The file of the other program is read once, before the transaction that writes the rows.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from chatlane_schemas.results import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chatlane.importer.exports.conversation import Conversation, ForeignRow
    from chatlane.importer.records import Omissions

_ROWS_AT_ONCE: Final = 500
_CHARACTERS_AT_ONCE: Final = 4_000_000
# Above the limit of an upload: a router writes no file.
_IN_MEMORY_CHARACTERS: Final = 64 * 1024 * 1024


class SpooledRow(NamedTuple):
    """A row with the time at which it was written, or that of the row before."""

    key: str
    role: str
    content: str | None
    created_at: datetime
    details: Mapping[str, object]
    thought: str | None
    is_context: bool

    @property
    def is_of_person(self) -> bool:
        """Return whether the person wrote the row."""
        return self.role == Role.USER and not self.is_context


@dataclass(frozen=True, slots=True)
class Spool:
    """The rows of one conversation, and the times of the first and the last one."""

    first_at: datetime
    last_at: datetime
    _file: IO[str]

    def parts(self) -> Iterator[list[SpooledRow]]:
        """Yield the rows in order, as many at once as one statement takes."""
        self._file.seek(0)
        part: list[SpooledRow] = []
        characters = 0
        for line in self._file:
            key, role, content, at, details, thought, is_context = json.loads(line)
            written_at = datetime.fromisoformat(at)
            part.append(SpooledRow(key, role, content, written_at, details, thought, is_context))
            characters += len(line)
            if len(part) == _ROWS_AT_ONCE or characters >= _CHARACTERS_AT_ONCE:
                yield part
                part, characters = [], 0
        if part:
            yield part


@contextmanager
def open_spool(conversation: Conversation, omissions: Omissions) -> Iterator[Spool]:
    """Read the rows of a conversation; what is left out is added to the omissions."""
    with tempfile.SpooledTemporaryFile(
        _IN_MEMORY_CHARACTERS, "w+", encoding="utf-8", prefix="chatlane-import-"
    ) as file:
        first_at, last_at, before = None, None, conversation.file_at
        keys: set[str] = set()
        for row in conversation.rows(omissions):
            if row.key in keys:
                omissions.add("message", "is there twice", conversation.name)
                continue
            keys.add(row.key)
            before = row.written_at or before
            first_at = before if first_at is None else min(first_at, before)
            last_at = before if last_at is None else max(last_at, before)
            file.write(_line(row, before))
        yield Spool(first_at or before, last_at or before, file)


def _line(row: ForeignRow, created_at: datetime) -> str:
    fields = (
        row.key,
        row.role,
        row.content,
        created_at.isoformat(),
        row.details or {},
        row.thought,
        row.is_context,
    )
    return json.dumps(fields) + "\n"
