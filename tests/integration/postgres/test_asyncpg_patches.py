"""What asyncpg takes as an array, because the names that it looks up for that are replaced."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from asyncpg.exceptions import DataError

from chatlane.postgres.pool import Store

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", ["", "a", None, "{1,2}", "NULL", "\N{SNOWMAN}"]),
        ("uuid", [UUID(int=0), None, UUID(int=2**128 - 1)]),
        ("bytea", [b"", b"\x00\xff", None]),
        ("bigint", [0, -(2**63), None]),
        ("boolean", [True, None, False]),
        ("timestamptz", [datetime(2026, 11, 29, tzinfo=UTC), None]),
        ("interval", [timedelta(days=-1, microseconds=1), None]),
        ("text", []),
        ("bigint", [[1, None], [3, 4]]),
    ],
)
@pytest.mark.parametrize("array", [list, tuple])
async def test_an_array_comes_back_as_it_was(
    store: Store, kind: str, values: list[object], array: type[list[object] | tuple[object, ...]]
) -> None:
    async with store.transaction() as connection:
        assert await connection.fetchval(f"SELECT $1::{kind}[]", array(values)) == values


async def test_asyncpg_looks_up_the_replaced_names(store: Store) -> None:
    # A set is an array to asyncpg as it is released.
    async with store.transaction() as connection:
        with pytest.raises(DataError, match="sized iterable container expected"):
            await connection.fetchval("SELECT $1::text[]", {"a"})
