"""What the session API reads, against a real Postgres."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest
from pydantic_core import to_json

from chatlane.store.pool import open_store
from chatlane.store.session_reads import SessionReads
from chatlane_schemas.events import EndReason
from chatlane_schemas.inbound import Attachment

pytestmark = pytest.mark.integration

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def session_id(number: int) -> UUID:
    return UUID(int=(0x018F << 112) + number)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def reads(database_url: str) -> AsyncIterator[SessionReads]:
    async with open_store(database_url) as store:
        yield SessionReads(store)


async def add_session(
    connection: asyncpg.Connection,
    number: int,
    *,
    platform: str = "telegram",
    agent: str = "main",
    end_reason: str | None = None,
) -> UUID:
    identity = session_id(number)
    await connection.execute(
        """
        INSERT INTO sessions (id, session_key, agent, platform, started_at, ended_at, end_reason,
                              next_seq)
        VALUES ($1, $2, $3, $4, $5, $6, $7, 4)
        """,
        identity,
        f"agent:{agent}:{platform}:bot:dm:{number}",
        agent,
        platform,
        AT + timedelta(minutes=number),
        AT + timedelta(days=1) if end_reason else None,
        end_reason,
    )
    return identity


async def add_rows(
    connection: asyncpg.Connection,
    identity: UUID,
    contents: Sequence[str | None],
    details: object = None,
) -> None:
    await connection.executemany(
        """
        INSERT INTO messages (session_id, seq, role, content, details, created_at)
        VALUES ($1, $2, 'assistant', $3, $4, $5)
        """,
        [
            (identity, seq, content, to_json(details).decode() if details else None, AT)
            for seq, content in enumerate(contents, start=1)
        ],
    )


async def test_session_shows_what_is_stored(
    reads: SessionReads, connection: asyncpg.Connection
) -> None:
    identity = await add_session(connection, 1, end_reason="idle")

    session = await reads.find(identity)

    assert session is not None
    assert session.id == identity
    assert (session.platform, session.agent) == ("telegram", "main")
    assert session.started_at == session.last_activity_at == AT + timedelta(minutes=1)
    assert session.end_reason is EndReason.IDLE
    assert session.message_count == 3
    assert not session.is_busy


async def test_unknown_session_is_none(reads: SessionReads) -> None:
    assert await reads.find(session_id(9)) is None
    assert await reads.find_by_key("agent:main:telegram:bot:dm:9") is None


async def test_key_leads_to_the_session_of_its_lane(
    reads: SessionReads, connection: asyncpg.Connection
) -> None:
    await add_session(connection, 1, end_reason="daily")
    current = await add_session(connection, 2)
    key = "agent:main:telegram:bot:dm:1"
    await connection.execute(
        "INSERT INTO lanes (session_key, session_id) VALUES ($1, $2)", key, current
    )

    session = await reads.find_by_key(key)

    assert session is not None
    assert session.id == current


async def test_list_is_newest_first_and_filtered(
    reads: SessionReads, connection: asyncpg.Connection
) -> None:
    for number, (platform, agent) in enumerate(
        [("telegram", "main"), ("slack", "main"), ("slack", "notes"), ("telegram", "notes")]
    ):
        await add_session(connection, number, platform=platform, agent=agent)

    async def listed(
        platform: str | None = None, agent: str | None = None, older_than: UUID | None = None
    ) -> list[UUID]:
        found = await reads.list(platform=platform, agent=agent, older_than=older_than, limit=3)
        return [session.id for session in found]

    assert await listed() == [session_id(n) for n in (3, 2, 1)]
    assert await listed(older_than=session_id(1)) == [session_id(0)]
    assert await listed(platform="slack") == [session_id(n) for n in (2, 1)]
    assert await listed(agent="notes") == [session_id(n) for n in (3, 2)]
    assert await listed(platform="slack", agent="main") == [session_id(1)]
    assert await listed(platform="slack", older_than=session_id(2)) == [session_id(1)]


async def test_transcript_is_read_from_the_end(
    reads: SessionReads, connection: asyncpg.Connection
) -> None:
    identity = await add_session(connection, 1)
    await add_rows(connection, identity, ["a", "b", None, "d"])

    newest = await reads.transcript(identity, below_seq=100, limit=3, max_bytes=1000)
    older = await reads.transcript(identity, below_seq=2, limit=3, max_bytes=1000)

    assert [(row.seq, row.content) for row in newest] == [(4, "d"), (3, None), (2, "b")]
    assert [row.content for row in older] == ["a"]


async def test_transcript_stops_at_its_budget_but_gives_one_row(
    reads: SessionReads, connection: asyncpg.Connection
) -> None:
    identity = await add_session(connection, 1)
    await add_rows(connection, identity, ["x" * 400] * 4)

    fitting = await reads.transcript(identity, below_seq=100, limit=10, max_bytes=1000)
    one = await reads.transcript(identity, below_seq=100, limit=10, max_bytes=10)

    assert [row.seq for row in fitting] == [4, 3]
    assert [row.seq for row in one] == [4]


async def test_row_shows_its_details(reads: SessionReads, connection: asyncpg.Connection) -> None:
    identity = await add_session(connection, 1)
    attachment = {"url": "https://files.test/a.png", "media_type": "image/png"}
    call = {"id": "call-1", "function": {"name": "look"}}
    details = {"tool_calls": [call], "tool_call_id": "t", "tool_name": "n", "kind": "message"}
    await add_rows(connection, identity, ["a"], {**details, "attachments": [attachment]})

    (row,) = await reads.transcript(identity, below_seq=100, limit=10, max_bytes=1000)

    assert row.tool_calls == [call]
    assert (row.tool_call_id, row.tool_name) == ("t", "n")
    assert row.attachments == (Attachment.model_validate(attachment),)
