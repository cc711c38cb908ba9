"""The commands as people run them: in processes of their own, against real servers."""

import asyncio
import contextlib
import json
import os
import re
import termios
from datetime import timedelta

import asyncpg
import httpx
import nats
import pytest

from chatlane.cli.chat import Address
from chatlane.config.settings import load_settings
from chatlane_schemas.codec import encode
from chatlane_schemas.topology import subjects
from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer
from tests.support.servers.databases import with_login
from tests.support.service.installation import Installation
from tests.support.service.processes import apply_topology

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
    assert "each role has exactly its rights" in granted
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
    assert views[1]["id"][-8:] in table

    transcript = await serving.done("sessions", "show", views[1]["id"])
    assert [line.strip() for line in transcript.splitlines() if line.startswith("      ")] == [
        "hello",
        "#1 heard: hello",
        "again",
        "#3 heard: again",
    ]
    marked_up = await serving.done("sessions", "show", views[0]["id"])
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


async def test_piped_chat_waits_for_the_answer_to_each_message(serving: Installation) -> None:
    shown = await serving.done("chat", "--as", "ann", typed="hello\n/help\n")

    assert "main> #1 heard: hello\n" in shown
    assert "/stop" in shown


async def test_piped_chat_does_not_wait_for_the_answer_of_a_stopped_turn(
    serving: Installation,
) -> None:
    await serving.done("chat", "--as", "ann", "--wait", "20s", typed="hello\n/stop\n")


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
        said = await serving.done("dead-letters", "list", "--from-stream", "--json")
        return [json.loads(line) for line in said.splitlines()]

    (letter,) = await eventually(listed)
    assert letter["reason"] == "not_json"
    assert "not_json" in await serving.done("dead-letters", "list", "--from-stream")


async def test_a_dead_letter_is_listed_with_its_chat_and_the_name_that_is_not_declared(
    serving: Installation,
) -> None:
    client = await nats.connect(serving.nats_url)
    for about in ({"account": "lokal"}, {"profile": "pirate"}):
        event = Address("ann", "local", None).event("secret words").model_copy(update=about)
        subject = subjects.inbound_for(event)
        await client.jetstream().publish(subject, encode(event))
    await client.close()

    async def lines() -> list[str]:
        listed = (await serving.done("dead-letters", "list")).splitlines()
        assert len(listed) == 5, listed
        return listed

    _, profile, account, *counts = await eventually(lines)
    assert "terminal/lokal chat ann" in account
    assert "account terminal/lokal is not declared" in account
    assert "terminal/local chat ann" in profile
    assert "profile pirate is not declared" in profile
    assert [count.split(" (")[0] for count in counts] == ["1 unknown_account", "1 unknown_profile"]
    announced = await serving.done("dead-letters", "list", "--from-stream")
    assert "account terminal/lokal is not declared" in announced
    assert "secret words" not in f"{profile} {account} {announced}"
    short = profile.split()[0]
    assert "secret words" in await serving.done("dead-letters", "show", short)
    assert (await serving.done("dead-letters", "drop", short)).endswith(f"{short} dropped\n")


async def test_c14_both_messages_with_one_id_are_shown(serving: Installation) -> None:
    client = await nats.connect(serving.nats_url)
    for text in ("transfer 5", "transfer 500"):
        event = Address("ann", "local", None).event(text).model_copy(update={"message_id": "1"})
        await client.jetstream().publish(subjects.inbound_for(event), encode(event))
    await client.close()

    async def letters() -> list[dict[str, object]]:
        listed = await serving.done("dead-letters", "list", "--json")
        return [json.loads(line) for line in listed.splitlines()]

    (letter,) = await eventually(letters)
    assert letter["reason"] == "message_id_reused"
    shown = await serving.done("dead-letters", "show", str(letter["id"]))
    assert shown.endswith("text of the first message with this id:\ntransfer 5\n")
    assert '"transfer 500"' in shown
    refused = await serving.run("dead-letters", "retry", str(letter["id"]))
    assert "publish it with an id of its own" in refused.err


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
    assert "1 not_json (publisher), oldest" in await serving.done("dead-letters", "list")
    shown = await serving.done("dead-letters", "show", first)
    assert "not_json (publisher)" in shown
    assert shown.endswith("message body:\nnot json\n")

    assert await serving.done("dead-letters", "retry", first) == f"{first} retried\n"
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

    assert (ended.code, ended.out) == (4, f"{third} retried\n")
    assert ended.err.splitlines() == [
        f"{first} not retried: there is nothing of it to try again: its body is gone",
        f"{second} not retried: {first} is older and of the same conversation: retry or drop it first",
        "chatlane: 2 of 3 not retried",
    ]


