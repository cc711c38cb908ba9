"""Read the export of ChatGPT: `conversations.json`, or the archive that holds it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from chatlane.importer.exports.conversation import (
    EPOCH,
    Conversation,
    ForeignRow,
    NoConversationError,
    call_of,
    text_in,
    thought_of,
    time_of,
    title_of,
)
from chatlane.importer.exports.json_items import Item, items_of
from chatlane.importer.exports.trees import Node, branch_to
from chatlane_schemas.content.visible_text import shown_title
from chatlane_schemas.fields import scrubbed
from chatlane_schemas.results import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from chatlane.importer.records import Omissions

SOURCE: Final = "chatgpt"

_MEMBER: Final = re.compile(r"(?:[^/]+/)?conversations(?:-\d+)?\.json")
_ROLES: Final = frozenset(Role)
_NO_TITLE: Final = "new chat"
_THOUGHTS: Final = "thoughts"
# What the person wants to be known in every conversation, and how long the model thought.
_NO_MESSAGES: Final = {
    "user_editable_context": "custom instructions",
    "model_editable_context": "memory of the model",
    "reasoning_recap": None,
}
_FILES: Final = {
    "image_asset_pointer": "an image",
    "audio_asset_pointer": "a recording",
    "video_container_asset_pointer": "a recording",
    "real_time_user_audio_video_asset_pointer": "a recording",
}


def conversations(path: Path, omissions: Omissions) -> Iterator[Conversation]:
    """Yield the conversations of an export.

    Raises:
        NoExportError: There is no such file, or the archive has no conversations.
    """
    for item in items_of(path, _MEMBER, omissions):
        try:
            yield conversation_of(item)
        except NoConversationError as error:
            omissions.mark_damaged(path.name)
            omissions.add("item", str(error), item.place)


def conversation_of(item: Item) -> Conversation:
    """Return the conversation of an object of an export.

    Raises:
        NoConversationError: It is none.
    """
    fields = item.fields
    mapping = fields.get("mapping")
    if not isinstance(mapping, dict):
        raise NoConversationError("no conversation of ChatGPT")
    conversation_id = fields.get("conversation_id") or fields.get("id")
    if not isinstance(conversation_id, str):
        raise NoConversationError("has no id")
    nodes = {node_id: _node(value) for node_id, value in mapping.items()}
    created_at = time_of(fields.get("create_time"))
    title = title_of(fields.get("title"))
    branch = _Branch(nodes, branch_to(nodes, fields.get("current_node")), item.place)
    return Conversation(
        source=SOURCE,
        id=scrubbed(conversation_id),
        name=item.place,
        began_at=created_at or EPOCH,
        file_at=created_at or time_of(fields.get("update_time")) or EPOCH,
        rows=branch.rows,
        title=None if title is None or title.casefold() == _NO_TITLE else title,
        model=branch.model() or _text(fields.get("default_model_slug")),
        is_archived=fields.get("is_archived") is True,
        is_pinned=fields.get("is_starred") is True,
        keys=tuple(map(scrubbed, nodes)),
    )


def _text(value: object) -> str | None:
    return scrubbed(value)[:256] if isinstance(value, str) and value else None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _node(value: object) -> Node:
    fields = _object(value)
    message = fields.get("message")
    parent = fields.get("parent")
    return Node(
        parent=parent if isinstance(parent, str) else None,
        fields=message if isinstance(message, dict) else None,
        at=time_of(_object(message).get("create_time")),
    )


class _Branch:
    """The current branch of a conversation."""

    def __init__(self, nodes: Mapping[str, Node], path: list[str], name: str) -> None:
        self._nodes = nodes
        self._path = path
        self._name = name

    def model(self) -> str | None:
        """Return the model that answered last."""
        for node_id in reversed(self._path):
            metadata = _object(_object(self._nodes[node_id].fields).get("metadata"))
            if model := _text(metadata.get("model_slug")):
                return model
        return None

    def rows(self, omissions: Omissions) -> Iterator[ForeignRow]:
        """Yield the rows of the branch."""
        thoughts: list[str] = []
        call: tuple[str, str] | None = None
        for node_id in self._path:
            fields = self._nodes[node_id].fields
            if fields is None:
                continue
            content = _object(fields.get("content"))
            if content.get("content_type") == _THOUGHTS:
                thoughts += _thoughts(content)
                continue
            try:
                row = self._row(node_id, fields, content, call, omissions)
            except NoConversationError as error:
                omissions.add("message", str(error), self._name)
                continue
            if row is None:
                continue
            if row.role == Role.ASSISTANT and thoughts:
                thought = thought_of("\n\n".join(thoughts), omissions, self._name)
                row, thoughts = row._replace(thought=thought), []
            recipient = str(fields.get("recipient"))
            call = (row.key, recipient) if row.details and row.role == Role.ASSISTANT else None
            yield row
        if thoughts:
            omissions.add("reasoning of a message", "no answer follows it", self._name)
        self._count_others(omissions)

    def _count_others(self, omissions: Omissions) -> None:
        current = set(self._path)
        others = [
            node
            for node_id, node in self._nodes.items()
            if node_id not in current and text_in(_object(node.fields).get("content")).strip()
        ]
        if others:
            omissions.add("message", "on another branch", self._name, len(others))

    def _row(
        self,
        node_id: str,
        fields: Mapping[str, Any],
        content: Mapping[str, Any],
        call: tuple[str, str] | None,
        omissions: Omissions,
    ) -> ForeignRow | None:
        """Return the row of a message, or None if it says nothing.

        Args:
            node_id: Id of the message.
            fields: The message.
            content: Its content.
            call: Id and tool of the call right before it.
            omissions: Gets what is left out of it.
        """
        kind = _text(content.get("content_type"))
        if kind in _NO_MESSAGES:
            if (what := _NO_MESSAGES[kind]) is not None:
                omissions.add("message", what, self._name)
            return None
        author = _object(fields.get("author"))
        role = _text(author.get("role"))
        text = self._words(content, omissions)
        text = "\n".join(filter(None, (text, *self._attachments(fields, omissions))))
        if not text.strip():
            return None
        if role not in _ROLES:
            omissions.add("message", "not said by user, assistant, system or tool", self._name)
            return None
        row = ForeignRow(scrubbed(node_id), role or "", text, time_of(fields.get("create_time")))
        recipient = fields.get("recipient")
        if role == Role.ASSISTANT and isinstance(recipient, str) and recipient not in {"", "all"}:
            made = call_of(row.key, recipient, {"input": text})
            if made.is_cut:
                omissions.add("arguments of a tool call", "above 200,000 characters", self._name)
            return row._replace(content=None, details={"tool_calls": [made.stored]})
        if role == Role.TOOL:
            call_id, tool = call or ("", _text(author.get("name")))
            answered = {"tool_call_id": call_id or None, "tool_name": tool and scrubbed(tool)}
            return row._replace(
                details={name: value for name, value in answered.items() if value is not None}
            )
        return row

    def _words(self, content: Mapping[str, Any], omissions: Omissions) -> str:
        parts = content.get("parts")
        if not isinstance(parts, list):
            names = ("text", "result", "content")
            return next(filter(None, (text_in(content.get(name)) for name in names)), "")
        texts = []
        for part in parts:
            kind = _text(_object(part).get("content_type"))
            if kind in _FILES:
                omissions.add("file in a message", _FILES[kind], self._name)
                texts.append(f"[{_FILES[kind].split()[1]}]")
            else:
                texts.append(text_in(part))
        return "\n".join(filter(None, texts))

    def _attachments(self, fields: Mapping[str, Any], omissions: Omissions) -> Iterator[str]:
        attached = _object(fields.get("metadata")).get("attachments")
        for attachment in attached if isinstance(attached, list) else ():
            name = _object(attachment).get("name")
            omissions.add("file in a message", "an attachment", self._name)
            yield f"[file: {shown_title(scrubbed(name))}]" if isinstance(name, str) else "[file]"


def _thoughts(content: Mapping[str, Any]) -> list[str]:
    thoughts = content.get("thoughts")
    found = [
        "\n".join(filter(None, (text_in(thought.get("summary")), text_in(thought.get("content")))))
        for thought in (thoughts if isinstance(thoughts, list) else ())
        if isinstance(thought, dict)
    ]
    return [text for text in found if text.strip()]
