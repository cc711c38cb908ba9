"""Files of other programs with any value in any place are read or reported, and raise nothing."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.importer.exports import chatgpt, claude_code, open_webui
from chatlane.importer.exports.conversation import Conversation
from chatlane.importer.exports.json_items import NoExportError
from chatlane.importer.exports.spool import open_spool
from chatlane.importer.records import Omissions

Read = Callable[[Path, Omissions], Iterable[Conversation]]

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["user", "assistant", "tool", "text", "tool_use", "thoughts", "\ud800\x00"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "content", "type", "parts", "id", "role", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)

CLAUDE_LINE = {
    "type": "assistant",
    "uuid": "u",
    "sessionId": "s",
    "cwd": "/srv",
    "timestamp": "2026-01-01T00:00:00Z",
    "isSidechain": False,
    "isMeta": False,
    "summary": "title",
    "messages": None,
    "message": {
        "id": "m",
        "role": "assistant",
        "model": "model-7",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "id": "t", "name": "Bash", "input": {}},
            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]},
            {"type": "text", "text": "words"},
        ],
    },
}
CHATGPT_MESSAGE = {
    "author": {"role": "assistant", "name": "python"},
    "create_time": 1.5e9,
    "recipient": "python",
    "content": {"content_type": "text", "parts": ["a", {"content_type": "x", "text": "b"}]},
    "metadata": {"model_slug": "gpt", "attachments": [{"name": "a.pdf"}]},
}
THOUGHTS = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "c"}]}
CHATGPT = {
    "id": "c",
    "title": "Trip",
    "create_time": 1.5e9,
    "update_time": 1.5e9,
    "is_archived": True,
    "is_starred": True,
    "default_model_slug": "gpt",
    "current_node": "c",
    "mapping": {
        "a": {"parent": None, "message": {**CHATGPT_MESSAGE, "content": THOUGHTS}},
        "b": {"parent": "a", "message": CHATGPT_MESSAGE},
        "c": {"parent": "b", "message": {**CHATGPT_MESSAGE, "author": {"role": "tool"}}},
    },
}
OPEN_WEBUI = {
    "id": "w",
    "title": "Trip",
    "created_at": 1.5e9,
    "archived": True,
    "chat": {
        "title": "Trip",
        "timestamp": 1.5e12,
        "history": {
            "currentId": "2",
            "messages": {
                "1": {"parentId": None, "role": "user", "content": "a", "timestamp": 1.5e9},
                "2": {
                    "parentId": "1",
                    "role": "assistant",
                    "content": '<details type="reasoning"></details>',
                    "error": {"content": "no"},
                    "files": [{"name": "a"}],
                    "model": "llama",
                },
            },
        },
    },
}


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a value."""
    found = [path] if path else []
    members: Iterable[tuple[Any, object]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for name, inner in members:
        found += places(inner, (*path, name))
    return found


def changed(value: Any, path: tuple[Any, ...], new: object) -> Any:  # noqa: ANN401 - JSON
    """Return a copy of a value with another value in one place."""
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = changed(value[path[0]], path[1:], new)
    return copied


def read_whole(read: Read, path: Path) -> None:
    omissions = Omissions()
    for conversation in read(path, omissions):
        with open_spool(conversation, omissions) as spool:
            for part in spool.parts():
                for row in part:
                    details = json.dumps(row.details, ensure_ascii=False)
                    assert "\\u0000" not in details
                    check_storable(details, row.content, row.thought)
        check_storable(conversation.title, conversation.cwd, conversation.model, conversation.id)


def check_storable(*texts: str | None) -> None:
    """Check that Postgres stores these texts."""
    for text in texts:
        assert b"\x00" not in (text or "").encode()


@pytest.mark.parametrize(
    ("read", "name", "original"),
    [
        (claude_code.conversations, "folder/session.jsonl", CLAUDE_LINE),
        (chatgpt.conversations, "conversations.json", CHATGPT),
        (open_webui.conversations, "chats.json", OPEN_WEBUI),
    ],
)
@given(data=st.data())
def test_any_value_in_any_place_is_read_or_reported(
    read: Read, name: str, original: dict[str, Any], data: st.DataObject
) -> None:
    value = original
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places(value)))
        value = changed(value, place, data.draw(ANYTHING))
    with TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value) + "\n")
        read_whole(read, path if name.endswith(".json") else Path(directory))


@pytest.mark.parametrize("reader", [chatgpt, open_webui])
def test_an_empty_file_is_no_export(reader: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "export.json").touch()
    with pytest.raises(NoExportError, match="is empty"):
        list(reader.conversations(tmp_path / "export.json", Omissions()))
