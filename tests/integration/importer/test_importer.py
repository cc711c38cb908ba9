"""Conversations of a real gateway are taken over: all of them, once, without touching its files."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from chatlane.domain.addressing.alias_rows import lookups
from chatlane.domain.addressing.aliases import AliasBook
from chatlane.domain.addressing.keys import session_key
from chatlane.domain.addressing.sources import Address
from chatlane.domain.catalog import Account, Agent, Catalog, Platform
from chatlane.domain.policy import KeyRules, ResetPolicy
from chatlane.importer.hermes_files import UnreadableHomeError, open_home
from chatlane.importer.importer import Adoption
from chatlane.importer.records import Omission, Report
from chatlane.postgres.pool import Store
from chatlane.store.addressing import aliases
from chatlane.store.conversations import lane_merges
from chatlane.store.conversations.lane_merges import LaneRow
from chatlane.store.conversations.session_reads import SessionReads
from tests.integration.importer.conftest import OldHome

pytestmark = pytest.mark.integration


def catalog(*platforms: str) -> Catalog:
    return Catalog(
        platforms={
            name: Platform(
                name,
                KeyRules(),
                accounts={"bot": Account("bot")},
                person_aliases=name in {"whatsapp", "signal"},
            )
            for name in platforms
        },
        profiles={"main": "main"},
        agents={"main": Agent("main")},
        default_reset=ResetPolicy(),
    )


CATALOG = catalog("telegram", "slack", "whatsapp")


async def adopt(path: Path, store: Store, its: Catalog = CATALOG) -> Report:
    report = Report()
    with open_home(path, UTC, report.omitted) as opened:
        await Adoption(opened, store, its, report, accounts={}).run(lambda _done, _total: None)
    return report


async def rows(store: Store, query: str, *values: object) -> list[tuple[Any, ...]]:
    async with store.transaction() as connection:
        return [tuple(row.values()) for row in await connection.fetch(query, *values)]


async def said(store: Store, session_id: UUID) -> list[tuple[str, str]]:
    query = "SELECT role, content FROM messages WHERE session_id = $1 ORDER BY seq"
    return await rows(store, query, session_id)


async def everything(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    tables = ("sessions", "messages", "lanes", "lane_aliases", "aliases")
    return {table: sorted(await rows(store, f"TABLE {table}"), key=str) for table in tables}


def reasons(report: Report, what: str) -> dict[str, int]:
    return {one.reason: count for one, count in report.omitted.counts.items() if one.what == what}


@contextmanager
def writing(path: Path) -> Iterator[Callable[..., object]]:
    """Change the old database as its gateway would."""
    with closing(sqlite3.connect(path / "state.db")) as database, database:
        yield database.execute


async def test_old_keys_find_their_conversations(home: OldHome, store: Store) -> None:
    await adopt(home.path, store)
    reads = SessionReads(store)
    expected = {
        "dm": "agent:main:telegram:bot:dm:111",
        "group": "agent:main:telegram:bot:group:-100200:user=7",
        "topic": "agent:main:telegram:bot:group:-100300:thread=5",
        "slack": "agent:main:slack:bot:group:C1:user=U1:scope=T1",
        "whatsapp": "agent:main:whatsapp:bot:dm:999999999999999@lid",
        "compressed": "agent:main:telegram:bot:dm:222",
        "after reset": "agent:main:telegram:bot:dm:444",
    }
    for name, key in expected.items():
        by_old, by_new = await reads.find_by_key(home.key(name)), await reads.find_by_key(key)
        assert by_old is not None, name
        assert by_old == by_new
        assert (by_old.session_key, by_old.ended_at) == (key, None)


async def test_a_transcript_is_taken_over_with_its_tool_calls(home: OldHome, store: Store) -> None:
    report = await adopt(home.path, store)
    session = await SessionReads(store).find_by_key(home.key("dm"))
    assert session is not None
    assert session.title == "The time"
    query = (
        "SELECT role, content, author, platform_message_id, details FROM messages "
        "WHERE session_id = $1 ORDER BY seq"
    )
    taken = await rows(store, query, session.id)
    assert [row[:4] for row in taken] == [
        ("user", "what time is it?", "111", "41"),
        ("assistant", None, None, None),
        ("tool", "noon", None, None),
        ("assistant", "Noon.", None, None),
        ("user", "and here?\n[image_url]", "111", None),
    ]
    asked = json.loads(taken[1][4])
    assert asked["tool_calls"][0]["function"]["name"] == "clock"
    assert asked["reasoning"] == {
        "text": "they want the time",
        "data": [{"type": "reasoning.text", "signature": "EqQ="}],
        "agent": "main",
    }
    assert json.loads(taken[2][4]) == {"tool_call_id": "c1", "tool_name": "clock"}
    assert reasons(report, "message")["not said by user, assistant, system or tool"] == 1


async def test_what_a_conversation_used_and_was_set_to_is_taken_over(
    home: OldHome, store: Store
) -> None:
    """R16.1."""
    with writing(home.path) as execute:
        execute(
            "UPDATE sessions SET model_config = ? WHERE id = ?",
            ('{"api_key": "k"}', home.id("group")),
        )
        execute(
            "UPDATE messages SET role = 'assistant', reasoning = ? WHERE session_id = ?",
            ("x" * 70_000, home.id("topic")),
        )
        execute("UPDATE messages SET observed = 1 WHERE session_id = ?", (home.id("slack"),))
    report = await adopt(home.path, store)
    reads = SessionReads(store)

    talk = await reads.find_by_key(home.key("dm"))
    assert talk is not None
    assert talk.model == "small-1"
    assert talk.costs == {"cost_usd": Decimal("0.3")}
    assert (talk.usage["input_tokens"], talk.usage["output_tokens"]) == (820, 80)
    [branch] = await rows(store, "SELECT cwd, config FROM sessions WHERE link_kind = 'branch'")
    assert (branch[0], json.loads(branch[1])) == ("/srv/notes", {"temperature": 0.5})
    group = await reads.find_by_key(home.key("group"))
    assert group is not None
    assert group.config is None
    assert sum(reasons(report, "config of a session").values()) == 1
    assert reasons(report, "reasoning of a message") == {"longer than 64 KiB": 1}
    overheard = await reads.find_by_key(home.key("slack"))
    assert overheard is not None
    [(details, people)] = await rows(
        store,
        "SELECT details, user_messages FROM messages JOIN sessions ON sessions.id = session_id"
        " WHERE session_id = $1",
        overheard.id,
    )
    assert (json.loads(details), people) == ({"observed": True}, 0)


async def test_histories_keep_their_links_and_hold_no_lane(home: OldHome, store: Store) -> None:
    """R16.2."""
    await adopt(home.path, store)
    query = (
        "SELECT child.link_kind, parent.end_reason, child.ended_at IS NULL, "
        "       (SELECT count(*) FROM lanes WHERE session_id = parent.id) "
        "FROM sessions AS child JOIN sessions AS parent ON parent.id = child.parent_id ORDER BY 1"
    )
    assert await rows(store, query) == [
        ("branch", None, False, 1),
        ("compression", "imported", True, 0),
    ]


async def test_what_was_undone_stays_undone(home: OldHome, store: Store) -> None:
    report = await adopt(home.path, store)
    session = await SessionReads(store).find_by_key(home.key("undone"))
    assert session is not None
    assert await said(store, session.id) == [("user", "kept"), ("assistant", "kept")]
    assert reasons(report, "message")["undone"] == 1


async def test_a_suspended_conversation_is_over(home: OldHome, store: Store) -> None:
    await adopt(home.path, store)
    session = await SessionReads(store).find_by_key(home.key("suspended"))
    assert session is not None
    assert session.end_reason == "imported"


async def test_what_is_left_out_is_told_with_its_reason(home: OldHome, store: Store) -> None:
    report = await adopt(home.path, store, catalog("telegram", "slack"))
    assert reasons(report, "session") == {"chatlane.toml declares no platform whatsapp": 1}
    omission = Omission("session", "chatlane.toml declares no platform whatsapp")
    assert report.omitted.examples[omission] == [home.id("whatsapp")]


async def test_sessions_of_programs_keep_their_origin_and_need_no_platform(
    home: OldHome, store: Store
) -> None:
    with writing(home.path) as execute:
        execute("UPDATE sessions SET archived = 1 WHERE id IN ('terminal', ?)", (home.id("dm"),))
    await adopt(home.path, store)
    found = await rows(
        store,
        "SELECT platform, origin, session_key, archived_at IS NOT NULL, end_reason FROM sessions "
        "WHERE origin <> 'chat' OR archived_at IS NOT NULL ORDER BY platform",
    )
    assert found == [
        ("cli", "cli", "agent:main:cli:hermes:dm:hermes%3Aterminal", True, "imported"),
        ("cron", "cron", "agent:main:cron:hermes:dm:hermes%3Ahelper", False, "imported"),
        ("telegram", "chat", "agent:main:telegram:bot:dm:111", True, None),
    ]


async def test_doing_it_again_changes_nothing(home: OldHome, store: Store) -> None:
    first = await adopt(home.path, store)
    before = await everything(store)
    again = await adopt(home.path, store)
    assert await everything(store) == before
    assert again.done["unchanged sessions"] == first.done["new sessions"]
    assert +again.done == {"unchanged sessions": first.done["new sessions"]}
    assert again.omitted.counts == first.omitted.counts


async def test_a_platform_declared_later_is_taken_over_later(home: OldHome, store: Store) -> None:
    await adopt(home.path, store, catalog("telegram", "whatsapp"))
    again = await adopt(home.path, store)
    assert (again.done["new sessions"], again.done["lanes"]) == (1, 1)


async def test_what_was_said_since_is_added(home: OldHome, store: Store) -> None:
    await adopt(home.path, store)
    with writing(home.path) as execute:
        execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
            (home.id("group"), "user", "since then", datetime.now(UTC).timestamp()),
        )
    again = await adopt(home.path, store)
    assert (again.done["continued sessions"], again.done["messages"]) == (1, 1)
    session = await SessionReads(store).find_by_key(home.key("group"))
    assert session is not None
    assert await said(store, session.id) == [("user", "mine alone"), ("user", "since then")]


async def test_a_conversation_that_went_on_here_takes_nothing_more(
    home: OldHome, store: Store
) -> None:
    await adopt(home.path, store)
    session = await SessionReads(store).find_by_key(home.key("group"))
    assert session is not None
    async with store.transaction() as connection:
        await connection.execute(
            "INSERT INTO messages (session_id, seq, role, content, created_at) "
            "VALUES ($1, 2, 'assistant', 'here', now())",
            session.id,
        )
        await connection.execute("UPDATE sessions SET next_seq = 3 WHERE id = $1", session.id)
    with writing(home.path) as execute:
        execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
            (home.id("group"), "user", "there", datetime.now(UTC).timestamp()),
        )
    again = await adopt(home.path, store)
    assert await said(store, session.id) == [("user", "mine alone"), ("assistant", "here")]
    assert reasons(again, "newer messages of a session") == {"it has gone on here since": 1}


async def test_a_lane_in_use_keeps_its_session(home: OldHome, store: Store) -> None:
    key, used = "agent:main:telegram:bot:dm:111", UUID(int=1)
    async with store.transaction() as connection:
        await connection.execute(
            "INSERT INTO sessions (id, session_key, agent, platform, started_at) "
            "VALUES ($1, $2, 'main', 'telegram', now())",
            used,
            key,
        )
        await connection.execute("INSERT INTO lanes VALUES ($1, $2)", key, used)
    report = await adopt(home.path, store)
    found = await SessionReads(store).find_by_key(home.key("dm"))
    assert found is not None
    assert found.id == used
    assert reasons(report, "lane") == {"its chat goes on in another session": 1}
    ended = "SELECT count(*) FROM sessions WHERE session_key = $1 AND end_reason = 'imported'"
    # The conversation itself, and a branch of it.
    assert await rows(store, ended, key) == [(1,)]


def states(path: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(file): (file.stat().st_mtime_ns, file.stat().st_mode, file.read_bytes())
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


async def test_the_old_files_are_neither_changed_nor_locked(home: OldHome, store: Store) -> None:
    with closing(sqlite3.connect(home.path / "state.db", isolation_level=None)) as gateway:
        gateway.execute("PRAGMA journal_mode = WAL")
        gateway.execute("BEGIN EXCLUSIVE")
        gateway.execute("UPDATE sessions SET display_name = 'half done'")
        before = states(home.path)
        report = await adopt(home.path, store)
        assert states(home.path) == before
    assert report.done["new sessions"] > 5


async def test_a_home_at_rest_stays_as_it_was(home: OldHome, store: Store) -> None:
    before = states(home.path)
    await adopt(home.path, store)
    assert states(home.path) == before


async def test_bad_rows_lose_nothing_else(home: OldHome, store: Store) -> None:
    whole = await adopt(home.path, store, catalog())
    assert whole.done == {"new sessions": 2, "messages": 1, "lanes": 0, "old keys": 0}
    message = "INSERT INTO messages (session_id, role, content, tool_calls, timestamp) VALUES (?, ?, ?, ?, ?)"
    with writing(home.path) as execute:
        execute(message, (home.id("dm"), "assistant", "x", "[not json", 1.0))
        execute(message, (home.id("dm"), "assistant", "", None, 1.0))
        execute(message, (home.id("dm"), "user", "\0json:[broken", None, 1.0))
        execute(message, (home.id("dm"), "user", b"\xff\x00bytes", None, "no time"))
        execute("INSERT INTO sessions (id, source, started_at) VALUES ('bad', 'telegram', 'never')")
        execute("INSERT INTO gateway_routing VALUES ('', 'agent:main:telegram:dm:9', '[]', 1)")
    index = home.path / "sessions" / "sessions.json"
    entries = json.loads(index.read_text())
    entries |= {"agent:main:telegram:dm:8": 5, "agent:main:telegram:dm:7": {"session_id": "x"}}
    index.write_text(json.dumps(entries))
    report = await adopt(home.path, store)
    session = await SessionReads(store).find_by_key(home.key("dm"))
    assert session is not None
    taken = await said(store, session.id)
    assert taken[-2:] == [("user", "and here?\n[image_url]"), ("user", "\ufffd\ufffdbytes")]
    assert reasons(report, "message") == {
        "its parts cannot be read": 1,
        "its tool calls cannot be read": 1,
        "neither text nor tool call": 1,
        "not said by user, assistant, system or tool": 1,
        "undone": 1,
    }
    assert reasons(report, "routing entry") == {"not an object": 2, "its times cannot be read": 1}
    assert reasons(report, "session")["its id, platform or start cannot be read"] == 1


async def test_a_damaged_database_leaves_the_index(home: OldHome, store: Store) -> None:
    (home.path / "state.db").write_bytes(b"no database at all" * 1000)
    (home.path / "state.db-wal").unlink(missing_ok=True)
    report = await adopt(home.path, store)
    assert reasons(report, "file") == {"damaged (DatabaseError)": 1}
    session = await SessionReads(store).find_by_key(home.key("dm"))
    assert session is not None
    assert session.message_count == 0


async def test_the_other_id_of_a_person_leads_to_the_same_lane(home: OldHome, store: Store) -> None:
    """The old key was built from the phone, the address has the hidden id."""
    await adopt(home.path, store)
    address = Address("whatsapp", "bot", chat_id="60123456789:4@s.whatsapp.net")
    async with store.transaction() as connection:
        book = AliasBook(await aliases.find_groups(connection, lookups(address, persons=True)))
    resolved = book.resolve(address, persons=True)
    key = session_key(resolved.address, KeyRules())
    assert isinstance(key, str)
    found = await SessionReads(store).find_by_key(key)
    assert found is not None
    assert await said(store, found.id) == [("user", "by a hidden id")]


async def test_old_keys_follow_a_lane_that_gets_another_key(home: OldHome, store: Store) -> None:
    await adopt(home.path, store)
    here, there = [
        LaneRow(*row)
        for row in await rows(
            store,
            "SELECT session_key, session_id FROM lanes WHERE session_key IN "
            "('agent:main:telegram:bot:dm:111', 'agent:main:telegram:bot:dm:333') "
            "ORDER BY session_key",
        )
    ]
    async with store.transaction() as connection:
        await lane_merges.rename_lane(connection, here, "renamed")
    found = await SessionReads(store).find_by_key(home.key("dm"))
    assert found is not None
    assert found.session_key == "renamed"
    async with store.transaction() as connection:
        await lane_merges.delete_lane(connection, LaneRow("renamed", here.session_id), there)
    found = await SessionReads(store).find_by_key(home.key("dm"))
    assert found is not None
    assert found.session_key == "agent:main:telegram:bot:dm:333"


def old_files(directory: Path) -> str:
    """Write what the oldest releases kept: an index and a file for each transcript."""
    session_id, key = "20260102_030405_0a1b2c3d", "agent:main:telegram:group:-5:7"
    entry = {
        "session_key": key,
        "session_id": session_id,
        "created_at": "2026-01-02T03:04:05",
        "updated_at": "2026-01-02T04:00:00",
        "origin": {
            "platform": "telegram",
            "chat_id": -5,
            "chat_type": "group",
            "user_id": 7,
        },
    }
    (directory / "sessions.json").write_text(json.dumps({"_README": "a note", key: entry}))
    lines = [
        json.dumps({"role": "session_meta", "tools": []}),
        json.dumps({"role": "user", "content": "one", "timestamp": "2026-01-02T03:05:00"}),
        json.dumps({"role": "assistant", "content": "two", "timestamp": "2026-01-02T03:06:00"}),
        "{broken in the middle}",
        json.dumps({"role": "user", "content": "three \ud800"}),
        '{"role": "user", "content": "tor',
    ]
    (directory / f"{session_id}.jsonl").write_bytes("\n".join(lines).encode())
    (directory / "20250101_000000_ffffffff.jsonl").write_text(lines[1])
    return key


async def test_older_transcripts_are_read_up_to_the_torn_line(store: Store, tmp_path: Path) -> None:
    key = old_files(tmp_path)
    report = await adopt(tmp_path, store)
    session = await SessionReads(store).find_by_key(key)
    assert session is not None
    assert session.session_key == "agent:main:telegram:bot:group:-5:user=7"
    assert await said(store, session.id) == [
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three \ufffd"),
    ]
    assert session.started_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert session.last_activity_at == session.started_at + timedelta(minutes=55, seconds=55)
    assert reasons(report, "message") == {"not a JSON object": 1, "torn last line": 1}
    assert sum(reasons(report, "transcript file").values()) == 1


async def test_the_torn_line_is_taken_over_once_it_is_whole(store: Store, tmp_path: Path) -> None:
    key = old_files(tmp_path)
    await adopt(tmp_path, store)
    with (tmp_path / "20260102_030405_0a1b2c3d.jsonl").open("a") as file:
        file.write('n"}\n')
    await adopt(tmp_path, store)
    session = await SessionReads(store).find_by_key(key)
    assert session is not None
    assert (await said(store, session.id))[-1] == ("user", "torn")


async def test_an_empty_directory_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(UnreadableHomeError, match="neither"),
        open_home(tmp_path, UTC, Report().omitted),
    ):
        pass


async def test_a_transcript_of_20000_rows_is_taken_over(home: OldHome, store: Store) -> None:
    with writing(home.path) as execute:
        execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "SELECT ?, 'user', 'row ' || i, 1000000000 + i FROM n",
            (home.id("topic"),),
        )
    await adopt(home.path, store)
    session = await SessionReads(store).find_by_key(home.key("topic"))
    assert session is not None
    assert session.message_count == 20001
