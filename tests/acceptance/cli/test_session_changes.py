"""Changes of sessions from the command line, against a router and a worker."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chatlane.cli.commands import app
from chatlane.cli.sessions.changes import CHANGES
from tests.integration.importer.exports import write_lines
from tests.support.eventually import eventually
from tests.support.logs import restored_logging
from tests.support.service.installation import Installation

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.timeout(180)]

ANN = "agent:main:terminal:local:dm:ann"
AS_ANN = ("--person", "terminal/local/ann")


class Commands:
    """`chatlane sessions` in this process, because a process for each command takes long."""

    def __init__(self, installation: Installation) -> None:
        self._config = str(installation.directory / "chatlane.toml")
        self._environment = {"CHATLANE_NATS__URL": installation.nats_url, "NO_COLOR": "1"}

    async def run(self, verb: str, *arguments: str, typed: str = "") -> Result:
        words = ["sessions", verb, "--config", self._config, *arguments]
        with restored_logging():
            return await asyncio.to_thread(
                lambda: CliRunner().invoke(app, words, env=self._environment, input=typed)
            )

    async def done(self, verb: str, *arguments: str, typed: str = "") -> str:
        ended = await self.run(verb, *arguments, typed=typed)
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    async def objects(self, verb: str, *arguments: str) -> list[dict[str, Any]]:
        said = await self.done(verb, *arguments, "--json")
        return [json.loads(line) for line in said.splitlines()]


@pytest.fixture
async def commands(serving: Installation) -> Commands:
    return Commands(serving)


def picked(view: dict[str, Any]) -> dict[str, Any]:
    """Return what the changes of the table set."""
    return {
        "archived": "archived_at" in view,
        "pinned": view["pinned"],
        "read only": view["read_only"],
        "ended": view.get("end_reason"),
        "suspended": view["is_suspended"],
        "marked": "resume_pending" in view,
    }


AT_FIRST = {
    "archived": False,
    "pinned": False,
    "read only": False,
    "ended": None,
    "suspended": False,
    "marked": False,
}
STEPS: tuple[tuple[str, dict[str, object]], ...] = (
    ("archive", {"archived": True}),
    ("unarchive", {}),
    ("pin", {"pinned": True}),
    ("unpin", {}),
    ("mark", {"marked": True}),
    ("unmark", {}),
    ("suspend", {"suspended": True}),
    ("reopen", {}),
    ("end", {"ended": "requested"}),
    ("protect", {"ended": "requested", "read only": True}),
    ("unprotect", {"ended": "requested"}),
)


async def test_a_session_is_opened_changed_and_ended(commands: Commands) -> None:
    opened = await commands.done("create", "--cwd", "/srv/notes", "--settings", '{"a": {"b": 1}}')
    session = opened.strip()
    short = session[-8:]

    assert {step for step, _ in STEPS} == {change.name for change in CHANGES}
    for step, differs in STEPS:
        (view,) = await commands.objects(step, short)
        assert (step, picked(view)) == (step, {**AT_FIRST, **differs})
    refused = await commands.run("unmark", session)
    assert (refused.exit_code, "has ended" in refused.stderr) == (4, True), refused.output
    assert await commands.done("reopen", session) == f"{session} is open\n"

    await commands.done("update", short, "--model", "m-1", "--patch", '{"a": {"c": 2}}')
    (view,) = await commands.objects("update", short, "--clear", "cwd")
    assert (view.get("cwd"), view["model"], view["config"]) == (
        None,
        "m-1",
        {"a": {"b": 1, "c": 2}},
    )
    assert await commands.done("label", short, "work", "a b") == "work\na b\n"
    assert await commands.done("label", short) == "work\na b\n"
    (counts,) = await commands.objects("count", "--label", "work", "--origin", "cli")
    assert (counts["total"], counts["open"], counts["archived"]) == (1, 1, 0)
    assert await commands.done("label", short, "--clear") == "(no labels)\n"
    assert await commands.done("count", "--label", "work") == "0 sessions: 0 open, 0 archived\n"

    # A name that fits no session leaves the others as they are.
    unknown = await commands.run("archive", session, ANN)
    assert unknown.exit_code == 3, unknown.output
    (view, *_) = await commands.objects("show", session)
    assert picked(view) == AT_FIRST
    kept = await commands.run("prune", "--days", "1", typed="n\n")
    assert (kept.exit_code, "End all sessions" in kept.output) == (1, True)
    assert await commands.done("prune", "--days", "1", "--yes") == "0 sessions are ended\n"


async def check_imported_sessions(serving: Installation, commands: Commands) -> None:
    """Check that imported sessions are listed, protected and continued."""
    old = serving.directory / "projects" / "notes"
    for name, text in (("kept", "the grey heron"), ("open", "the white stork")):
        write_lines(old / f"{name}.jsonl", {"role": "user", "content": text})
    directory = str(old.parent)
    await serving.done("import", "claude-code", directory, *AS_ANN, "--continue")
    found = await commands.objects("list", *AS_ANN, "--origin", "claude_code")
    assert sorted(view["shown_title"] for view in found) == ["the grey heron", "the white stork"]

    (stork,) = (view["id"] for view in found if "stork" in view["shown_title"])
    answer = await commands.done("submit", stork, "and today?", "--wait", "--as", AS_ANN[1])
    assert answer == "#2 heard: and today?\n"

    write_lines(old / "later.jsonl", {"role": "user", "content": "the black crow"})
    await serving.done("import", "claude-code", directory, *AS_ANN)
    found = await commands.objects("list", *AS_ANN, "--origin", "claude_code")
    (crow,) = (view for view in found if "crow" in view["shown_title"])
    assert (len(found), crow["read_only"], crow["end_reason"]) == (3, True, "imported")
    refused = await commands.run("reopen", crow["id"][-8:])
    assert (refused.exit_code, "read only" in refused.stderr) == (4, True), refused.output
    (copy,) = await commands.objects("fork", crow["id"])
    assert (copy["message_count"], copy["read_only"]) == (1, False)

    assert "the white stork" in await serving.done("people", "export", AS_ANN[1])


async def test_messages_are_submitted_and_found_and_imported_sessions_go_on(
    serving: Installation, commands: Commands
) -> None:
    await serving.done("chat", "--as", "ann", typed="hello\n")
    (ann,) = await commands.objects("list", *AS_ANN)

    (made,) = await commands.objects("folders", *AS_ANN, "--make", "Birds")
    assert await commands.done("move", ANN, "Birds", *AS_ANN) == f"{ann['id']} is in Birds\n"
    (moved,) = await commands.objects("list", *AS_ANN)
    assert moved["project_id"] == made["id"]
    (out,) = await commands.objects("move", ANN, "--out", *AS_ANN)
    assert "project_id" not in out
    assert (await commands.run("move", ANN, "Fish", *AS_ANN)).exit_code == 3

    answer = await commands.done("submit", ANN, "-", "--wait", typed="the grey heron")
    assert answer == "#3 heard: the grey heron\n"
    assert await commands.done("stop", ANN) == "nothing ran; 0 waiting messages are not answered\n"

    async def is_found() -> bool:
        return len(await commands.objects("search", "heron", *AS_ANN)) == 2

    await eventually(is_found, timedelta(seconds=60))
    hits = await commands.objects("search", "heron", "--session", ann["id"][-8:], "--limit", "1")
    assert [hit["session_id"] for hit in hits] == [ann["id"]]
    assert "grey heron" in await commands.done("search", '"grey heron"')
    assert await commands.objects("search", "heron", "--person", "terminal/local/ben") == []
    nothing = await commands.run("search", "...")
    assert (nothing.exit_code, "Traceback" in nothing.output) == (4, False)
    await check_imported_sessions(serving, commands)
