"""What `chatlane explain` tells is what a router does, and telling it changes nothing."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from chatlane.decisions.explanation import Facts, explain
from chatlane.domain.catalog import Account, Agent, Catalog, Platform
from chatlane.domain.policy import KeyRules, ResetPolicy
from chatlane.postgres.pool import Store
from chatlane_schemas.codec import encode
from chatlane_schemas.inbound import Chat, InboundEvent, Kind, Sender
from tests.support.service.forked_command import start_forked

pytestmark = pytest.mark.integration

AT = datetime(2026, 5, 11, 9, tzinfo=UTC)
DAILY = ResetPolicy(mode="both", at_hour=4, idle=timedelta(hours=24))
CATALOG = Catalog(
    platforms={
        "telegram": Platform(
            "telegram",
            KeyRules(),
            class_reset={"dm": DAILY},
            accounts={"bot": Account("bot", own_ids=frozenset({"me"}))},
        ),
        "whatsapp": Platform(
            "whatsapp", KeyRules(), accounts={"bot": Account("bot")}, person_aliases=True
        ),
    },
    profiles={"main": "main"},
    agents={"main": Agent("main")},
    default_reset=ResetPolicy(),
)
KEY = "agent:main:telegram:bot:dm:111"


def body(**fields: object) -> bytes:
    given: dict[str, Any] = {
        "platform": "telegram",
        "account": "bot",
        "chat": Chat(id="111"),
        "sender": Sender(id="111"),
    }
    return encode(InboundEvent(id="e", at=AT, **(given | fields)))


async def told(store: Store, event: bytes, at: datetime = AT) -> Facts:
    async with store.transaction() as connection:
        return await explain(event, CATALOG, at, connection)


async def have_session(store: Store, last: datetime, active_turn: UUID | None = None) -> None:
    async with store.transaction() as connection:
        await connection.execute(
            "INSERT INTO sessions (id, session_key, agent, platform, started_at, "
            "last_activity_at, active_turn) VALUES ($1, $2, 'main', 'telegram', $3, $3, $4)",
            UUID(int=1),
            KEY,
            last,
            active_turn,
        )
        await connection.execute("INSERT INTO lanes VALUES ($1, $2)", KEY, UUID(int=1))


async def test_without_a_session_one_would_be_opened(store: Store) -> None:
    facts = await told(store, body(text="hi"))
    assert facts["outcome"] == "routed"
    assert facts["session_key"] == KEY
    assert facts["reset_policy_of"] == "class dm of platform telegram"
    assert (facts["session_id"], facts["session"]) == (None, "a message would open a new one")


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"text": "\u200b"}, "kept: it says nothing"),
        ({"text": "hi", "observed": True}, "kept: context for later turns"),
        ({"kind": "reaction", "text": "\N{THUMBS UP SIGN}"}, "kept: context for later turns"),
        ({"kind": "service", "text": "hi"}, "kept: an event of kind service starts nothing"),
    ],
)
async def test_what_starts_nothing_says_why(
    store: Store, fields: dict[str, Any], outcome: str
) -> None:
    assert (await told(store, body(**fields)))["outcome"] == outcome


async def test_a_session_that_goes_on_tells_its_next_reset(store: Store) -> None:
    await have_session(store, AT - timedelta(hours=1))
    facts = await told(store, body())
    assert facts["session_id"] == str(UUID(int=1))
    assert facts["session"] == "goes on"
    assert facts["next_reset"] == "daily at 2026-05-12T04:00:00+00:00"


async def test_a_session_that_is_over_tells_its_rule(store: Store) -> None:
    await have_session(store, AT - timedelta(hours=6))
    assert (await told(store, body()))["session"] == "ends (daily), and a message opens a new one"
    late = await told(store, body(), AT + timedelta(days=2))
    assert late["session"] == "ends (idle), and a message opens a new one"
    timer = await told(store, body(kind=Kind.SYSTEM))
    assert timer["session"] == "goes on"


async def test_a_running_turn_puts_the_reset_off(store: Store) -> None:
    await have_session(store, AT - timedelta(hours=6), active_turn=UUID(int=2))
    facts = await told(store, body())
    assert facts["session"] == "goes on, while a turn runs"
    assert facts["next_reset"] == f"daily at {AT.isoformat()}"


async def test_ids_of_people_are_looked_up(store: Store) -> None:
    async with store.transaction() as connection:
        await connection.execute(
            "INSERT INTO aliases VALUES ('whatsapp', 'bot', 'person', '601', '9@lid', now(), NULL)"
        )
    facts = await told(store, body(platform="whatsapp", chat=Chat(id="601"), sender=None))
    assert facts["session_key"] == "agent:main:whatsapp:bot:dm:9@lid"
    assert facts["key_rules"] == ["another id of this chat or person was seen first, and counts"]


async def test_nothing_is_written(store: Store) -> None:
    tables = "SELECT sum(n_tup_ins + n_tup_upd) FROM pg_stat_xact_user_tables"
    async with store.transaction() as connection:
        event = body(platform="whatsapp", chat=Chat(id="601"), sender=Sender(id="9@lid"))
        await explain(event, CATALOG, AT, connection)
        assert await connection.fetchval(tables) == 0


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ({"account": "other"}, "reason", "unknown_account"),
        ({"profile": "other"}, "reason", "unknown_profile"),
        ({"chat": None, "sender": None}, "reason", "no_conversation"),
        (
            {"sender": Sender(id="me")},
            "outcome",
            "kept: our own message, or of a bot that may not speak here or asks nothing",
        ),
        ({"kind": Kind.EDIT}, "outcome", "kept: an event of kind edit starts nothing"),
        (
            {"sender": Sender(id="9", is_staff=True), "chat": Chat(id="601")},
            "outcome",
            "kept: one of our people wrote it, and it starts nothing",
        ),
        ({"chat": None}, "key_rules", ["the sender stands in for the chat, which has no id"]),
        (
            {"chat": Chat(id="-1", kind="group", is_forum=False), "thread_id": "5", "scope": "S"},
            "key_rules",
            [
                "the thread is an address only: it is no topic of its own",
                "each person has a conversation of their own here",
                "the scope counts because the event has one",
            ],
        ),
        (
            {"chat": Chat(id="-1", kind="forum"), "thread_id": "5"},
            "key_rules",
            ["everybody in the thread shares it: thread_sessions_per_user is off"],
        ),
    ],
)
async def test_rules_are_told_without_a_database(
    fields: dict[str, Any], name: str, expected: object
) -> None:
    facts = await explain(body(**fields), CATALOG, AT, None)
    assert facts[name] == expected
    assert "session" not in facts


async def test_the_command_prints_a_table_or_json(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "chatlane.toml").write_text("[platforms.telegram.accounts.bot]\n")
    (tmp_path / "event.json").write_bytes(body())

    async def run(*arguments: str, dsn: str = database_url) -> tuple[int, str, str]:
        process = await start_forked(
            ["explain", "event.json", *arguments],
            directory=tmp_path,
            environment={**os.environ, "CHATLANE_POSTGRES__DSN": dsn, "NO_COLOR": "1"},
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    code, out, err = await run("--at", "2026-05-11T09:00:00")
    assert (code, err) == (0, "")
    assert "a message would open a new one" in out
    code, out, _ = await run("--json")
    assert (code, json.loads(out)["session_key"]) == (0, KEY)
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    code, out, _ = await run("--offline", "--json", dsn=nowhere)
    assert (code, json.loads(out)["session_key"]) == (0, KEY)
    code, _, err = await run(dsn=nowhere)
    assert (code, "--offline" in err) == (1, True)


async def test_what_is_no_event_is_a_dead_letter() -> None:
    facts = await explain(b"{", CATALOG, AT, None)
    assert (facts["outcome"], facts["reason"]) == ("dead letter", "not_json")


async def test_a_command_is_told_with_what_it_does(store: Store) -> None:
    facts = await told(store, body(text="/title plan"))
    assert facts["outcome"] == "command"
    assert (facts["command"], facts["argument"], facts["is_permitted"]) == ("title", "plan", True)
    assert facts["effect"] == "show or set the title; a dash removes it"
    other = await told(store, body(text="/title@other_bot plan"))
    assert other["outcome"] == "kept: a command to another bot"
    assert "command" not in other
