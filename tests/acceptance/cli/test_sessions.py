"""`chatlane sessions` as operators use it, against real servers."""

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from chatlane_client import TranscriptApi, open_connection
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import AppendedRow
from tests.support.eventually import eventually
from tests.support.service.installation import Installation

# Each command is a process of its own, and starting Python takes its time on a busy machine.
pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.timeout(180)]

ANN = "agent:main:terminal:local:dm:ann"
NOBODY = "018f0000-0000-8000-8000-000000000001"


async def objects(installation: Installation, *arguments: str) -> list[dict[str, Any]]:
    said = await installation.done("sessions", *arguments, "--json")
    return [json.loads(line) for line in said.splitlines()]


@pytest.fixture
async def talked(serving: Installation) -> Installation:
    """An installation in which Ann has a conversation of four rows, and Ben one of two."""
    for person, typed in (("ann", "hello\n"), ("ann", "again\n"), ("ben", "hi\n")):
        await serving.done("chat", "--as", person, typed=typed)
    return serving


async def test_sessions_are_listed_shown_and_named(talked: Installation) -> None:
    (ben, ann) = await objects(talked)
    assert (ann["session_key"], ben["session_key"]) == (ANN, ANN.replace("ann", "ben"))
    assert await objects(talked, "list", "--person", "terminal/local/ann") == [ann]
    assert await objects(talked, "list", "--origin", "acp") == []
    assert await objects(talked, "list", "--active", "1h", "--not-archived") == [ben, ann]
    listed = await talked.done("sessions", "list", "--limit", "1")
    assert (ben["id"][-8:] in listed, ann["id"][-8:] in listed) == (True, False)
    assert "more sessions exist; raise --limit" in listed

    view, *rows = await objects(talked, "show", ANN)
    assert [row["content"] for row in rows[::2]] == ["hello", "again"]
    for named in (ann["id"], ann["id"][-8:], ann["id"][-4:].upper()):
        assert await objects(talked, "show", named) == [view, *rows]
    shown = await talked.done("sessions", "show", ANN, "--limit", "1")
    for fact in (ann["id"], ANN, "open", "3 older rows"):
        assert fact in shown

    name = "Trip to [bold]Rome"
    assert await talked.done("sessions", "title", ANN) == "(no title)\n"
    assert await talked.done("sessions", "title", ANN, name) == f"{name}\n"
    assert [session.get("title") for session in await objects(talked)] == [None, name]
    # 80 columns cut a title; Rich markup in it is not read.
    assert "Trip to [" in await talked.done("sessions")
    assert await talked.done("sessions", "title", ANN, "--clear") == "(no title)\n"
    assert (await talked.run("sessions", "title", ANN, "x" * 101)).code == 2


async def test_an_undone_turn_is_listed_and_put_back(talked: Installation) -> None:
    _, *before = await objects(talked, "show", ANN)
    await talked.done("chat", "--as", "ann", typed="/undo\n")
    listed = await talked.done("transcripts", "removed", ANN, "--json")
    rows = [json.loads(line) for line in listed.splitlines()]
    assert [row["row_id"] for row in rows] == [row["row_id"] for row in before[:1:-1]]
    assert await talked.done("transcripts", "restore", ANN, "1") == "2 rows are back\n"

    assert (await objects(talked, "show", ANN))[1:] == before


