"""What limits the purge of a log."""

from datetime import timedelta

import pytest

from chatlane.postgres.pool import Store
from chatlane.store.logs import log_marks, partitions
from chatlane.store.logs.log_marks import PurgeBounds

pytestmark = pytest.mark.integration

HOUR, WINDOW = timedelta(hours=1), timedelta(hours=72)


async def mark(store: Store, last_sequence: int, generation: str = "g1") -> bool:
    async with store.transaction() as connection:
        return await log_marks.write(connection, "inbound", generation, last_sequence, HOUR)


async def age(store: Store, by: timedelta) -> None:
    async with store.transaction() as connection:
        await connection.execute("UPDATE log_marks SET at = at - $1::interval", by)


async def bounds(store: Store, generation: str = "g1") -> PurgeBounds:
    async with store.transaction() as connection:
        return await log_marks.read_bounds(connection, "inbound", generation, WINDOW)


async def test_a_mark_is_written_once_an_hour(store: Store) -> None:
    assert await mark(store, 10)
    assert not await mark(store, 20)
    await age(store, HOUR)
    assert await mark(store, 30)


async def test_the_newest_mark_beyond_the_window_counts(store: Store) -> None:
    for sequence in (10, 20, 30):
        await mark(store, sequence)
        await age(store, timedelta(hours=36))
    assert (await bounds(store)).marked_sequence == 20


async def test_a_young_mark_and_one_of_another_log_count_for_nothing(store: Store) -> None:
    await mark(store, 10)
    await mark(store, 20, generation="g0")
    assert (await bounds(store)).marked_sequence is None
    await age(store, WINDOW)
    assert (await bounds(store)).marked_sequence == 10


async def test_the_least_cursor_of_all_partitions_counts(store: Store) -> None:
    assert (await bounds(store)).least_cursor is None
    async with store.transaction() as connection:
        for log in ("inbound", "results"):
            await partitions.ensure(connection, log, 3)
        await connection.execute(
            "UPDATE partitions SET cursor = 100 + id * (CASE log WHEN 'inbound' THEN 1 ELSE -1 END)"
        )
    assert (await bounds(store)).least_cursor == 100


async def test_marks_are_deleted_when_no_purge_asks_for_them(store: Store) -> None:
    await mark(store, 10)
    await age(store, 2 * WINDOW + HOUR)
    await mark(store, 20)
    async with store.transaction() as connection:
        await log_marks.delete_old(connection, "inbound", WINDOW)
        rows = await connection.fetch("SELECT last_sequence FROM log_marks")
    assert [row[0] for row in rows] == [20]
