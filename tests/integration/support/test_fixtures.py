"""The fixtures give every test clean servers of its own."""

import asyncpg
import nats
import pytest

from tests.support.servers.backends import RunningPostgres, RunningServer

pytestmark = pytest.mark.integration


async def assert_no_stream_then_add_one(url: str) -> None:
    client = await nats.connect(url)
    try:
        jetstream = client.jetstream()
        assert await jetstream.streams_info() == []
        await jetstream.add_stream(name="LEFT_BEHIND", subjects=["left"])
    finally:
        await client.close()


@pytest.mark.parametrize("run", [1, 2])
async def test_the_shared_nats_comes_without_streams(nats_url: str, run: int) -> None:
    del run
    await assert_no_stream_then_add_one(nats_url)


@pytest.mark.parametrize("run", [1, 2])
async def test_each_database_is_migrated_and_empty(own_database_url: str, run: int) -> None:
    connection = await asyncpg.connect(own_database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM dead_letters") == 0
        await connection.execute("DROP TABLE dead_letters")
    finally:
        await connection.close()
    assert run


async def test_an_empty_database_has_no_table(empty_database_url: str) -> None:
    connection = await asyncpg.connect(empty_database_url)
    try:
        query = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert await connection.fetchval(query) == 0
    finally:
        await connection.close()


async def test_an_own_nats_can_be_killed_and_started(nats_server: RunningServer) -> None:
    await assert_no_stream_then_add_one(nats_server.url)
    await nats_server.kill()
    await nats_server.start()
    client = await nats.connect(nats_server.url)
    try:
        assert len(await client.jetstream().streams_info()) == 1
    finally:
        await client.close()


async def test_an_own_postgres_can_be_killed_and_started(own_postgres: RunningPostgres) -> None:
    await own_postgres.kill()
    await own_postgres.start()
    connection = await asyncpg.connect(own_postgres.dsn("postgres"))
    await connection.close()
