"""Make rows of the lines of a session of Claude Code. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chatlane.importer.exports.conversation import (
    ForeignRow,
    NoConversationError,
    call_of,
    text_in,
    thought_of,
    time_of,
)
from chatlane_schemas.fields import scrubbed
from chatlane_schemas.results import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from chatlane.importer.records import Omissions

_ROLES: Final = frozenset(Role)
# Their titles are read elsewhere; the others are state of the program.
_KINDS_WITHOUT_WORDS: Final = frozenset(
    ("summary", "ai-title", "custom-title", "file-history-snapshot", "queue-operation")
)


class Entry(NamedTuple):
    """A message in a line: the line, the record in it, and the message in that.

    All three are the same object where a line is the message itself.
    """

    line: Mapping[str, Any]
    record: Mapping[str, Any]
    message: Mapping[str, Any]

    @property
    def at(self) -> datetime | None:
        """When it was written."""
        return time_of(
            self.message.get("timestamp"),
            self.record.get("timestamp"),
            self.line.get("timestamp"),
            self.line.get("created_at"),
        )

    @property
    def role(self) -> str | None:
        """The author of the line."""
        holders = (self.message, self.record, self.line)
        for value in (*(holder.get("role") for holder in holders), self.line.get("type")):
            if isinstance(value, str) and value.strip():
                role = value.strip().lower()
                return "user" if role == "human" else role
        return None

    @property
    def parts(self) -> list[Any]:
        """The parts of its content."""
        content = self.message.get("content")
        return content if isinstance(content, list) else [content]

    @property
    def is_of_helper(self) -> bool:
        """Return whether it belongs to the work of a helper agent."""
        return self.line.get("isSidechain") is True

    @property
    def is_of_program(self) -> bool:
        """Return whether the program wrote it in the name of the person."""
        return self.line.get("isMeta") is True or self.line.get("isCompactSummary") is True


def entries_in(line: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the messages of a line: those of a list, that of an object, or the line itself."""
    several = line.get("messages")
    for record in several if isinstance(several, list) else [line]:
        if isinstance(record, dict):
            message = record.get("message")
            yield Entry(line, record, message if isinstance(message, dict) else record)


@dataclass(slots=True)
class _Words:
    """The texts, files and tool calls of one message."""

    texts: list[str] = field(default_factory=list)
    calls: list[dict[str, object]] = field(default_factory=list)


class LineReader:
    """Makes the rows of one session, line by line.

    The program writes the parts of an answer as lines of their own. Reasoning goes to the next row of
    the same answer.
    """

    def __init__(self, name: str, omissions: Omissions) -> None:
        self._name = name
        self._omissions = omissions
        self._tools: dict[str, str] = {}
        self._thoughts: list[str] = []
        self._thinker = ""

    def rows(self, place: int, line: Mapping[str, Any]) -> Iterator[ForeignRow]:
        """Yield the rows of a line."""
        where = f"{self._name} line {place}"
        line_id = line.get("uuid")
        for number, entry in enumerate(entries_in(line)):
            key = f"{line_id if isinstance(line_id, str) and line_id else place}:{number}"
            try:
                yield from self._rows(key, entry, where)
            except NoConversationError as error:
                self._omissions.add("message", str(error), where)

    def finish(self) -> None:
        """Report reasoning at the end of the file."""
        if self._thoughts:
            self._omissions.add("reasoning of a message", "nothing follows it", self._name)

    def _rows(self, key: str, entry: Entry, where: str) -> Iterator[ForeignRow]:
        role = entry.role
        if role in _KINDS_WITHOUT_WORDS:
            return
        if role not in _ROLES:
            self._omissions.add("line", "not said by user, assistant, system or tool", where)
            return
        if entry.is_of_helper:
            self._omissions.add("message", "of a helper agent (sidechain)", where)
            return
        answer = str(entry.message.get("id") or key)
        if self._thoughts and self._thinker != answer:
            self._omissions.add("reasoning of a message", "no answer follows it", where)
            self._thoughts.clear()
        self._thinker = answer
        words = _Words()
        for number, part in enumerate(entry.parts):
            if isinstance(part, dict) and part.get("type") == "tool_result":
                yield self._result(f"{key}:{number}", part, entry.at, where)
            elif isinstance(part, dict):
                self._take(part, words, where)
            else:
                words.texts.append(text_in(part))
        text = "\n".join(filter(None, words.texts))
        if text.strip() or words.calls:
            yield ForeignRow(
                key=key,
                role=str(role),
                content=text if text.strip() else None,
                written_at=entry.at,
                details={"tool_calls": words.calls} if words.calls else None,
                thought=self._thought(where) if role == Role.ASSISTANT else None,
                is_context=role == Role.USER and entry.is_of_program,
            )

    def _take(self, part: Mapping[str, Any], words: _Words, where: str) -> None:
        match part.get("type"):
            case "thinking" | "redacted_thinking":
                thought = part.get("thinking")
                if isinstance(thought, str) and thought.strip():
                    self._thoughts.append(scrubbed(thought))
                else:
                    self._omissions.add("reasoning of a message", "it is encrypted", where)
            case "tool_use" | "server_tool_use":
                call_id, name = str(part.get("id") or ""), str(part.get("name") or "")
                call = call_of(call_id, name, part.get("input"))
                words.calls.append(call.stored)
                self._tools[call_id] = name
                if call.is_cut:
                    self._omissions.add(
                        "arguments of a tool call", "above 200,000 characters", where
                    )
            case "image" | "document" as kind:
                self._leave_out_file(kind, where)
                words.texts.append(f"[{kind}]")
            case _:
                words.texts.append(text_in(part))

    def _leave_out_file(self, kind: str, where: str) -> None:
        self._omissions.add(
            "file in a message", f"an {kind}" if kind == "image" else f"a {kind}", where
        )

    def _thought(self, where: str) -> str | None:
        thought = thought_of("\n\n".join(self._thoughts), self._omissions, where)
        self._thoughts.clear()
        return thought

    def _result(
        self, key: str, part: Mapping[str, Any], at: datetime | None, where: str
    ) -> ForeignRow:
        call_id = str(part.get("tool_use_id") or "")
        details: dict[str, object] = {"tool_call_id": scrubbed(call_id)}
        if call_id in self._tools:
            details["tool_name"] = scrubbed(self._tools[call_id])
        content = part.get("content")
        for piece in content if isinstance(content, list) else ():
            if isinstance(piece, dict) and piece.get("type") == "image":
                self._leave_out_file("image", where)
        return ForeignRow(
            key=key,
            role=Role.TOOL,
            content=text_in(content) or "[no output]",
            written_at=at,
            details=details,
        )
