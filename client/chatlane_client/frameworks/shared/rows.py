"""Rows of a transcript as the models of all frameworks need them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from chatlane_client.turn import Answer, NoReply, Reply
from chatlane_schemas import Part, Role, TranscriptRow
from chatlane_schemas.content.prompts import prompt_of
from chatlane_schemas.results import Reasoning
from chatlane_schemas.session_api.transcripts import TranscriptEntry

Row = TranscriptEntry | TranscriptRow

# A result has at most 1 MiB. Older results of tools are left out beyond this.
_MAX_RESULT_CHARACTERS: Final = 32_000
_MAX_RESULTS_CHARACTERS: Final = 200_000
_LEFT_OUT: Final = "(left out: too large)"
_INTERRUPTED: Final = "(interrupted: it may have had effects)"


class ToolCall(NamedTuple):
    """A call of a tool.

    Attributes:
        arguments: A JSON object as text.
    """

    id: str
    name: str
    arguments: str

    def values(self) -> dict[str, Any]:
        """Return the arguments; none if a model wrote something else than an object."""
        try:
            values = json.loads(self.arguments)
        except ValueError:
            return {}
        return values if isinstance(values, dict) else {}


def stored_call(call: ToolCall) -> dict[str, Any]:
    """Return a call in the shape that most providers have."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def calls_of(row: Row) -> list[ToolCall]:
    """Return the calls of a row."""
    return [_call_of(call) for call in row.tool_calls or ()]


def _call_of(stored: Mapping[str, Any]) -> ToolCall:
    described: Any = stored.get("function", stored)
    arguments = described.get("arguments", described.get("args"))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(str(stored.get("id") or ""), str(described.get("name", "")), text or "{}")


def prompt_text(row: Row) -> str:
    """Return the words of a row of a person, with their header."""
    return prompt_of([row]) if isinstance(row, TranscriptEntry) else row.content or ""


def reasoning_of(text: str, data: Sequence[dict[str, Any]]) -> Reasoning | None:
    """Return reasoning as a row has it, or None if there is none or too much."""
    if not text and not data:
        return None
    try:
        return Reasoning(text=text or None, data=[*data] or None)
    except ValidationError:
        return None


def assistant_row(
    text: str, calls: Iterable[ToolCall], reasoning: Reasoning | None = None
) -> TranscriptRow | None:
    """Return a message of the model as a row, or None if it says and does nothing."""
    stored = [stored_call(call) for call in calls]
    if not (text or stored or reasoning):
        return None
    return TranscriptRow(
        role=Role.ASSISTANT, content=text or None, tool_calls=stored or None, reasoning=reasoning
    )


def tool_row(call_id: str, name: str, content: str) -> TranscriptRow:
    """Return the result of a call as a row."""
    return TranscriptRow(role=Role.TOOL, content=content, tool_call_id=call_id, tool_name=name)


def stored_rows(rows: Iterable[TranscriptRow]) -> list[TranscriptRow]:
    """Return rows so that each call has a result, and all of them fit into a message."""
    return _bounded(_complete(rows))


def new_rows(rows: Iterable[TranscriptRow], earlier: Iterable[Row]) -> list[TranscriptRow]:
    """Return rows without the calls and results that an earlier attempt has left."""
    known = {call.id for row in earlier for call in calls_of(row)}
    return [
        row
        for row in rows
        if row.tool_call_id not in known
        and not (row.tool_calls and {call.id for call in calls_of(row)} <= known)
    ]


def answer_of(parts: Sequence[Part], rows: list[TranscriptRow], counts: dict[str, Any]) -> Answer:
    """Return the answer of a run.

    Args:
        parts: Its messages to the chat.
        rows: What the model and its tools said; the text of the last part is added if it is
            missing.
        counts: Usage, costs and gauges.
    """
    if not parts:
        return NoReply(transcript=rows, **counts)
    rows = with_text(rows, parts[-1].text)
    is_plain = len(rows) == len(parts) == 1 and rows[0].reasoning is None
    return Reply(parts=parts, transcript=[] if is_plain else rows, **counts)


def with_text(rows: list[TranscriptRow], text: str | None) -> list[TranscriptRow]:
    """Return rows with the last text of the model, which may be there together with calls."""
    spoken = [row.content for row in rows if row.role is Role.ASSISTANT]
    if spoken[-1:] == [text]:
        return rows
    return [*rows, TranscriptRow(role=Role.ASSISTANT, content=text)]


def _complete(rows: Iterable[TranscriptRow]) -> Iterator[TranscriptRow]:
    """Yield rows; a call whose result is missing gets one, in its place."""
    missing: dict[str, str] = {}

    def placeholders() -> Iterator[TranscriptRow]:
        for call_id, name in missing.items():
            yield tool_row(call_id, name, _INTERRUPTED)
        missing.clear()

    for row in rows:
        if row.role is Role.TOOL:
            missing.pop(row.tool_call_id or "", None)
        else:
            yield from placeholders()
        yield row
        missing |= {call.id: call.name for call in calls_of(row)}
    yield from placeholders()


def _bounded(rows: Iterable[TranscriptRow]) -> list[TranscriptRow]:
    """Return rows with shortened results of tools, so that they fit into a message."""
    left = _MAX_RESULTS_CHARACTERS
    bounded: list[TranscriptRow] = []
    for row in reversed([*rows]):
        content = row.content or ""
        if row.role is Role.TOOL and len(content) > min(left, _MAX_RESULT_CHARACTERS):
            kept = content[: min(left, _MAX_RESULT_CHARACTERS)]
            row = row.model_copy(update={"content": kept + _LEFT_OUT})  # noqa: PLW2901
        if row.role is Role.TOOL:
            left = max(0, left - len(content))
        bounded.append(row)
    return bounded[::-1]
