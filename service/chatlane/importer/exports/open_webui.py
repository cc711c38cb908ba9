"""Read the export of Open WebUI: a JSON file with all chats, or with one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from chatlane.importer.exports.conversation import (
    EPOCH,
    Conversation,
    ForeignRow,
    NoConversationError,
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

SOURCE: Final = "open_webui"

_MEMBER: Final = re.compile(r"[^/]+\.json")
_ROLES: Final = frozenset(Role)
_NO_TITLE: Final = "new chat"
_THOUGHT_BEGINS: Final = '<details type="reasoning"'
_THOUGHT_ENDS: Final = "</details>"
_SUMMARY_ENDS: Final = "</summary>"


def conversations(path: Path, omissions: Omissions) -> Iterator[Conversation]:
    """Yield the chats of an export.

    Raises:
        NoExportError: There is no such file.
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
    chat = fields.get("chat")
    chat = chat if isinstance(chat, dict) else fields
    nodes, tip = _nodes(chat)
    chat_id = fields.get("id") or chat.get("id")
    if not isinstance(chat_id, str):
        raise NoConversationError("has no id")
    began_at = time_of(fields.get("created_at"), chat.get("timestamp"))
    title = title_of(fields.get("title"), chat.get("title"))
    branch = _Branch(nodes, branch_to(nodes, tip), item.place)
    return Conversation(
        source=SOURCE,
        id=scrubbed(chat_id),
        name=item.place,
        began_at=began_at or EPOCH,
        file_at=began_at or EPOCH,
        rows=branch.rows,
        title=None if title is None or title.casefold() == _NO_TITLE else title,
        model=branch.model(),
        is_archived=fields.get("archived") is True,
        is_pinned=fields.get("pinned") is True,
        keys=tuple(map(scrubbed, nodes)),
    )


def _nodes(chat: Mapping[str, Any]) -> tuple[dict[str, Node], object]:
    """Return the messages of a chat by their ids, and the id of the last one of its branch."""
    history = chat.get("history")
    messages = history.get("messages") if isinstance(history, dict) else None
    if isinstance(history, dict) and isinstance(messages, dict):
        nodes = {
            node_id: _node(fields, fields.get("parentId"))
            for node_id, fields in messages.items()
            if isinstance(fields, dict)
        }
        return nodes, history.get("currentId")
    listed = chat.get("messages")
    if not isinstance(listed, list):
        raise NoConversationError("no chat of Open WebUI")
    # The oldest releases kept no tree.
    nodes, before = {}, None
    for place, fields in enumerate(listed):
        if isinstance(fields, dict):
            node_id = str(fields.get("id") or place)
            nodes[node_id] = _node(fields, before)
            before = node_id
    return nodes, before


def _node(fields: Mapping[str, Any], parent: object) -> Node:
    return Node(
        parent=parent if isinstance(parent, str) else None,
        fields=fields,
        at=time_of(fields.get("timestamp")),
    )


class _Branch:
    """The current branch of a chat."""

    def __init__(self, nodes: Mapping[str, Node], path: list[str], name: str) -> None:
        self._nodes = nodes
        self._path = path
        self._name = name

    def model(self) -> str | None:
        """Return the model that answered last."""
        for node_id in reversed(self._path):
            model = (self._nodes[node_id].fields or {}).get("model")
            if isinstance(model, str) and model:
                return scrubbed(model)[:256]
        return None

    def rows(self, omissions: Omissions) -> Iterator[ForeignRow]:
        """Yield the rows of the branch."""
        for node_id in self._path:
            node = self._nodes[node_id]
            if node.fields is not None:
                yield from self._row(node_id, node, node.fields, omissions)
        current = set(self._path)
        others = [
            node
            for node_id, node in self._nodes.items()
            if node_id not in current and text_in((node.fields or {}).get("content")).strip()
        ]
        if others:
            omissions.add("message", "on another branch", self._name, len(others))

    def _row(
        self, node_id: str, node: Node, fields: Mapping[str, Any], omissions: Omissions
    ) -> Iterator[ForeignRow]:
        role = fields.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            omissions.add("message", "not said by user, assistant, system or tool", self._name)
            return
        text, thought = text_in(fields.get("content")), ""
        if role == Role.ASSISTANT:
            text, thought = _parted(text)
            text = text if text.strip() else text_in(fields.get("error"))
        text = "\n".join(filter(None, (text, *self._files(fields, omissions))))
        if not text.strip():
            if thought:
                omissions.add("reasoning of a message", "no answer follows it", self._name)
            return
        yield ForeignRow(
            key=scrubbed(node_id),
            role=role,
            content=text,
            written_at=node.at,
            thought=thought_of(thought, omissions, self._name),
        )

    def _files(self, fields: Mapping[str, Any], omissions: Omissions) -> Iterator[str]:
        files = fields.get("files")
        for file in files if isinstance(files, list) else ():
            name = file.get("name") if isinstance(file, dict) else None
            omissions.add("file in a message", "an attachment", self._name)
            yield f"[file: {shown_title(scrubbed(name))}]" if isinstance(name, str) else "[file]"


def _parted(text: str) -> tuple[str, str]:
    """Return the words of an answer, and the reasoning that stands between them as HTML."""
    words, thoughts, place = [], [], 0
    while (begin := text.find(_THOUGHT_BEGINS, place)) >= 0:
        end = text.find(_THOUGHT_ENDS, begin)
        if end < 0:
            break
        words.append(text[place:begin])
        inner = text[begin:end]
        _, _, thought = inner.partition(_SUMMARY_ENDS if _SUMMARY_ENDS in inner else ">")
        quoted = (line.removeprefix(">").removeprefix(" ") for line in thought.strip().splitlines())
        thoughts.append("\n".join(quoted))
        place = end + len(_THOUGHT_ENDS)
    words.append(text[place:])
    return "".join(words).strip(), "\n\n".join(filter(None, thoughts))
