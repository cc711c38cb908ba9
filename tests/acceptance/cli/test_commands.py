"""The commands as people run them: in processes of their own, against real servers."""

import contextlib
import json
import os
from datetime import timedelta

import asyncpg
import httpx
import nats
import pytest

from chatlane_devkit.servers.embedded import free_port
from chatlane_schemas import subjects
from tests.support.eventually import eventually
from tests.support.service.installation import Installation

# Each command is a process of its own, and starting Python takes its time on a busy machine.
pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.timeout(180)]


async def test_admin_makes_what_verify_misses(bare: Installation) -> None:
    before = await bare.run("admin", "verify")
    migrated = await bare.done("admin", "migrate")
    without = await bare.run("admin", "verify")
    granted = await bare.done("admin", "grants", "--apply")
    applied = await bare.done("admin", "apply")
    client = await nats.connect(bare.nats_url)
    inbound = await client.jetstream().stream_info("INBOUND")
    await client.close()
    again = await bare.done("admin", "apply")
    after = await bare.done("admin", "verify")

    assert before.code == 1
    assert "are not applied: run `chatlane admin migrate`" in before.err
    assert "stream INBOUND is missing: run `chatlane admin apply`" in before.err
    assert "the tables are at migration" in migrated
    assert "run `chatlane admin grants`" in without.err
    assert "the roles have their rights, and nobody else has any" in granted
    assert "stream INBOUND created" in applied
    assert inbound.config.max_bytes == 16 * 1024 * 1024
    assert again == after == "everything is as declared\n"


async def test_what_is_typed_is_answered_and_can_be_looked_at(serving: Installation) -> None:
    first = await serving.done("chat", "--as", "ann", typed="hello\n")
    await serving.done("chat", "--as", "ben", typed="[bold]hi[/]\x1b[31m\n")
    second = await serving.done("chat", "--as", "ann", typed="again\n")
    listed = await serving.done("sessions", "--platform", "terminal", "--json")
    table = await serving.done("sessions")

    assert first == "main> #1 heard: hello\n"
    assert second == "main> #3 heard: again\n"
    views = [json.loads(line) for line in listed.splitlines()]
    assert [view["session_key"] for view in views] == [
        "agent:main:terminal:local:dm:ben",
        "agent:main:terminal:local:dm:ann",
    ]
    assert views[1]["message_count"] == 4
    assert views[1]["id"] in table

    transcript = await serving.done("session", views[1]["id"])
    assert [line.strip() for line in transcript.splitlines() if line.startswith("      ")] == [
        "hello",
        "#1 heard: hello",
        "again",
        "#3 heard: again",
    ]
    marked_up = await serving.done("session", views[0]["id"])
    assert "[bold]hi[/]\\u001b[31m" in marked_up


async def test_terminal_shows_answers_between_what_is_typed(serving: Installation) -> None:
    ours, theirs = os.openpty()
    process = await serving.start("chat", "--as", "ann", terminal=theirs)
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = bytearray()

    def read() -> bytes:
        with contextlib.suppress(OSError):
            shown.extend(os.read(ours, 65_536))
        return bytes(shown)

    await eventually(lambda: b"ann> " in read(), timedelta(seconds=30))
    os.write(ours, b"hello\n")
    await eventually(lambda: b"main>\x1b[0m #1 heard: hello\r\nann> " in read())
    os.write(ours, b"\x04")

    assert await process.wait() == 0
    os.close(ours)


async def test_lines_of_a_file_can_be_said(serving: Installation) -> None:
    said = serving.directory / "lines.txt"
    said.write_text("one\n\ntwo\n")
    with said.open("r+") as file:
        process = await serving.start("chat", "--as", "ann", terminal=file.fileno())
        assert await process.wait() == 0

    # Standard output is the same file, so the answers follow the lines.
    assert said.read_text().startswith("one\n\ntwo\nmain> #1 heard: one\n")
    assert "heard: two\n" in said.read_text()


METRICS_AFTER_ONE_MESSAGE = {
    'chatlane_messages_routed_total{platform="terminal"} 1.0',
    'chatlane_sessions_started_total{agent="main",reason="new"} 1.0',
    'chatlane_turn_claims_total{agent="main",status="claimed"} 1.0',
    'chatlane_turns_finished_total{agent="main",outcome="ok"} 1.0',
    'chatlane_published_total{stream="OUTBOUND"} 1.0',
    'chatlane_partitions_owned{log="inbound"} 4.0',
    'chatlane_partitions_owned{log="results"} 4.0',
    'chatlane_partition_takeovers_total{how="free",log="inbound"} 4.0',
    "chatlane_nats_connected 1.0",
    "chatlane_outbox_backlog 0.0",
}


async def test_metrics_tell_what_happened(serving: Installation) -> None:
    await serving.done("chat", "--as", "ann", typed="hello\n")

    async def all_are_shown() -> bool:
        async with httpx.AsyncClient(trust_env=False) as client:
            page = (await client.get(f"http://127.0.0.1:{serving.port}/metrics")).text
        assert set(page.splitlines()) >= METRICS_AFTER_ONE_MESSAGE
        return True

    await eventually(all_are_shown)


