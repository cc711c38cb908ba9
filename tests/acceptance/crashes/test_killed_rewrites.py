"""A transcript that is written anew by processes that are killed while they do it."""

import asyncio
import multiprocessing
import signal
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import asyncpg
import pytest

from tests.acceptance.crashes.transcript_rewriter import rewrite_until_killed

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]

SESSION: Final = UUID(int=(0x018F << 112) + 1)
OLD: Final = tuple(f"r{n}" for n in range(1, 201))
KEPT: Final = OLD[-11:]
KILLS: Final = 100


async def transcript(connection: asyncpg.Connection) -> tuple[str, ...]:
    rows = await connection.fetch(
        "SELECT content FROM messages WHERE session_id = $1 ORDER BY seq", SESSION
    )
    return tuple(row["content"] for row in rows)


async def test_a_rewrite_that_is_killed_leaves_the_old_or_the_new(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        """
        INSERT INTO sessions (id, session_key, agent, platform, started_at, next_seq)
        VALUES ($1, 'agent:main:telegram:bot:dm:1', 'main', 'telegram', $2, 201)
        """,
        SESSION,
        datetime.now(UTC),
    )
    await connection.execute(
        """
        INSERT INTO messages (session_id, seq, role, content, created_at)
        SELECT $1, n, 'user', 'r' || n, now() FROM generate_series(1, 200) AS n
        """,
        SESSION,
    )
    # Children of a process that has read all modules before: they begin within milliseconds.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.acceptance.crashes.transcript_rewriter"])

    for seed in range(KILLS):
        child = processes.Process(
            target=rewrite_until_killed, args=(database_url, SESSION, seed, KEPT)
        )
        child.start()
        await asyncio.to_thread(child.join)
        assert child.exitcode == -signal.SIGKILL
        shown = await transcript(connection)
        assert shown[0].startswith(f"s{seed}.")
        assert shown[1:] == KEPT
    archived = await connection.fetch(
        "SELECT removal, count(*) FROM removed_messages GROUP BY removal ORDER BY removal"
    )
    assert [row["count"] for row in archived] == [len(OLD)] + [12] * (len(archived) - 1)
    [[revision, live]] = await connection.fetch(
        "SELECT revision, next_seq - 1 - seq_gaps FROM sessions"
    )
    assert (revision, live) == (len(archived), 12)
    await connection.close()
