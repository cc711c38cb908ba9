"""The days of the dedupe marks come and go without standing in the way of a batch."""

import asyncio
from datetime import UTC, date, datetime, timedelta

import pytest
from asyncpg import InvalidParameterValueError

from chatlane.domain.effects import SeenRow
from chatlane.errors import StoreUnavailableError
from chatlane.postgres.pool import Store
from chatlane.store.addressing import dedupe_marks

pytestmark = pytest.mark.integration

AHEAD = timedelta(days=3)


@pytest.fixture
def database_url(own_database_url: str) -> str:
    """Give each test a database of its own, because days are tables."""
    return own_database_url


async def create(store: Store, ahead: timedelta = AHEAD) -> int:
    async with store.transaction() as connection:
        return await dedupe_marks.create_partitions(connection, ahead)


async def drop(store: Store, kept: timedelta) -> bool:
    async with store.transaction() as connection:
        return await dedupe_marks.drop_oldest_partition(connection, kept)


async def days(store: Store) -> list[str]:
    async with store.transaction() as connection:
        rows = await connection.fetch(
            "SELECT relid::text FROM pg_partition_tree('seen') WHERE isleaf ORDER BY 1"
        )
    return [row[0] for row in rows]


async def add_day(store: Store, day: date) -> None:
    async with store.transaction() as connection:
        await connection.execute("SELECT create_seen_days($1, $1)", day)


def name_of(day: date) -> str:
    return f"seen_{day:%Y%m%d}"


async def test_the_coming_days_are_made_once(store: Store) -> None:
    today = datetime.now(UTC).date()
    assert await create(store) == 5
    assert await create(store) == 0
    wanted = [name_of(today + timedelta(days=offset)) for offset in range(-1, 4)]
    assert await days(store) == wanted
    assert await create(store, timedelta(days=4)) == 1


async def test_many_routers_may_make_them_at_once(store: Store) -> None:
    made = await asyncio.gather(*(create(store) for _ in range(6)))
    assert sorted(made) == [0, 0, 0, 0, 0, 5]


async def test_a_mark_is_found_in_its_day(store: Store) -> None:
    await create(store)
    async with store.transaction() as connection:
        await dedupe_marks.insert(connection, [SeenRow(b"digest", None, None)])
        assert (await dedupe_marks.probe(connection, [b"digest", b"other"])).known == {b"digest"}


async def test_a_day_is_made_while_a_batch_uses_the_table(store: Store) -> None:
    await create(store, timedelta(0))
    async with store.transaction() as connection:
        await dedupe_marks.insert(connection, [SeenRow(b"digest", None, None)])
        async with asyncio.timeout(1):
            assert await create(store) == 3


async def test_old_days_go_one_by_one(store: Store) -> None:
    today = datetime.now(UTC).date()
    for offset in (8, 7, 5):
        await add_day(store, today - timedelta(days=offset))
    await create(store, timedelta(0))
    kept = timedelta(days=5)
    assert [await drop(store, kept) for _ in range(3)] == [True, True, False]
    assert await days(store) == [name_of(today - timedelta(days=offset)) for offset in (5, 1, 0)]


async def test_a_day_in_use_is_dropped_another_time(store: Store) -> None:
    await create(store)
    await add_day(store, datetime.now(UTC).date() - timedelta(days=60))
    async with store.transaction() as connection:
        await dedupe_marks.insert(connection, [SeenRow(b"digest", None, None)])
        with pytest.raises(StoreUnavailableError):
            await drop(store, timedelta(days=5))
    assert await drop(store, timedelta(days=5))


@pytest.mark.parametrize(
    "call",
    [
        "create_seen_days(current_date - 400, current_date)",
        "create_seen_days(current_date, current_date + 400)",
        "drop_seen_day(current_date + 1)",
        "drop_seen_day('infinity')",
    ],
)
async def test_no_router_can_ask_for_days_that_would_harm(store: Store, call: str) -> None:
    """They work with the rights of the owner, for whoever may call them."""
    await create(store)
    before = await days(store)
    with pytest.raises(InvalidParameterValueError):
        await select(store, call)
    assert await days(store) == before


async def select(store: Store, call: str) -> None:
    async with store.transaction() as connection:
        await connection.execute(f"SELECT {call}")  # one of those above
