"""What the session API reads, against a real Postgres."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from chatlane.postgres.pool import open_store
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.events import EndReason

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
