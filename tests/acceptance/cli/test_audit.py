"""Every command that changes something leaves lines in the audit: who ran it, and how it ended."""

import getpass
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import nats
import pytest
import typer.main

from chatlane.cli.commands import app
from chatlane_schemas.topology import subjects
from tests.support.eventually import eventually
from tests.support.service.installation import CONFIG, Installation

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.timeout(240)]

KEY: Final = '\n[erasure]\nkey = "an erasure key of at least 32 bytes"\n'

# What commands ask a router for is audited there: tests/integration/requests.
BY_ROUTERS: Final = {
    *("sessions title", "sessions reset", "sessions resume", "sessions fork", "sessions remove"),
    *("sessions list", "sessions show", "sessions tail", "sessions export"),
    *("sessions count", "sessions search", "sessions create", "sessions submit"),
    *("sessions update", "sessions label", "sessions folders", "sessions move"),
    *("sessions archive", "sessions unarchive", "sessions pin", "sessions unpin"),
    *("sessions protect", "sessions unprotect", "sessions mark", "sessions unmark"),
    *("sessions end", "sessions reopen", "sessions suspend", "sessions stop", "sessions prune"),
    *("transcripts removed", "transcripts restore"),
}
# Looking, servers of one's own, files, and what has its own audit: people who write.
CHANGES_NOTHING: Final = {
    *("demo", "dev", "emulate", "chat", "check", "router", "echo-worker", "explain", "smoke"),
    *("adapter capabilities", "adapter delete-files", "conform adapter", "conform worker"),
    *("adapter discord", "adapter mail", "adapter matrix", "adapter slack"),
    *("adapter matrix-appservice", "adapter matrix-registration"),
    *("adapter telegram", "adapter whatsapp"),
    *("bot backup", "bot restore", "bot worker"),
    *("synadia offer", "synadia worker"),
    *("admin verify", "admin nats-config", "admin nats-keys"),
    *("dead-letters list", "people erasures", "people erasure-list"),
}
HERE: Final = {
    *("admin migrate", "admin grants", "admin apply", "admin retain"),
    *("dead-letters show", "dead-letters retry", "dead-letters drop"),
    *("people erase", "people export", "people replay-erasures"),
    *("people show", "people hand-over", "people split", "people split-chat"),
}
# tests/integration/importer runs those that import. All write one line, and test_command.py looks at
# one. The tests of the console run the erasure of people who asked for it.
ELSEWHERE: Final = {
    "people erase-requested",
    *("import hermes", "import claude-code", "import chatgpt", "import open-webui"),
}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:  # noqa: ANN401 - of typer's own click
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name))


