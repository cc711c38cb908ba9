"""The Postgres connection pool, its transactions, and the classification of its errors.

Works behind pgbouncer in transaction mode: timeouts are `SET LOCAL`, there is no LISTEN and no
session lock, and prepared statements can be switched off for old versions.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, LiteralString, TypeAlias
from uuid import UUID

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from chatlane.errors import StoreUnavailableError, SupersededError
from chatlane.postgres.asyncpg_patches import patch_asyncpg

Connection: TypeAlias = PoolConnectionProxy
"""A connection with a transaction in progress."""
Transaction: TypeAlias = Callable[[], AbstractAsyncContextManager[Connection]]
"""Opens a transaction; see `Store.transaction`."""

# Error classes and codes that a retry may cure: connection (08), rejected login (28),
# serialization and deadlock, lock and statement timeouts, resources (53), shutdown (57P0x), and a
# demoted primary that answers reads only (25006). A missing privilege (42501), a table that is
# missing or invisible without a right on its schema (42P01) and a missing database (3D000) are
# transient too: no message causes them, so no message may become a dead letter for them.
_TRANSIENT_CLASSES: Final = ("08", "28", "53", "57P")
_TRANSIENT_CODES: Final = frozenset(
    {"40001", "40P01", "55P03", "57014", "25006", "42501", "42P01", "3D000"}
)
# After these errors the connection may be pinned to a server that never accepts writes again.
_STALE_SERVER: Final = ("25006", "57P", "08")

# asyncpg raises an internal error on a connection that a stopping server closed between two
# statements.
_BROKEN: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


def columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Return the column arrays that one `unnest` statement writes; `width` empty ones for no rows."""
    transposed = [list(column) for column in zip(*rows, strict=True)]
    return transposed or [[] for _ in range(width)]


def count_of(status: str) -> int:
    """Return the number of rows from the status of a statement, such as `DELETE 3`."""
    return int(status.rpartition(" ")[2])


def expect_rows(status: str, rows: Sized, table: str) -> None:
    """Raise unless a statement wrote all of these rows.

    Raises:
        SupersededError: Another transaction changed some of them first.
    """
    if count_of(status) != len(rows):
        raise SupersededError(table)


PROBE_SQL: Final[LiteralString] = """
-- probe: a write that changes nothing, in a row that only this process writes
UPDATE routers SET version = version WHERE id = $1
"""


async def probe_write(connection: Connection, router: UUID) -> None:
    """Check that Postgres accepts writes; a demoted primary rejects this even if no row matches."""
    await connection.execute(PROBE_SQL, router)


def is_transient(sqlstate: str) -> bool:
    """Return whether a statement that failed with this code may succeed later."""
    return sqlstate in _TRANSIENT_CODES or sqlstate.startswith(_TRANSIENT_CLASSES)


