"""Transactions that are cut short: by a cancellation, or because their process stood still."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from random import SystemRandom

import asyncpg
import pytest
from asyncpg import InterfaceError
from asyncpg.pool import PoolConnectionProxy

from chatlane.errors import StoreUnavailableError
from chatlane.jobs import Job
from chatlane.maintenance import MaintenanceLoop
from chatlane.nats.tasks import end_task
from chatlane.postgres.pool import Store, open_store
from tests.support.eventually import eventually
from tests.support.servers.databases import execute, login_of, with_database, with_login

pytestmark = pytest.mark.integration


async def started(store: Store) -> None:
    """Return when a statement of another transaction runs."""
    async with asyncio.timeout(5):
        while True:
            async with store.transaction() as connection:
                if await connection.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                    " AND datname = current_database()"
                ):
                    return


async def sleep_in(store: Store) -> None:
    async with store.transaction() as connection:
        await connection.execute("SELECT pg_sleep(1)")


async def test_a_cancelled_transaction_ends_its_task_as_cancelled(store: Store) -> None:
    task = asyncio.create_task(sleep_in(store))
    await started(store)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_work_that_is_cancelled_in_a_statement_ends(store: Store) -> None:
    job = Job("sleep", timedelta(0), lambda: sleep_in(store))
    task = asyncio.create_task(MaintenanceLoop([job], SystemRandom()).run())
    await started(store)
    async with asyncio.timeout(3):
        await end_task(task)


async def raise_without_connection(store: Store) -> None:
    async with store.transaction() as connection:
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        async with store.transaction() as other:
            await other.execute("SELECT pg_terminate_backend($1, 5000)", pid)
        await eventually(connection_is_lost(connection))
        raise KeyError


def connection_is_lost(connection: PoolConnectionProxy) -> Callable[[], bool]:
    def check() -> bool:
        try:
            return bool(connection.is_closed())
        except InterfaceError:
            # The pool has taken it back.
            return True

    return check


async def test_what_ended_a_transaction_is_told_although_its_connection_is_lost(
    store: Store,
) -> None:
    with pytest.raises(KeyError):
        await raise_without_connection(store)


async def stand_still_in(store: Store) -> None:
    async with store.transaction() as connection:
        await connection.execute("SELECT 1")
        time.sleep(0.4)  # noqa: ASYNC251 - as when the whole process is stopped
        await connection.execute("SELECT 1")


async def test_a_transaction_frozen_past_its_timeout_may_be_tried_again(database_url: str) -> None:
    short = timedelta(milliseconds=50)
    async with open_store(database_url, statement_timeout=short) as store:
        with pytest.raises(StoreUnavailableError):
            await stand_still_in(store)


@asynccontextmanager
async def login(database_url: str, password: str) -> AsyncIterator[str]:
    """Make a user who may connect, and nothing else; drop it at the end."""
    name = f"test_login_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(database_url)
    try:
        await admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        try:
            yield name
        finally:
            await admin.execute(f"DROP ROLE {name}")
    finally:
        await admin.close()


async def test_a_changed_password_is_used_by_new_connections(database_url: str) -> None:
    async with login(database_url, "old") as name:
        told = "old"
        async with open_store(lambda: with_login(database_url, name, told)) as store:
            async with store.transaction() as connection:
                await connection.execute("SELECT 1")
            await execute(database_url, f"ALTER ROLE {name} PASSWORD 'new'")
            async with store.transaction() as connection:
                await connection.execute("SELECT 1")
            await execute(
                database_url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1",
                name,
            )
            with pytest.raises(StoreUnavailableError):
                await refused(store)
            with pytest.raises(StoreUnavailableError, match="28P01"):
                await refused(store)
            told = "new"
            async with store.transaction() as connection:
                await connection.execute("SELECT 1")


async def test_a_right_that_is_missing_is_no_fault_of_what_needed_it(database_url: str) -> None:
    """No message may be set aside because somebody has forgotten a grant."""
    async with open_store(await login_of(database_url, "chatlane_reader")) as store:
        with pytest.raises(StoreUnavailableError, match=r"chatlane admin grants.*42501"):
            await refused(store, "DELETE FROM messages")


async def test_tables_out_of_sight_are_no_fault_of_what_needed_them(database_url: str) -> None:
    """Without a right on the schema, Postgres finds no table in it."""
    async with (
        login(database_url, "some") as name,
        open_store(with_login(database_url, name, "some")) as store,
    ):
        with pytest.raises(StoreUnavailableError, match=r"chatlane admin grants.*42P01"):
            await refused(store, "SELECT 1 FROM messages")


async def test_a_database_that_is_not_there_may_come(database_url: str) -> None:
    async with open_store(with_database(database_url, "test_not_there")) as store:
        with pytest.raises(StoreUnavailableError, match="3D000"):
            await refused(store)


async def refused(store: Store, statement: str = "SELECT 1") -> None:
    async with store.transaction() as connection:
        await connection.execute(statement)
