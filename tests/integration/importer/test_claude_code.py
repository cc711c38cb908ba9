"""Sessions of Claude Code become sessions: all of them, once, without touching the files."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chatlane.importer.exports.adoption import Destination
from chatlane.importer.exports.claude_code import NoDirectoryError, conversations, default_directory
from chatlane.importer.records import Omissions, Report
from chatlane.postgres.pool import Store
from tests.integration.importer.exports import (
    TO_ANN,
    TO_NOBODY,
    adopt,
    details,
    everything,
    reasons,
    rows,
    said,
    views,
    write_lines,
)

pytestmark = pytest.mark.integration

ID = "0f4a0b4c-1111-4222-8333-444455556666"
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}


def line(kind: str, content: object, minute: int, **more: object) -> dict[str, Any]:
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": f"msg_{minute}", "model": "model-7"}
    return {
        "type": kind,
        "message": message,
        "uuid": f"line-{minute}-{more.get('part', 0)}",
        "timestamp": f"2026-01-02T03:{minute:02}:00.500Z",
        "sessionId": ID,
        "cwd": "/srv/notes",
        **more,
    }


TALK = [
    {"type": "file-history-snapshot", "snapshot": {}},
    {"type": "summary", "summary": "  Notes \u202e\n in order ", "leafUuid": "x"},
    line("user", "<command-name>/init</command-name>", 1, isMeta=True),
    line("user", "List my notes", 2),
    line("assistant", [{"type": "thinking", "thinking": "I need ls", "signature": "s"}], 3),
    line("assistant", [{"type": "text", "text": "I look."}], 3, part=1),
    line("assistant", [CALL], 3, part=2),
    line(
        "user",
        [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [{"type": "text", "text": "a.md"}, {"type": "image", "source": {}}],
            }
        ],
        4,
    ),
    line("assistant", [{"type": "text", "text": "There is one."}], 5),
    line("user", "search in all of them", 6, isSidechain=True),
    {
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "uuid": "line-7",
        "timestamp": "2026-01-02T03:07:00Z",
    },
    line("user", "The person has one note.", 8, isCompactSummary=True),
    line(
        "user",
        [{"type": "text", "text": "And this?"}, {"type": "image", "source": {}}],
        9,
        cwd="/srv/later",
    ),
]
SAID = [
    ("user", "<command-name>/init</command-name>"),
    ("user", "List my notes"),
    ("assistant", "I look."),
    ("assistant", None),
    ("tool", "a.md\n[image]"),
    ("assistant", "There is one."),
    ("system", "Conversation compacted"),
    ("user", "The person has one note."),
    ("user", "And this?\n[image]"),
]


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "projects" / "-srv-notes" / f"{ID}.jsonl"
    write_lines(path, *TALK)
    return path


async def take(store: Store, path: Path, to: Destination = TO_NOBODY) -> Report:
    return await adopt(store, lambda omissions: conversations(path, omissions), to)


def move(path: Path, folder: Path) -> Path:
    """Move a file to another folder, and return the folder above it."""
    folder.mkdir(parents=True)
    path.rename(folder / path.name)
    return folder.parent


@pytest.mark.usefixtures("talk")
async def test_a_session_is_taken_over_with_all_its_shapes(store: Store, tmp_path: Path) -> None:
    """R17.5 to R17.15: title, roles, content, times, directory, model, read only."""
    report = await take(store, tmp_path / "projects", to=TO_ANN)
    (view,) = await views(store)

    assert await said(store, view.id) == SAID
    assert report.done == {"new sessions": 1, "messages": len(SAID)}
    assert (view.title, view.cwd, view.model) == ("Notes in order", "/srv/later", "model-7")
    assert (view.origin, view.platform, view.source_label) == (
        "claude_code",
        "claude_code",
        "Claude Code",
    )
    assert (view.read_only, view.end_reason, view.profile) == (True, "imported", "main")
    assert view.started_at == datetime(2026, 1, 2, 3, 1, 0, 500_000, UTC)
    assert (view.last_message_at, view.ended_at) == (
        datetime(2026, 1, 2, 3, 9, 0, 500_000, UTC),
        datetime(2026, 1, 2, 3, 9, 0, 500_000, UTC),
    )
    assert (view.message_count, view.user_message_count) == (len(SAID), 2)
    kept = await details(store, view.id)
    assert (kept[0], kept[1], kept[7]) == ({"observed": True}, {}, {"observed": True})
    assert kept[2] == {"reasoning": {"text": "I need ls", "agent": "main"}}
    assert kept[3]["tool_calls"] == [
        {
            "id": "toolu_1",
            "type": "function",
            "function": {"name": "Bash", "arguments": json.dumps({"command": "ls"})},
        }
    ]
    assert kept[4] == {"tool_call_id": "toolu_1", "tool_name": "Bash"}
    assert reasons(report) == {
        ("message", "of a helper agent (sidechain)"): 1,
        ("file in a message", "an image"): 2,
    }
    assert await rows(store, "SELECT owner FROM sessions") == [(TO_ANN.owner,)]


async def test_a_second_import_adds_what_is_new_and_doubles_nothing(
    store: Store, talk: Path, tmp_path: Path
) -> None:
    """R6.4, R16.3, R17.12: also a file that was moved, and a session that a person has named."""
    await take(store, tmp_path)
    async with store.transaction() as connection:
        await connection.execute("UPDATE sessions SET title = 'Named here', title_scope = 'x'")
    before = await everything(store)
    again = await take(store, tmp_path)
    assert (await everything(store), again.done) == (
        before,
        {"unchanged sessions": 1, "messages": 0},
    )

    more = [line("assistant", [{"type": "text", "text": "A heron."}], 10), '{"type": "user", "mess']
    write_lines(talk, *TALK, more[0], str(more[1]).encode())
    grown = await take(store, tmp_path)
    (view,) = await views(store)
    assert (grown.done["continued sessions"], grown.done["messages"]) == (1, 1)
    assert await said(store, view.id) == [*SAID, ("assistant", "A heron.")]
    assert reasons(grown)["line", "torn last line"] == 1
    assert grown.omitted.damaged() == []
    # A file that is moved is the same session (the reference makes another one).
    moved = await take(store, move(talk, tmp_path / "other" / "folder"))
    assert moved.done["unchanged sessions"] == 1


async def test_a_continued_session_goes_on_here_and_then_takes_nothing_more(
    store: Store, talk: Path, tmp_path: Path
) -> None:
    """R16.4."""
    await take(store, tmp_path, to=TO_NOBODY._replace(is_continued=True))
    (view,) = await views(store)
    assert (view.end_reason, view.read_only, view.model) == (None, False, None)
    async with store.transaction() as connection:
        await connection.execute(
            "INSERT INTO messages (session_id, seq, role, content, created_at) "
            "VALUES ($1, $2, 'assistant', 'here', now())",
            view.id,
            len(SAID) + 1,
        )
        await connection.execute("UPDATE sessions SET next_seq = next_seq + 1")
    write_lines(talk, *TALK, line("user", "there", 10))
    report = await take(store, tmp_path)
    assert await said(store, view.id) == [*SAID, ("assistant", "here")]
    assert reasons(report)["newer messages of a session", "it has gone on here since"] == 1


async def test_older_shapes_of_lines_are_read(store: Store, tmp_path: Path) -> None:
    """R10.2, R17.7 to R17.10, R17.13, V22: lists, objects, bare messages, other names of roles and times."""
    write_lines(
        tmp_path / "a" / "old.JSONL",
        {
            "messages": [
                {"role": "user", "content": "one"},
                {"message": {"role": " Assistant ", "content": {"text": "two"}}},
            ]
        },
        {
            "type": "human",
            "message": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        },
        {"role": "tool", "content": 7, "created_at": "1760000000"},
        {"role": "assistant", "content": {"content": "deep"}, "timestamp": 1760000001.5},
        {"role": "critic", "content": "unknown"},
        {"role": "user", "content": "  "},
        b"\n\xff\n",
        "[1, 2]",
        {"role": "user", "content": b"\xf0\x9f".decode("latin-1"), "timestamp": "never"},
    )
    write_lines(tmp_path / "a" / "empty.jsonl", {"type": "summary", "summary": "nothing"})
    report = await take(store, tmp_path)
    (view,) = await views(store)

    assert await said(store, view.id) == [
        ("user", "one"),
        ("assistant", "two"),
        ("user", "a\nb"),
        ("tool", "7"),
        ("assistant", "deep"),
        ("user", "\xf0\x9f"),
    ]
    at = datetime.fromtimestamp(1760000000, UTC)
    assert (view.started_at, view.title, view.shown_title) == (at, None, "one")
    assert reasons(report) == {
        ("line", "not a JSON object"): 2,
        ("line", "not said by user, assistant, system or tool"): 1,
        ("file", "has no message"): 1,
    }
    assert report.omitted.damaged() == ["a/old.JSONL"]
    await take(store, tmp_path)
    assert len(await views(store)) == 1


async def test_links_are_never_followed_and_one_bad_file_costs_no_other(
    store: Store, talk: Path, tmp_path: Path
) -> None:
    """R17.2 to R17.4."""
    outside = tmp_path / "outside" / "secret.jsonl"
    write_lines(outside, line("user", "of somebody else", 1))
    projects = tmp_path / "projects"
    (projects / "linked").symlink_to(outside.parent)
    (talk.parent / "linked.jsonl").symlink_to(outside)
    (talk.parent / "folder.jsonl").mkdir()
    write_lines(talk.parent / "deeper" / "below.jsonl", line("user", "too deep", 1))
    write_lines(talk.parent / "notes.txt", line("user", "no session", 1))
    write_lines(talk.parent / "deep.jsonl", "[" * 100_000, line("user", "after it", 1))
    write_lines(talk.parent / "a\x1b[31m.jsonl", line("user", "hostile \x00 \ud800 name", 1))
    report = await take(store, projects)

    texts = {text for view in await views(store) for _, text in await said(store, view.id)}
    assert {"after it", "hostile \ufffd \ufffd name", *(text for _, text in SAID)} == texts
    assert reasons(report)["file", "a symbolic link, or no file"] == 2
    assert reasons(report)["folder", "a symbolic link"] == 1
    with pytest.raises(NoDirectoryError):
        list(conversations(projects / "linked", Omissions()))


async def test_a_large_file_and_a_long_line_are_read_piece_by_piece(
    store: Store, tmp_path: Path
) -> None:
    """R17.3, V21: an import has no limit on files, because it keeps only some rows at once."""
    call = {**CALL, "input": {"file": "x" * 300_000}}
    write_lines(
        tmp_path / "a" / "large.jsonl",
        *(
            line("user", f"row {number} " + "y" * 10_000, 1, uuid=f"u{number}")
            for number in range(1200)
        ),
        line("assistant", [call], 2),
        b'{"role": "user", "content": "' + b"z" * (33 * 1024 * 1024) + b'"}\n',
        line("user", "the end", 3),
    )
    report = await take(store, tmp_path)
    (view,) = await views(store)
    assert view.message_count == 1202
    assert (await said(store, view.id))[-1] == ("user", "the end")
    assert reasons(report) == {
        ("line", "longer than 32 MiB"): 1,
        ("arguments of a tool call", "above 200,000 characters"): 1,
    }


def test_the_directory_of_the_program_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R17.1."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    assert default_directory() == tmp_path / "projects"
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".claude" / "projects"
