"""Exports of ChatGPT and Open WebUI become sessions: the shown branch, once, in bounded memory."""

import json
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chatlane.importer.exports import chatgpt, json_items, open_webui
from chatlane.importer.records import Omissions, Report
from chatlane.postgres.pool import Store
from tests.integration.importer.exports import (
    TO_ANN,
    adopt,
    details,
    everything,
    reasons,
    rows,
    said,
    views,
)

pytestmark = pytest.mark.integration

BEGAN = 1_760_000_000


class Tree:
    """A conversation of ChatGPT that grows message by message."""

    def __init__(self, conversation_id: str = "c-1", **fields: object) -> None:
        self.fields: dict[str, Any] = {
            "conversation_id": conversation_id,
            "title": "Trip",
            "create_time": BEGAN,
            "mapping": {"root": {"id": "root", "message": None, "parent": None, "children": []}},
            "current_node": "root",
            **fields,
        }

    def say(self, node_id: str, role: str, *, after: str | None = None, **more: Any) -> "Tree":  # noqa: ANN401
        """Add a message; `text` is short for its content."""
        content = more.pop("content", None) or {
            "content_type": "text",
            "parts": [more.pop("text", node_id)],
        }
        name = more.pop("name", None)
        self.fields["mapping"][node_id] = {
            "id": node_id,
            "parent": after or self.fields["current_node"],
            "message": {
                "id": node_id,
                "author": {"role": role, "name": name},
                "create_time": BEGAN + len(self.fields["mapping"]),
                "content": content,
                "recipient": more.pop("recipient", "all"),
                "metadata": more,
            },
        }
        self.fields["current_node"] = node_id
        return self


def trip() -> Tree:
    tree = Tree(is_archived=True, is_starred=True)
    tree.say("hidden", "system", text="", is_visually_hidden_from_conversation=True)
    context = {"content_type": "user_editable_context", "user_profile": "I am Ann"}
    tree.say("about", "user", content=context)
    tree.say("first try", "user", text="Where to?")
    tree.say("first answer", "assistant", text="Nowhere")
    picture = {
        "content_type": "multimodal_text",
        "parts": ["Where to go?", {"content_type": "image_asset_pointer", "asset_pointer": "x"}],
    }
    attached = [{"name": "plan\u202e\x1b.pdf"}]
    tree.say("asked", "user", after="about", content=picture, attachments=attached)
    thoughts = [{"summary": "Searching", "content": "I need a map"}]
    tree.say("thought", "assistant", content={"content_type": "thoughts", "thoughts": thoughts})
    recap = {"content_type": "reasoning_recap", "content": "Thought for 2s"}
    tree.say("recap", "assistant", content=recap)
    code = {"content_type": "code", "language": "python", "text": "find('Rome')"}
    tree.say("call", "assistant", content=code, recipient="python", model_slug="gpt-x")
    output = {"content_type": "execution_output", "text": "41.9, 12.5"}
    tree.say("output", "tool", content=output, name="python")
    tree.say("answer", "assistant", text="To Rome", model_slug="gpt-x")
    return tree


SAID = [
    ("user", "Where to go?\n[image]\n[file: plan .pdf]"),
    ("assistant", None),
    ("tool", "41.9, 12.5"),
    ("assistant", "To Rome"),
]


def write(path: Path, *items: object) -> Path:
    given = [item.fields if isinstance(item, Tree) else item for item in items]
    path.write_text(json.dumps(given, indent=1))
    return path


async def take(
    store: Store, path: Path, read: Callable[..., Iterator[Any]] = chatgpt.conversations
) -> Report:
    return await adopt(store, lambda omissions: read(path, omissions), TO_ANN)


