"""What chatlane is measured with: the naive worker does its work, and prepared sessions are found."""

from collections.abc import AsyncIterator
from itertools import islice

import asyncpg
import nats
import pytest

from tests.benchmarks import existing
from tests.benchmarks.programs import naive_worker
from tests.benchmarks.programs.generator import Backlog, fill
from tests.support.servers.log_streams import PARTITIONS, open_logs

pytestmark = pytest.mark.integration

MESSAGES = 40
CHATS = 8


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def test_the_naive_worker_writes_and_publishes_each_message_once(
    nats_url: str, database_url: str, database: asyncpg.Connection
) -> None:
    backlog = Backlog("default", CHATS, "chat").arrivals()
    async with open_logs(nats_url):
        positions = await fill(nats_url, islice(backlog, MESSAGES), PARTITIONS)
        first = min(min(its) for its in positions.values())
        done = await naive_worker.work(nats_url, database_url, first, MESSAGES)
    assert (done.sessions, done.messages) == (CHATS, MESSAGES)
    assert done.per_second > 0
    assert await database.fetchval("SELECT to_regclass('naive_sessions')") is None
    client = await nats.connect(nats_url)
    assert {its.config.name for its in await client.jetstream().streams_info()} == {
        "INBOUND",
        "RESULTS",
    }
    await client.close()


async def test_the_generator_tells_which_partition_has_what(nats_url: str) -> None:
    backlog = Backlog("default", CHATS, "chat").arrivals()
    async with open_logs(nats_url):
        positions = await fill(nats_url, islice(backlog, MESSAGES), PARTITIONS)
        client = await nats.connect(nats_url)
        for partition, sequences in positions.items():
            last = await client.jetstream().get_last_msg("INBOUND", f"chat.v1.log.{partition}.>")
            assert last.seq == sequences[-1]
        await client.close()
    assert sum(map(len, positions.values())) == MESSAGES


@pytest.mark.parametrize(
    ("agent", "counts"),
    [
        ("main", {"turns": 30, "waiting": 30, "messages": 0}),
        ("notes", {"turns": 0, "waiting": 0, "messages": 30}),
    ],
)
async def test_sessions_are_prepared_with_all_that_belongs_to_them(
    database: asyncpg.Connection, agent: str, counts: dict[str, int]
) -> None:
    await existing.fill(database, 30, agent)
    for table, count in {"lanes": 30, "sessions": 30, "seen": 30, **counts}.items():
        assert await database.fetchval(f"SELECT count(*) FROM {table}") == count  # noqa: S608
    key, its_agent, turn = await database.fetchrow(  # type: ignore[misc]
        "SELECT lanes.session_key, sessions.agent, turns.id FROM lanes"
        " JOIN sessions ON sessions.id = lanes.session_id"
        " LEFT JOIN turns ON turns.id = sessions.active_turn"
        " WHERE lanes.session_key LIKE '%:old-7'"
    )
    assert (key, its_agent) == (f"agent:{agent}:telegram:bot:dm:old-7", agent)
    assert (turn is not None) == (agent == "main")
