"""Tool calls of stored rows, in the shapes that models make them."""

from collections.abc import Iterator
from typing import Any

from chatlane_schemas.session_api.transcripts import TranscriptEntry


def tool_calls_of(row: TranscriptEntry) -> Iterator[tuple[str, str, Any]]:
    """Yield id, name and arguments of the tool calls of a row."""
    for call in row.tool_calls or ():
        described: Any = call.get("function", call)
        found = described if isinstance(described, dict) else call
        arguments = found.get("arguments", found.get("args"))
        yield str(call.get("id") or ""), str(found.get("name")), arguments
