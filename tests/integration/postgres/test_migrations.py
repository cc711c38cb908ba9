"""Each migration by itself: what says that it can be rolled back can, and the others refuse."""

import asyncio
from pathlib import Path
from typing import Final, LiteralString

import asyncpg
import pytest

from chatlane.postgres.migrations import MigrationError, migrate, run_dbmate
from tests.support.eventually import eventually
from tests.support.servers.migrations import apply_each, way_back

pytestmark = pytest.mark.integration

# Everything a migration can leave behind, but for the order of columns, what is in the tables, and
# how a function does what it did before.
_SCHEMA: Final[LiteralString] = """
SELECT 'relation', relname::text, relkind::text, coalesce(reloptions::text, '')
FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'column', attrelid::regclass::text, attname::text,
    format_type(atttypid, atttypmod) || attnotnull || attcollation::regcollation
        || coalesce(pg_get_expr(adbin, adrelid), '')
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT 'index', indexrelid::regclass::text, indrelid::regclass::text,
    pg_get_indexdef(indexrelid)
FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'constraint', conname::text, conrelid::regclass::text, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'function', proname::text, pg_get_function_identity_arguments(oid),
    prosecdef || coalesce(proconfig::text, '')
FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT 'setting', unnest(setconfig), '', ''
FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase
WHERE datname = current_database() AND setrole = 0
"""
_WAITING: Final[LiteralString] = """
SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'lanes'::regclass AND NOT granted)
"""


async def schema_of(connection: asyncpg.Connection) -> set[tuple[str, ...]]:
    return {tuple(row) for row in await connection.fetch(_SCHEMA)}


@pytest.mark.slow
async def test_what_says_that_it_can_be_rolled_back_goes_back_and_up_again(
    empty_database_url: str, tmp_path: Path
) -> None:
    connection = await asyncpg.connect(empty_database_url)
    try:
        before = await schema_of(connection)
        rolled_back = 0
        async for file in apply_each(empty_database_url, tmp_path):
            after = await schema_of(connection)
            assert after != before, file.name
            if way_back(file).startswith("DO $$ BEGIN RAISE"):
                with pytest.raises(MigrationError, match="cannot be rolled back"):
                    await run_dbmate(empty_database_url, tmp_path, "rollback")
            else:
                await run_dbmate(empty_database_url, tmp_path, "rollback")
                assert await schema_of(connection) == before, file.name
                await run_dbmate(empty_database_url, tmp_path, "migrate")
                rolled_back += 1
            assert await schema_of(connection) == after, file.name
            before = after
        assert rolled_back >= 9
    finally:
        await connection.close()


async def test_f12_a_transaction_that_somebody_leaves_open_is_ended(
    empty_database_url: str,
) -> None:
    await migrate(empty_database_url)
    by_hand = await asyncpg.connect(empty_database_url)
    try:
        limit = await by_hand.fetchval("SHOW idle_in_transaction_session_timeout")
        assert limit == "10s"
    finally:
        await by_hand.close()


async def test_a_change_of_the_number_of_partitions_is_finished_before_0180(
    empty_database_url: str, tmp_path: Path
) -> None:
    connection = await asyncpg.connect(empty_database_url)
    try:
        async for file in apply_each(empty_database_url, tmp_path):
            if file.name.startswith("0161_"):
                break
        await connection.execute("INSERT INTO partitions (log, id) VALUES ('inbound', -1)")
        with pytest.raises(MigrationError, match="chatlane admin repartition"):
            await migrate(empty_database_url)
        await connection.execute("UPDATE partitions SET id = 0")
        await migrate(empty_database_url)
        with pytest.raises(asyncpg.CheckViolationError, match="partitions_fixed_check"):
            await connection.execute("UPDATE partitions SET stop_before = 5, next_count = 0")
    finally:
        await connection.close()


async def test_a_migration_that_waits_for_a_table_keeps_nobody_from_it(
    empty_database_url: str, tmp_path: Path
) -> None:
    older, newer = tmp_path / "older", tmp_path / "newer"
    older.mkdir()
    newer.mkdir()
    create = "-- migrate:up\nCREATE TABLE lanes ();\n-- migrate:down\n"
    change = "-- migrate:up\nALTER TABLE lanes ADD COLUMN noted int;\n-- migrate:down\n"
    (older / "0001_create.sql").write_text(create)
    (newer / "0001_create.sql").write_text(create)
    (newer / "0002_change.sql").write_text(change)
    await run_dbmate(empty_database_url, older, "migrate")
    reading = await asyncpg.connect(empty_database_url)
    another = await asyncpg.connect(empty_database_url)
    try:
        async with reading.transaction():
            await reading.execute("SELECT FROM lanes")
            migrating = asyncio.create_task(run_dbmate(empty_database_url, newer, "migrate"))

            async def is_waiting() -> bool:
                return bool(await another.fetchval(_WAITING))

            await eventually(is_waiting)
            # Behind the migration, and before the transaction that it waits for ends.
            await another.execute("SELECT FROM lanes", timeout=20)
            assert not migrating.done()
        await migrating
        await another.execute("SELECT noted FROM lanes")
    finally:
        await reading.close()
        await another.close()
