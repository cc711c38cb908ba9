"""The jobs that need nothing but the database, on a real one."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from chatlane.maintenance import TableMaintenance
from chatlane.postgres.pool import Store
from chatlane.store.logs import routers

pytestmark = pytest.mark.integration

WINDOW = timedelta(hours=72)


@pytest.fixture
def database_url(own_database_url: str) -> str:
    """Give each test a database of its own, because days are tables."""
    return own_database_url


async def oldest_day(store: Store) -> str:
    async with store.transaction() as connection:
        name: str = await connection.fetchval(
            "SELECT min(relid::text) FROM pg_partition_tree('seen') WHERE isleaf"
        )
    return name


@pytest.mark.parametrize("window", [WINDOW, timedelta(days=20)])
async def test_marks_outlive_what_may_be_read_again(store: Store, window: timedelta) -> None:
    table_maintenance = TableMaintenance(store.transaction, window)
    assert await table_maintenance.create_seen_days() == 5
    today = datetime.now(UTC).date()
    async with store.transaction() as connection:
        await connection.execute(
            "SELECT create_seen_days($1, $2)", today - timedelta(days=30), today
        )
    assert await table_maintenance.drop_seen_days() > 0
    assert await table_maintenance.drop_seen_days() == 0
    kept_since = today - window - timedelta(days=2)
    assert await oldest_day(store) == f"seen_{kept_since:%Y%m%d}"


async def test_routers_are_forgotten_when_they_are_dead_for_long(store: Store) -> None:
    async with store.transaction() as connection:
        for seen_until in (timedelta(minutes=-11), timedelta(minutes=-9), timedelta(minutes=1)):
            await routers.heartbeat(connection, uuid4(), "test", seen_until)
    await TableMaintenance(store.transaction).forget_dead_routers()
    async with store.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM routers") == 2