async def test_dead_letter_is_listed_with_its_reason(serving: Installation) -> None:
    client = await nats.connect(serving.nats_url)
    subject = subjects.inbound("terminal", "local", subjects.chat_token("ann"))
    await client.jetstream().publish(subject, b"not json")
    await client.close()

    async def listed() -> list[dict[str, object]]:
        return [json.loads(line) for line in (await serving.done("dead", "--json")).splitlines()]

    (letter,) = await eventually(listed)
    assert letter["reason"] == "not_json"
    assert "not_json" in await serving.done("dead")


async def test_dead_letters_are_shown_retried_and_dropped(serving: Installation) -> None:
    client = await nats.connect(serving.nats_url)
    subject = subjects.inbound("terminal", "local", subjects.chat_token("ann"))
    await client.jetstream().publish(subject, b"not json")
    await client.close()

    async def letters() -> list[dict[str, object]]:
        listed = await serving.done("dead-letters", "list", "--json")
        return [json.loads(line) for line in listed.splitlines()]

    (letter,) = await eventually(letters)
    first = str(letter["id"])
    assert letter["cause"] == "publisher"
    assert "1 not_json (publisher)" in await serving.done("dead-letters", "list")
    shown = await serving.done("dead-letters", "show", first)
    assert "not_json (publisher)" in shown
    assert shown.endswith("what it said:\nnot json\n")

    assert await serving.done("dead-letters", "retry", first) == f"{first} comes again\n"
    (again,) = await eventually(letters)
    assert again["id"] != first
    assert again["sequence"] != letter["sequence"]

    await serving.done("dead-letters", "drop", "--reason", "not_json")
    assert await serving.done("dead-letters", "list") == "there are no dead letters\n"
    again_dropped = await serving.done("dead-letters", "drop", "--reason", "not_json")
    assert again_dropped == "there are no dead letters of reason not_json\n"
    assert (await serving.run("dead-letters", "show", first)).code == 3
    assert (await serving.run("dead-letters", "drop")).code == 2


async def test_a_dead_letter_that_stays_keeps_no_other_conversation_from_coming_again(
    serving: Installation,
) -> None:
    client = await nats.connect(serving.nats_url)
    for chat in ("ann", "ann", "ben"):
        subject = subjects.inbound("terminal", "local", subjects.chat_token(chat))
        await client.jetstream().publish(subject, b"not json")
    await client.close()
    database = await asyncpg.connect(serving.owner_url)
    of_log = "SELECT id FROM dead_letters ORDER BY sequence"
    await eventually(lambda: database.fetchval("SELECT count(*) = 3 FROM dead_letters"))
    first, second, third = [str(row[0]) for row in await database.fetch(of_log)]
    await database.execute("UPDATE dead_letters SET body = NULL WHERE id = $1", first)
    await database.close()

    ended = await serving.run("dead-letters", "retry", "--reason", "not_json")

    assert (ended.code, ended.out) == (4, f"{third} comes again\n")
    assert ended.err.splitlines() == [
        f"{first} stays: there is nothing of it to try again: its body is gone",
        f"{second} stays: {first} is older and of the same conversation: retry or drop it first",
        "chatlane: 2 of 3 stay where they are",
    ]


async def test_message_to_an_undeclared_account_is_refused_before_it_is_sent(
    installed: Installation,
) -> None:
    ended = await installed.run("chat", "--as", "ann", "--account", "other", typed="hello\n")

    assert ended.code == 1
    assert "add [platforms.terminal.accounts.other] to chatlane.toml" in ended.err


async def test_no_worker_is_told_as_no_answer(installed: Installation) -> None:
    async with installed.running("router"):
        await eventually(installed.is_ready, timedelta(seconds=30))
        ended = await installed.run("chat", "--as", "ann", "--wait", "200ms", typed="hello\n")

    assert ended.code == 1
    assert "no answer within 0.2s: are a router and a worker of this agent running?" in ended.err


async def test_no_router_is_told_as_such(installed: Installation) -> None:
    ended = await installed.run("sessions")

    assert ended.code == 5
    assert "but no router answers" in ended.err
    assert len(ended.err.splitlines()) == 1


async def test_unknown_session_is_told_as_such(serving: Installation) -> None:
    by_id = await serving.run("session", "018f0000-0000-8000-8000-000000000001")
    by_key = await serving.run("sessions", "show", "agent:main:terminal:local:dm:nobody")

    assert (by_id.code, by_key.code) == (3, 3)
    assert "there is no session with this id" in by_id.err
    assert "`chatlane sessions` lists them" in by_key.err


async def test_router_refuses_what_is_not_set_up(bare: Installation) -> None:
    ended = await bare.run("router")

    assert ended.code == 1
    assert "chatlane: migrations" in ended.err


async def test_router_that_waits_for_its_servers_is_alive_and_can_be_stopped(
    installed: Installation,
) -> None:
    installed._environment["CHATLANE_NATS__URL"] = f"nats://127.0.0.1:{free_port()}"

    async with installed.running("router"), httpx.AsyncClient(trust_env=False) as client:
        await eventually(installed.is_alive, timedelta(seconds=30))
        ready = await client.get(f"http://127.0.0.1:{installed.port}/readyz")

    assert ready.status_code == 503
    assert ready.json()["checks"] == {"postgres": True, "nats": False, "reader": False}