async def test_chat_refuses_an_undeclared_account_or_profile(installed: Installation) -> None:
    other = await installed.run("chat", "--as", "ann", "--account", "other", typed="hello\n")
    nope = await installed.run("chat", "--as", "ann", "--profile", "nope", typed="hello\n")

    assert (other.code, nope.code) == (1, 1)
    assert "add [platforms.terminal.accounts.other] to chatlane.toml" in other.err
    assert "add [profiles.nope] to chatlane.toml" in nope.err


async def test_chat_refuses_an_empty_name(installed: Installation) -> None:
    ended = await installed.run("chat", "--as", " ", typed="hello\n")

    assert (ended.code, ended.err) == (2, "chatlane: --as needs a name, such as `--as ann`\n")


@pytest.mark.slow
async def test_chat_ends_by_itself_when_its_server_is_gone(
    installed: Installation, nats_server: RunningServer
) -> None:
    address = {"CHATLANE_NATS__URL": nats_server.url}
    installed._environment.update(address)
    await apply_topology(load_settings(installed.directory / "chatlane.toml", address))
    ours, theirs = os.openpty()
    process = await installed.start("chat", "--as", "ann", terminal=theirs)
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = bytearray()

    def read() -> bytes:
        with contextlib.suppress(OSError):
            shown.extend(os.read(ours, 65_536))
        return bytes(shown)

    await eventually(lambda: b"ann> " in read(), timedelta(seconds=30))
    await nats_server.kill()

    # The person types nothing.
    async with asyncio.timeout(30):
        assert await process.wait() == 5
    assert b"the connection to NATS at" in read()
    os.close(ours)


async def test_no_worker_is_told_as_no_answer(installed: Installation) -> None:
    async with installed.running("router"):
        await eventually(installed.is_ready, timedelta(seconds=30))
        ended = await installed.run("chat", "--as", "ann", "--wait", "200ms", typed="hello\n")

    assert ended.code == 1
    assert "no answer within 0.2s: check that a router and a worker of this agent run" in ended.err


async def test_no_router_is_told_as_such(installed: Installation) -> None:
    ended = await installed.run("sessions")

    assert ended.code == 5
    assert "but no router answers" in ended.err
    assert len(ended.err.splitlines()) == 1


async def test_unknown_session_is_told_as_such(serving: Installation) -> None:
    by_id = await serving.run("sessions", "show", "018f0000-0000-8000-8000-000000000001")
    by_key = await serving.run("sessions", "show", "agent:main:terminal:local:dm:nobody")
    by_end = await serving.run("sessions", "show", "00000001")

    assert (by_id.code, by_key.code, by_end.code) == (3, 3, 3)
    assert "whose id ends with '00000001'" in by_end.err
    assert "there is no session with this id" in by_id.err
    assert "`chatlane sessions` lists both" in by_key.err


async def test_tables_have_one_line_per_entry_on_a_terminal_of_80_columns(
    serving: Installation,
) -> None:
    for person in ("ann", "a-person-with-a-long-name" * 4):
        await serving.done("chat", "--as", person, typed="hello\n")
    await serving.done("sessions", "title", "agent:main:terminal:local:dm:ann", "A trip " * 12)
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = await serving.start("sessions", terminal=theirs)
    os.close(theirs)
    shown = bytearray()
    with contextlib.suppress(OSError):
        while chunk := await asyncio.to_thread(os.read, ours, 65_536):
            shown.extend(chunk)
    os.close(ours)
    assert await process.wait() == 0

    head, *rows = re.sub("\x1b\\[[0-9;]*m", "", shown.decode()).splitlines()
    assert head.split() == ["…id", "agent", "active", "rows", "state", "title", "key"]
    assert len(rows) == 2
    assert max(map(len, rows)) <= 80
    assert all(" open " in row for row in rows)
    assert all("  agent:main:" in row for row in rows)


async def test_a_wrong_password_is_reported_as_such(installed: Installation) -> None:
    dsn = with_login(installed.owner_url, "chatlane_application_login", "not-the-password")
    installed._environment["CHATLANE_POSTGRES__DSN"] = dsn

    ended = await installed.run("dead-letters", "list")

    assert ended.code == 1
    assert "Postgres refuses the login: check user and password in postgres.dsn" in ended.err
    assert "not-the-password" not in ended.err


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
