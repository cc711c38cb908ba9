"""Sessions of one person that come to be shared: their key, their title and their locks."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import pytest

from chatlane.errors import StoreUnavailableError
from chatlane.postgres.pool import Store, open_store
from chatlane.store.conversations import sessions

pytestmark = pytest.mark.integration

AT: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
LANE: Final = "agent:main:discord:bot:thread:room:9"
FIRST, SECOND, PARENT = UUID(int=2), UUID(int=3), UUID(int=1)
TITLED: Final = """
INSERT INTO sessions (
    id, session_key, agent, platform, started_at, owner, title, title_scope, parent_id, link_kind)
VALUES ($1, $2, 'main', 'discord', $3, $2, $4, $2, $5, $6)
"""


async def share(store: Store, *ids: UUID) -> None:
    """Let sessions be shared on one lane, as a batch does."""
    async with store.transaction() as connection:
        locked = await sessions.lock(connection, ids)
        for session in locked.values():
            session.owner, session.session_key, session.has_new_key = None, LANE, True
        await sessions.update(connection, locked.values())


async def test_f01_two_sessions_with_one_title_are_shared_on_one_lane(store: Store) -> None:
    async with store.transaction() as connection:
        for session_id, key in ((FIRST, "of-kim"), (SECOND, "of-lee")):
            await connection.execute(TITLED, session_id, key, AT, "plan", None, None)
    await share(store, FIRST, SECOND)
    async with store.transaction() as connection:
        rows = await connection.fetch(
            "SELECT title, title_scope, session_key, owner FROM sessions ORDER BY id"
        )
    assert [tuple(row) for row in rows] == [("plan", LANE, LANE, None), (None, None, LANE, None)]


async def test_f01_sharing_waits_for_no_lock_of_what_was_summed_up(
    store: Store, database_url: str
) -> None:
    """Others lock a parent before its child, and would wait for this transaction in turn."""
    async with store.transaction() as connection:
        await connection.execute(TITLED, PARENT, "of-kim", AT, "plan", None, None)
        await connection.execute(TITLED, FIRST, "of-kim", AT, None, PARENT, "compression")
    minute = timedelta(minutes=1)
    async with (
        open_store(database_url, lock_timeout=minute, statement_timeout=minute) as patient,
        store.transaction() as other,
    ):
        await sessions.lock(other, [PARENT])
        with pytest.raises(StoreUnavailableError) as raised:
            await asyncio.wait_for(share(patient, FIRST), timeout=20)
        assert raised.value.is_held_up
    await share(store, FIRST)
    async with store.transaction() as connection:
        keys = await connection.fetch("SELECT DISTINCT session_key, owner FROM sessions")
    assert [tuple(row) for row in keys] == [(LANE, None)]