async def test_the_branch_of_chatgpt_that_was_shown_becomes_the_session(
    store: Store, tmp_path: Path
) -> None:
    report = await take(store, write(tmp_path / "conversations.json", trip()))
    (view,) = await views(store)

    assert await said(store, view.id) == SAID
    assert (view.title, view.model, view.origin, view.source_label) == (
        "Trip",
        "gpt-x",
        "chatgpt",
        "ChatGPT",
    )
    assert (view.read_only, view.pinned, view.archived_at is None) == (True, True, False)
    assert view.started_at == datetime.fromtimestamp(BEGAN + 5, UTC)
    _, call, output, answer = await details(store, view.id)
    assert call["tool_calls"][0] == {
        "id": "call",
        "type": "function",
        "function": {"name": "python", "arguments": json.dumps({"input": "find('Rome')"})},
    }
    assert call["reasoning"] == {"text": "Searching\nI need a map", "agent": "main"}
    assert output == {"tool_call_id": "call", "tool_name": "python"}
    assert answer == {}
    assert reasons(report) == {
        ("message", "custom instructions"): 1,
        ("message", "on another branch"): 2,
        ("file in a message", "an image"): 1,
        ("file in a message", "an attachment"): 1,
    }


async def test_a_later_export_adds_what_is_new_also_on_another_branch(
    store: Store, tmp_path: Path
) -> None:
    path, tree = tmp_path / "conversations.json", trip()
    await take(store, write(path, tree, Tree("c-2").say("hi", "user")))
    before = await everything(store)
    again = await take(store, path)
    assert (await everything(store), again.done["unchanged sessions"]) == (before, 2)

    tree.say("thanks", "user").say("welcome", "assistant")
    grown = await take(store, write(path, tree))
    assert (grown.done["continued sessions"], grown.done["messages"]) == (1, 2)

    # The person goes back to the question; the old branch stays as it is.
    tree.say("again", "user", after="answer").say("other", "assistant")
    parted = await take(store, write(path, tree))
    assert (parted.done["new sessions"], reasons(parted)["message", "on another branch"]) == (1, 4)
    tree.say("more", "user")
    await take(store, write(path, tree))
    links = "SELECT id, parent_id FROM sessions WHERE link_kind = 'branch'"
    ((branch, parent),) = await rows(store, links)
    assert (await said(store, branch))[-3:] == [
        ("user", "again"),
        ("assistant", "other"),
        ("user", "more"),
    ]
    assert await said(store, parent) == [*SAID, ("user", "thanks"), ("assistant", "welcome")]
    assert len(await views(store)) == 3


async def test_an_archive_is_read_and_damage_costs_nothing_else(
    store: Store, tmp_path: Path
) -> None:
    loop = Tree("loop").say("a", "user").say("b", "assistant")
    loop.fields["mapping"]["a"]["parent"] = "b"
    lost = Tree("lost", current_node=None, title="New chat").say("x", "user").say("y", "assistant")
    lost.fields["current_node"] = "gone"
    deep = '{"mapping": ' + "[" * 100_000 + "]" * 100_000 + "}"
    quoted = Tree("quoted").say("q", "user", text='{"\\" [}] \ud800 \x00')
    given = [json.dumps(each.fields) for each in (loop, lost, quoted)]
    text = "[" + ",\n".join([*given, deep, '{"no": tree}', '{"id": "x"}', '{"mapping": {}}'])
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("user.json", "{}")
        archive.writestr("conversations-000.json", text + "]")
        archive.writestr("conversations-001.json", "[" + json.dumps(trip().fields)[:-1])
    report = await take(store, tmp_path / "export.zip")

    told = [(view.title, await said(store, view.id)) for view in await views(store)]
    assert sorted(told, key=str) == [
        ("Trip", [("user", "a"), ("assistant", "b")]),
        ("Trip", [("user", '{"\\" [}] \ufffd \ufffd')]),
        (None, [("user", "x"), ("assistant", "y")]),
    ]
    assert report.done["new sessions"] == 3
    assert reasons(report) == {
        ("item", "not JSON"): 2,
        ("item", "no conversation of ChatGPT"): 1,
        ("item", "has no id"): 1,
        ("item", "has no end"): 1,
    }
    assert report.omitted.damaged() == [
        "conversations-000.json",
        "export.zip",
        "conversations-001.json",
    ]
    (tmp_path / "bad.zip").write_bytes((tmp_path / "export.zip").read_bytes()[:-30])
    bad = await take(store, tmp_path / "bad.zip")
    assert not bad.done["new sessions"]
    with pytest.raises(json_items.NoExportError):
        list(chatgpt.conversations(tmp_path / "none.json", Omissions()))


