"""`chatlane import` as an operator runs it."""

import json
import os
from pathlib import Path

import asyncpg
import pytest

from tests.integration.importer.conftest import OldHome
from tests.integration.importer.exports import write_lines
from tests.support.servers.databases import login_of
from tests.support.service.forked_command import start_forked

pytestmark = pytest.mark.integration

CONFIG = "[platforms.telegram.accounts.bot]\n[platforms.slack.accounts.a]\n[platforms.slack.accounts.b]\n"


async def run(
    directory: Path, database_url: str, *arguments: str, system: str = "hermes"
) -> tuple[int, str, str]:
    """Run it with the rights of routers, and without a server of NATS."""
    (directory / "chatlane.toml").write_text(CONFIG)
    process = await start_forked(
        ["import", system, *arguments],
        directory=directory,
        environment={
            "PATH": os.environ["PATH"],
            "CHATLANE_POSTGRES__DSN": await login_of(database_url),
            "CHATLANE_NATS__URL": "nats://nowhere.invalid:4222",
            "NO_COLOR": "1",
        },
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_the_report_says_what_was_taken_and_what_not(
    home: OldHome, database_url: str, tmp_path: Path
) -> None:
    code, out, err = await run(tmp_path, database_url, str(home.path))
    assert code == 0, err
    assert "new sessions" in out
    assert "say which account it is: --account slack=NAME" in out
    assert "chatlane.toml declares no platform whatsapp" in out
    assert home.id("whatsapp") in out
    assert "sessions" in err
    assert "noon" not in out + err


async def test_json_is_for_programs(home: OldHome, database_url: str, tmp_path: Path) -> None:
    arguments = (str(home.path), "--json", "--account", "slack=b")
    code, out, err = await run(tmp_path, database_url, *arguments)
    assert code == 0, err
    first = json.loads(out)
    assert first["imported"]["new sessions"] > 5
    assert not [one for one in first["left_out"] if "slack" in one["reason"]]
    code, out, _ = await run(tmp_path, database_url, *arguments)
    assert "new sessions" not in json.loads(out)["imported"]
    database = await asyncpg.connect(database_url)
    try:
        lines = await database.fetch(
            "SELECT outcome, detail FROM audit WHERE action = 'import' ORDER BY id"
        )
    finally:
        await database.close()
    assert [line["outcome"] for line in lines] == ["begun", "done", "begun", "done"]
    assert json.loads(lines[1]["detail"])["imported"] == first["imported"]


async def test_wrong_options_are_told(database_url: str, tmp_path: Path) -> None:
    code, _, err = await run(tmp_path, database_url, str(tmp_path), "--account", "slack")
    assert (code, "PLATFORM=ACCOUNT" in err) == (2, True)
    code, _, err = await run(tmp_path, database_url, str(tmp_path), "--timezone", "Nowhere")
    assert (code, "not a time zone" in err) == (2, True)
    code, _, err = await run(tmp_path, database_url, str(tmp_path), "--account", "telegram=bto")
    assert (code, "add [platforms.telegram.accounts.bto]" in err) == (2, True)
    (tmp_path / "empty").mkdir()
    code, _, err = await run(tmp_path, database_url, str(tmp_path / "empty"))
    assert (code, "there is neither" in err) == (1, True)


async def test_a_damaged_database_is_an_error_after_the_rest_is_imported(
    home: OldHome, database_url: str, tmp_path: Path
) -> None:
    (home.path / "state.db").write_bytes(b"not a database" * 1000)
    (home.path / "state.db-wal").unlink(missing_ok=True)
    code, out, err = await run(tmp_path, database_url, str(home.path))
    assert code == 1
    assert "new sessions" in out
    assert "chatlane: damaged: state.db; what was readable is imported" in err


async def test_an_import_of_nothing_is_an_error(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    index = {"agent:main:matrix:dm:1": {"session_id": "a", "created_at": "2026-01-01T00:00:00"}}
    (tmp_path / "old" / "sessions.json").write_text(json.dumps(index))
    code, _, err = await run(tmp_path, database_url, str(tmp_path / "old"))
    assert (code, "nothing was imported" in err) == (1, True)


async def test_sessions_of_claude_code_are_imported(database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "projects" / "a" / "b.jsonl"
    write_lines(path, {"role": "user", "content": "words of a person"}, "{torn in the middle")
    arguments = (str(tmp_path / "projects"), "--person", "telegram/bot/701", "--json")
    code, out, err = await run(tmp_path, database_url, *arguments, system="claude-code")
    assert (code, "damaged: a/b.jsonl" in err) == (1, True), err
    report = json.loads(out)
    assert report["imported"] == {"messages": 1, "new sessions": 1}
    assert [(one["what"], one["examples"]) for one in report["left_out"]] == [
        ("line", ["a/b.jsonl line 2"])
    ]
    assert "words" not in out + err

    wrong = await run(
        tmp_path, database_url, str(tmp_path), "--profile", "nobody", system="claude-code"
    )
    assert wrong[0] == 2, wrong


async def test_exports_are_imported(database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    chat = {"id": "a", "messages": [{"role": "user", "content": "words of a person"}]}
    path.write_text(json.dumps([chat]))
    code, out, err = await run(tmp_path, database_url, str(path), system="open-webui")
    assert (code, "1 new sessions" in out, "words" in out + err) == (0, True, False), err

    code, out, err = await run(tmp_path, database_url, str(path), system="chatgpt")
    assert (code, "no conversation of ChatGPT" in out) == (1, True), err
    assert "chatlane: damaged: chats.json" in err