async def test_a_chat_begins_anew_goes_back_and_is_copied(talked: Installation) -> None:
    before, *_ = await objects(talked, "title", ANN, "trip")
    reset = await talked.done("sessions", "reset", ANN)
    after, *_ = await objects(talked, "show", ANN)
    assert reset == f"ended; the chat continues in {after['id']}\n"
    assert after["id"] != before["id"]
    assert "ended (requested)" in await talked.done("sessions", "show", before["id"])

    taken = await talked.run("sessions", "title", ANN, "trip")
    stale = await talked.run("sessions", "reset", before["id"])
    for refused in (taken, stale):
        assert (refused.code, len(refused.err.splitlines())) == (4, 1), refused

    back = await talked.done("sessions", "resume", ANN, before["id"][-8:])
    assert back == f"the chat continues in {before['id']}\n"
    (copy,) = await objects(talked, "fork", ANN, "--through", "2")
    _, *rows = await objects(talked, "show", copy["id"])
    assert [row["content"] for row in rows] == ["hello", "#1 heard: hello"]
    assert f"{before['id']} (branch)" in await talked.done("sessions", "show", copy["id"])
    beyond = await talked.run("sessions", "fork", ANN, "--through", "99")
    assert (beyond.code, "Traceback" in beyond.err) == (4, False)

    kept = await talked.run("sessions", "remove", copy["id"], typed="n\n")
    assert (kept.code, f"Delete {copy['id']}" in kept.out) == (1, True)
    assert "is deleted" in await talked.done("sessions", "remove", copy["id"], typed="y\n")
    assert (await talked.run("sessions", "remove", copy["id"], "--yes")).code == 3


async def test_tail_goes_on_with_what_comes_until_the_session_ends(
    installed: Installation,
) -> None:
    """Also over the death of the only router."""
    async with installed.running("router"), installed.running("echo-worker"):
        await eventually(installed.is_ready, timedelta(seconds=30))
        await installed.done("chat", "--as", "ann", typed="hello\n")
        process = await installed.start("sessions", "tail", ANN, "-n", "1", "--json")
        assert process.stdout is not None
        assert json.loads(await process.stdout.readline())["content"] == "#1 heard: hello"
    async with installed.running("router"), installed.running("echo-worker"):
        await eventually(installed.is_ready, timedelta(seconds=30))
        await installed.done("chat", "--as", "ann", typed="more\n")
        rows = [json.loads(await process.stdout.readline()) for _ in range(2)]
        assert [(row["seq"], row["content"]) for row in rows] == [
            (3, "more"),
            (4, "#3 heard: more"),
        ]
        view, *_ = await objects(installed, "show", ANN)
        await installed.done("sessions", "reset", ANN)
        async with asyncio.timeout(30):
            assert await process.wait() == 0
        said = await installed.done("sessions", "tail", view["id"])

    assert "hello" in said
    assert said.endswith("the session has ended (requested)\n")


async def test_a_session_is_exported_whole_and_in_order(talked: Installation) -> None:
    view, *_ = await objects(talked, "show", ANN)
    made = [
        AppendedRow(role=Role.USER if number % 2 else Role.ASSISTANT, content=f"# row {number}")
        for number in range(5, 900)
    ]
    async with open_connection(talked.nats_url, name="test") as client:
        api = TranscriptApi(client, principal="test")
        for start in range(0, len(made), 100):
            await api.append(view["id"], made[start : start + 100], request_id=uuid4().hex)
    head, *rows = map(json.loads, (await talked.done("sessions", "export", ANN)).splitlines())
    assert head["session_key"] == ANN
    assert [row["seq"] for row in rows] == list(range(1, 900))
    assert [row["content"] for row in rows[4:]] == [row.content for row in made]
    assert {row["session_id"] for row in rows} == {view["id"]}

    target = talked.directory / "ann.md"
    assert await talked.done("sessions", "export", ANN, "-o", "ann.md") == "ann.md: 899 rows\n"
    written = target.read_text()
    assert written.startswith(f"# Conversation\n\n* Session: `{view['id']}`\n")
    assert "\n> # row 5\n" in written
    assert [line for line in written.splitlines() if line.startswith("# ")] == ["# Conversation"]

    again = await talked.run("sessions", "export", ANN, "-o", "ann.md")
    assert (again.code, "add --force" in again.err) == (1, True)
    nobody = await talked.run("sessions", "export", NOBODY, "-o", "none.jsonl")
    assert nobody.code == 3
    assert not (talked.directory / "none.jsonl").exists()
    assert list(talked.directory.glob(".ann*")) == []
