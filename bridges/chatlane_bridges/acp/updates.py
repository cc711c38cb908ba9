"""Updates of a session as an editor shows them."""

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from chatlane_bridges.acp.editor import Update
from chatlane_bridges.answers.tool_rows import tool_calls_of
from chatlane_schemas.inbound import Attachment, Kind
from chatlane_schemas.live_turns import PlanEntry, StepState
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import RowState, TranscriptEntry

_STATUS: Final = {
    StepState.PENDING: "pending",
    StepState.RUNNING: "in_progress",
    StepState.DONE: "completed",
    StepState.FAILED: "failed",
}
_PLAN_STATUS: Final = {**_STATUS, StepState.FAILED: "completed"}
# Rows of a person that are no words, such as reactions, are for the agent only.
_SAID: Final = frozenset({None, Kind.MESSAGE, Kind.ACTION, Kind.ATTACHMENTS})


def agent_text(text: str, message_id: str) -> Update:
    """Return words of the agent."""
    return _chunk("agent_message_chunk", text, message_id)


def agent_thought(text: str, message_id: str) -> Update:
    """Return an update with a thought of the agent."""
    return _chunk("agent_thought_chunk", text, message_id)


def _chunk(kind: str, text: str, message_id: str) -> Update:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": kind, "content": content, "messageId": message_id}


def tool_start(
    tool_id: str,
    title: str | None,
    state: StepState | None = None,
    arguments: Any = None,  # noqa: ANN401 - any JSON
) -> Update:
    """Return the first update of a tool call."""
    update: Update = {
        "sessionUpdate": "tool_call",
        "toolCallId": tool_id,
        "title": title or "tool",
        "kind": "other",
        "status": _STATUS[state or StepState.PENDING],
    }
    if arguments is not None:
        update["rawInput"] = arguments
    return update


def tool_change(
    tool_id: str,
    *,
    title: str | None = None,
    state: StepState | None = None,
    result: str | None = None,
) -> Update:
    """Return a later update of a tool call."""
    update: Update = {"sessionUpdate": "tool_call_update", "toolCallId": tool_id}
    if title is not None:
        update["title"] = title
    if state is not None:
        update["status"] = _STATUS[state]
    if result is not None:
        content = {"type": "text", "text": result}
        update["content"] = [{"type": "content", "content": content}]
    return update


def plan(entries: tuple[PlanEntry, ...]) -> Update:
    """Return the whole plan of an agent."""
    shown = [
        {"content": entry.text, "priority": "medium", "status": _PLAN_STATUS[entry.state]}
        for entry in entries
    ]
    return {"sessionUpdate": "plan", "entries": shown}


def context_use(gauges: dict[str, int], cost_usd: float | None = None) -> Iterator[Update]:
    """Yield how full the context is, if it is known."""
    used, size = gauges.get("context_tokens"), gauges.get("context_limit")
    if used is None or size is None:
        return
    update: Update = {"sessionUpdate": "usage_update", "used": used, "size": size}
    if cost_usd is not None:
        update["cost"] = {"amount": cost_usd, "currency": "USD"}
    yield update


def tool_key(turn_id: UUID | None, tool_id: str) -> str:
    """Return the id of a tool call in a session; models number their calls in each turn."""
    return tool_id if turn_id is None else f"{turn_id.hex[:12]}-{tool_id}"


def message_key(row: TranscriptEntry) -> str:
    """Return the id of the message of a row."""
    return str(row.row_id) if row.row_id is not None else f"{row.session_id}-{row.seq}"


def replayed(row: TranscriptEntry) -> Iterator[Update]:
    """Yield a row of a transcript as updates."""
    if row.state is RowState.DELETED:
        return
    if row.role is Role.USER and row.kind in _SAID:
        yield from _said(row, "user_message_chunk")
    elif row.role is Role.ASSISTANT:
        if row.reasoning is not None and row.reasoning.text:
            yield agent_thought(row.reasoning.text, message_key(row))
        yield from _said(row, "agent_message_chunk")
        for tool_id, name, arguments in tool_calls_of(row):
            yield tool_start(tool_key(row.turn_id, tool_id), name, arguments=arguments)
    elif row.role is Role.TOOL:
        tool_id = tool_key(row.turn_id, row.tool_call_id or "")
        state = StepState.FAILED if row.is_placeholder else StepState.DONE
        yield tool_change(tool_id, state=state, result=row.content or "")


def _said(row: TranscriptEntry, kind: str) -> Iterator[Update]:
    key = message_key(row)
    if row.content:
        yield _chunk(kind, row.content, key)
    for link in map(_link, row.attachments):
        yield {"sessionUpdate": kind, "content": link, "messageId": key}


def _link(attachment: Attachment) -> dict[str, Any]:
    uri = attachment.url or attachment.key or ""
    link: dict[str, Any] = {
        "type": "resource_link",
        "uri": uri,
        "name": attachment.name or uri,
        "mimeType": attachment.media_type,
    }
    if attachment.size_bytes is not None:
        link["size"] = attachment.size_bytes
    return link