def chat(**fields: object) -> dict[str, Any]:
    reasoning = (
        '<details type="reasoning" done="true" duration="3">\n<summary>Thought</summary>\n'
        "> I need a map\n> of Italy\n</details>\nTo Rome"
    )
    messages = {
        "1": {"id": "1", "parentId": None, "role": "user", "content": "Where?", "timestamp": BEGAN},
        "2": {"id": "2", "parentId": "1", "role": "assistant", "content": "Nowhere"},
        "3": {
            "id": "3",
            "parentId": "1",
            "role": "assistant",
            "content": reasoning,
            "model": "llama",
            "timestamp": BEGAN + 5,
        },
        "4": {
            "id": "4",
            "parentId": "3",
            "role": "user",
            "content": "See",
            "files": [{"name": "a.md"}],
        },
        "5": {
            "id": "5",
            "parentId": "4",
            "role": "assistant",
            "content": "",
            "error": {"content": "No"},
        },
    }
    return {
        "id": "w-1",
        "title": "Trip",
        "created_at": BEGAN,
        "archived": True,
        "pinned": True,
        "chat": {"history": {"messages": messages, "currentId": "5"}, "timestamp": BEGAN * 1000},
        **fields,
    }


async def test_a_chat_of_open_webui_becomes_a_session(store: Store, tmp_path: Path) -> None:
    old = {
        "id": "w-0",
        "title": "New Chat",
        "chat": {
            "timestamp": (BEGAN - 60) * 1000,
            "messages": [
                {"role": "user", "content": "old"},
                {"role": "assistant", "content": "one"},
            ],
        },
    }
    path = write(tmp_path / "export.json", chat(), old, {"chat": {}, "id": "x"})
    report = await take(store, path, open_webui.conversations)
    first, view = await views(store)

    assert await said(store, first.id) == [("user", "old"), ("assistant", "one")]
    assert (first.title, first.started_at) == (None, datetime.fromtimestamp(BEGAN - 60, UTC))
    assert await said(store, view.id) == [
        ("user", "Where?"),
        ("assistant", "To Rome"),
        ("user", "See\n[file: a.md]"),
        ("assistant", "No"),
    ]
    assert (view.title, view.model, view.source_label) == ("Trip", "llama", "Open WebUI")
    assert (view.pinned, view.archived_at is None, view.read_only) == (True, False, True)
    assert (await details(store, view.id))[1] == {
        "reasoning": {"text": "I need a map\nof Italy", "agent": "main"}
    }
    assert reasons(report) == {
        ("message", "on another branch"): 1,
        ("file in a message", "an attachment"): 1,
        ("item", "no chat of Open WebUI"): 1,
    }
    before = await everything(store)
    await take(store, path, open_webui.conversations)
    assert await everything(store) == before


def test_items_end_where_they_end_however_the_text_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [{"a": "\\"}, {"b": '"}{', "ü": {"c": []}}, {}, {"d": "\\\\\\" * 9}]
    path = tmp_path / "items.json"
    path.write_text("\ufeff" + json.dumps(given, ensure_ascii=False), encoding="utf-8")
    for size in (1, 2, 3, 7, 1000):
        monkeypatch.setattr(json_items, "_CHUNK_BYTES", size)
        omissions = Omissions()
        found = json_items.items_of(path, chatgpt._MEMBER, omissions)
        assert [item.fields for item in found] == given
        assert not omissions.counts
    monkeypatch.setattr(json_items, "MAX_ITEM_CHARACTERS", 20)
    omissions = Omissions()
    short = list(json_items.items_of(path, chatgpt._MEMBER, omissions))
    assert [item.fields for item in short] == [given[0], given[2]]
    assert [omission.reason for omission in omissions.counts] == ["longer than 64 MiB"]