class Store:
    """Opens transactions; the only class that uses the pool.

    Args:
        pool: An open pool.
        lock_timeout: Longest wait for one row lock.
        statement_timeout: Longest single statement. It is less than half a lease, so that a
            hanging batch fails before its partition leases expire.
        acquire_timeout: Longest wait for a free connection.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        *,
        lock_timeout: timedelta,
        statement_timeout: timedelta,
        acquire_timeout: timedelta,
    ) -> None:
        self._pool = pool
        self._acquire_seconds = acquire_timeout.total_seconds()
        # A connection is `idle in transaction` half of the time. A router that freezes in this
        # state must not hold row locks past its lease.
        self._begin = (
            "BEGIN;"
            f"SET LOCAL lock_timeout = {_milliseconds(lock_timeout)};"
            f"SET LOCAL statement_timeout = {_milliseconds(statement_timeout)};"
            # Postgres keeps a plan made for a small table while the table grows, until the next
            # ANALYZE: locking 512 sessions of 100,000 took 230 ms instead of 8. JIT never pays
            # off for these statements, whatever the estimate.
            "SET LOCAL enable_seqscan = off;"
            "SET LOCAL jit = off;"
            f"SET LOCAL idle_in_transaction_session_timeout = "
            f"{_milliseconds(2 * statement_timeout)}"
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Run the block in one READ COMMITTED transaction; roll back on any exception.

        Raises:
            StoreUnavailableError: A retry may cure the error. After a connection lost during COMMIT
                the outcome is unknown.
        """
        with self._translated():
            async with self._pool.acquire(timeout=self._acquire_seconds) as connection:
                # One round trip instead of four: the simple protocol takes several statements.
                await connection.execute(self._begin)
                try:
                    yield connection
                except BaseException:
                    # If the rollback fails, the connection is lost. Raise the first exception,
                    # which may be a cancellation.
                    with suppress(asyncpg.PostgresError, *_BROKEN):
                        await connection.execute("ROLLBACK")
                    raise
                await connection.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except asyncpg.PostgresError as error:
            sqlstate = error.sqlstate or ""
            if sqlstate.startswith(_STALE_SERVER):
                self._expire_soon()
            if is_transient(sqlstate):
                raise StoreUnavailableError(sqlstate, type(error).__name__) from error
            raise
        except _BROKEN as error:
            raise StoreUnavailableError(kind=type(error).__name__) from error

    def _expire_soon(self) -> None:
        # Runs in the error path of one connection: the pool drops the others on their release.
        task = asyncio.ensure_future(self._pool.expire_connections())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())


def _milliseconds(span: timedelta) -> int:
    return max(1, round(span.total_seconds() * 1000))


@asynccontextmanager
async def open_store(
    dsn: str | Callable[[], str],
    *,
    max_size: int = 8,
    lock_timeout: timedelta = timedelta(seconds=1),
    statement_timeout: timedelta = timedelta(seconds=1.4),
    acquire_timeout: timedelta = timedelta(seconds=1),
    statement_cache_size: int = 256,
    application_name: str = "chatlane",
) -> AsyncIterator[Store]:
    """Open the pool, and close it at the end of the block.

    The server need not be reachable yet: the pool connects on first use, and until then
    transactions raise `StoreUnavailableError`.

    Args:
        dsn: Where and as which user to connect. A callable is called for every new connection,
            so that a password may change.
        statement_cache_size: Prepared statements per connection; 0 behind a pgbouncer before
            1.21 in transaction mode.
    """

    async def connect(*_: object, **options: Any) -> "asyncpg.Connection":  # noqa: ANN401 # asyncpg's
        try:
            return await asyncpg.connect(dsn if isinstance(dsn, str) else dsn(), **options)
        except ValueError as error:
            # The error text quotes the DSN.
            raise StoreUnavailableError(kind=type(error).__name__) from None

    patch_asyncpg()
    pool = await asyncpg.create_pool(
        connect=connect,
        min_size=0,
        max_size=max_size,
        timeout=acquire_timeout.total_seconds(),
        command_timeout=2 * statement_timeout.total_seconds(),
        statement_cache_size=statement_cache_size,
        max_inactive_connection_lifetime=300,
        server_settings={"application_name": application_name},
        # Transactions leave no state to reset, and a reset costs a round trip after each one.
        reset=_nothing_to_reset,
        target_session_attrs=asyncpg.connect_utils.SessionAttribute.read_write,
    )
    try:
        yield Store(
            pool,
            lock_timeout=lock_timeout,
            statement_timeout=statement_timeout,
            acquire_timeout=acquire_timeout,
        )
    finally:
        await _close(pool)


async def _nothing_to_reset(connection: "asyncpg.Connection") -> None:
    del connection


async def _close(pool: asyncpg.Pool) -> None:
    # `close` waits for borrowed connections without a limit; a frozen server must not delay exit.
    try:
        async with asyncio.timeout(2):
            await pool.close()
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pool.terminate()