def spans_of(shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the spans of ids that people have; the name of an identity may be none."""
    return [one for one in shown["ids"] if one["form"] != shown["identity"]]


def test_every_command_is_said_to_change_something_or_nothing() -> None:
    known = BY_ROUTERS | CHANGES_NOTHING | HERE | ELSEWHERE
    assert set(commands(typer.main.get_command(app))) == known


@pytest.mark.slow
async def test_commands_that_change_something_leave_lines(
    bare: Installation, empty_database_url: str
) -> None:
    config = bare.directory / "chatlane.toml"
    config.write_text(CONFIG + KEY)
    await bare.done("admin", "migrate")
    await bare.done("admin", "grants", "--apply")
    await bare.done("admin", "apply")
    async with bare.running("router"):
        await eventually(bare.is_ready, timedelta(seconds=60))
        client = await nats.connect(bare.nats_url)
        for _ in range(2):
            subject = subjects.inbound("terminal", "local", subjects.chat_token("ann"))
            await client.jetstream().publish(subject, b"not json")

        async def letters() -> list[str]:
            listed = await bare.done("dead-letters", "list", "--json")
            found = [json.loads(line)["id"] for line in listed.splitlines()]
            return found if len(found) == 2 else []

        first, second = await eventually(letters, timedelta(seconds=60))
        await client.close()
        await bare.done("dead-letters", "show", first)
        await bare.done("dead-letters", "drop", first)
        await bare.done("dead-letters", "retry", second, "--out-of-order")
        await bare.done("people", "export", "terminal/local/ann", "-o", str(Path("ann.jsonl")))
        await bare.done("people", "hand-over", "terminal/local/ann", "--yes")
        shown = json.loads(await bare.done("people", "show", "terminal/local/ann", "--json"))
        assert [one["form"] for one in spans_of(shown)] == ["ann"]
        before = await bare.done(
            "people", "show", "terminal/local/ann", "--at", "2026-01-01", "--json"
        )
        assert json.loads(before)["identity"] == "ann" != shown["identity"]
        await bare.done("people", "split", "terminal/local/ann", "--yes")
        refused = await bare.run("people", "split-chat", "terminal/local/-100", "--yes")
        assert "no other chat got this id" in refused.err
        await bare.done("people", "erase", "terminal/local/ann", "--yes")
        await bare.done("people", "replay-erasures")
        await bare.done("admin", "retain")
    database = await asyncpg.connect(empty_database_url)
    try:
        lines = await database.fetch(
            "SELECT action, outcome, actor, db_role, detail::text FROM audit"
            " WHERE actor IS NOT NULL ORDER BY id"
        )
    finally:
        await database.close()
    by = f"os:{getpass.getuser()}"
    assert {line["actor"] for line in lines} == {by}
    assert all(line["db_role"] for line in lines)
    ended = [(line["action"], line["outcome"]) for line in lines if line["outcome"] != "begun"]
    assert ended == [
        ("admin migrate", "done"),
        ("admin grants", "done"),
        ("admin apply", "done"),
        ("dead_letter_shown", "done"),
        ("dead_letter_dropped", "done"),
        ("dead_letter_retried", "done"),
        ("people export", "done"),
        ("people hand-over", "changed"),
        ("people show", "done"),
        ("people show", "done"),
        ("people split", "changed"),
        ("people split-chat", "unchanged"),
        ("people erase", "done"),
        ("people replay-erasures", "done"),
        ("admin retain", "done"),
    ]
    # Whom it was about is what was to be forgotten.
    assert not any("ann" in line["detail"] for line in lines if "erase" in line["action"])


async def test_a_command_that_fails_leaves_how_it_failed(
    bare: Installation, empty_database_url: str
) -> None:
    """There are no streams yet."""
    (bare.directory / "chatlane.toml").write_text(CONFIG + KEY)
    await bare.done("admin", "migrate")
    await bare.done("admin", "grants", "--apply")
    ended = await bare.run("people", "erase", "telegram/bot/1087968824", "--yes")
    assert ended.code == 1
    assert await bare.done("people", "erasures", "--json") == ""
    database = await asyncpg.connect(empty_database_url)
    try:
        lines = await database.fetch(
            "SELECT outcome, detail FROM audit WHERE action = 'people erase' ORDER BY id"
        )
    finally:
        await database.close()
    assert [line["outcome"] for line in lines] == ["begun", "NotErasedError"]
    assert not any("1087968824" in line["detail"] for line in lines)


async def test_a_migration_that_fails_leaves_that_it_was_begun_and_how_it_failed(
    bare: Installation, empty_database_url: str
) -> None:
    await bare.done("admin", "migrate")
    database = await asyncpg.connect(empty_database_url)
    try:
        # As if it had never been: its table is there, so it fails.
        await database.execute("DELETE FROM schema_migrations WHERE version = '0003'")
        ended = await bare.run("admin", "migrate")
        assert ended.code == 1
        lines = await database.fetch(
            "SELECT outcome FROM audit WHERE action = 'admin migrate' ORDER BY id"
        )
    finally:
        await database.close()
    assert [line["outcome"] for line in lines] == ["begun", "done", "begun", "MigrationError"]
