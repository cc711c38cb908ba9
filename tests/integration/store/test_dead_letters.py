"""Dead letters are written once and listed newest first."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from chatlane.domain.effects import DeadRow
from chatlane.postgres.pool import Store
from chatlane.store import dead_letters

pytestmark = pytest.mark.integration


def letter(letter_id: UUID | None = None, body: bytes | None = b"not json") -> DeadRow:
    return DeadRow(
        id=letter_id or uuid4(),
        stage="inbound",
        reason="not_json",
        log="inbound",
        partition=3,
        sequence=17,
        stored_at=datetime(2026, 5, 11, 12, tzinfo=UTC),
        subject="chat.v1.log.3.telegram.bot.none",
        session_id=None,
        digest=b"\x01" * 32,
        size_bytes=8,
        detail="expected value",
        body=body,
    )


async def test_a_repeat_changes_nothing(store: Store) -> None:
    first, second = letter(), letter()
    async with store.transaction() as connection:
        assert await dead_letters.insert(connection, [first]) == {first.id}
    async with store.transaction() as connection:
        assert await dead_letters.insert(connection, [first, second, second]) == {second.id}
        assert await connection.fetchval("SELECT count(*) FROM dead_letters") == 2
        assert await dead_letters.insert(connection, []) == set()


async def test_the_body_is_kept_but_not_listed(store: Store) -> None:
    row = letter()
    async with store.transaction() as connection:
        await dead_letters.insert(connection, [row])
        (listed,) = await dead_letters.list_recent(connection, 10)
        assert await connection.fetchval("SELECT body FROM dead_letters") == b"not json"
    assert listed[1] == row._replace(body=None)


async def test_the_newest_come_first_and_pages_follow_each_other(store: Store) -> None:
    rows = [letter() for _ in range(5)]
    for row in rows:
        async with store.transaction() as connection:
            await dead_letters.insert(connection, [row])
    async with store.transaction() as connection:
        page = await dead_letters.list_recent(connection, 3)
        rest = await dead_letters.list_recent(connection, 3, before=page[-1][0])
    assert [row.id for _, row in [*page, *rest]] == [row.id for row in reversed(rows)]


async def test_the_oldest_of_a_reason_come_first_to_who_settles_them(store: Store) -> None:
    rows = [letter() for _ in range(5)]
    for row in rows:
        async with store.transaction() as connection:
            await dead_letters.insert(connection, [row])
    async with store.transaction() as connection:
        found = await dead_letters.list_oldest(connection, rows[0].reason, 3)
        others = await dead_letters.list_oldest(connection, "expired", 3)
    assert ([row.id for row in found], others) == ([row.id for row in rows[:3]], [])
