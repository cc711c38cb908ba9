"""The one pool of Postgres connections, its transactions, and the classes of its errors.

Works behind pgbouncer in transaction mode: timeouts are `SET LOCAL`, there is no LISTEN and no
session lock, and prepared statements can be switched off for old versions.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from chatlane.errors import StoreUnavailableError
from chatlane.postgres.asyncpg_patches import patch_asyncpg

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

# Whole classes and single codes that a later attempt may not meet: connection (08), a login that
# is refused (28), serialization and deadlock, lock and statement timeouts, resources (53),
# shutdown (57P0x), and a demoted primary that answers reads only (25006). No message is to blame
# for a right that is missing (42501), a table that is or is out of sight without a right on its
# schema (42P01), or a database that is (3D000), so none may be set aside.
_TRANSIENT_CLASSES: Final = ("08", "28", "53", "57P")
_TRANSIENT_CODES: Final = frozenset(
    {"40001", "40P01", "55P03", "57014", "25006", "42501", "42P01", "3D000"}
)
# After these the connection may be pinned to a server that will never take a write again.
_STALE_SERVER: Final = ("25006", "57P", "08")

# An internal error is what asyncpg says on a connection that the dying server has told it is
# ending, between two statements.
_BROKEN: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


def is_transient(sqlstate: str) -> bool:
    """Return whether a statement that failed with this code may succeed later."""
    return sqlstate in _TRANSIENT_CODES or sqlstate.startswith(_TRANSIENT_CLASSES)


class Store:
    """Hands out transactions; the only place that knows the pool.

    Args:
        pool: An open pool.
        lock_timeout: Longest wait for one row lock.
        statement_timeout: Longest single statement; under half a lease, so that a batch that
            hangs is over before its partitions are.
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
        # Half a connection's life is spent in `idle in transaction`; a router that is frozen
        # there must not hold row locks past its lease.
        self._begin = (
            "BEGIN;"
            f"SET LOCAL lock_timeout = {_milliseconds(lock_timeout)};"
            f"SET LOCAL statement_timeout = {_milliseconds(statement_timeout)};"
            # A plan made while a table was small is kept while the table grows, until the next
            # ANALYZE: 512 sessions of 100,000 were locked in 230 ms instead of 8. And no plan
            # of ours is worth compiling, whatever its estimate.
            "SET LOCAL enable_seqscan = off;"
            "SET LOCAL jit = off;"
            f"SET LOCAL idle_in_transaction_session_timeout = "
            f"{_milliseconds(2 * statement_timeout)}"
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["PoolConnectionProxy"]:
        """Run the block in one READ COMMITTED transaction; roll back on any exception.

        Raises:
            StoreUnavailableError: For every error that a retry may cure, a lost connection
                during COMMIT included: then the outcome is unknown.
        """
        with self._translated():
            async with self._pool.acquire(timeout=self._acquire_seconds) as connection:
                # One round trip instead of four: the simple protocol takes several statements.
                await connection.execute(self._begin)
                try:
                    yield connection
                except BaseException:
                    # Where that fails there is no connection; what was raised first is told,
                    # above all a cancellation.
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
        # Inside an error path of one connection: the pool drops the others when they come back.
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
    """Open the pool and close it at the end.

    A server that is not there yet is no error: connections are made when first needed, and
    until then transactions raise `StoreUnavailableError`.

    Args:
        dsn: Where to connect and as whom; what returns it is asked for every new connection, so
            that a password may change.
        statement_cache_size: Prepared statements per connection; 0 behind a pgbouncer before
            1.21 in transaction mode.
    """

    async def connect(*_: object, **options: Any) -> "asyncpg.Connection":  # noqa: ANN401 # asyncpg's
        try:
            return await asyncpg.connect(dsn if isinstance(dsn, str) else dsn(), **options)
        except ValueError as error:
            # Its text quotes the address.
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
        # A transaction of ours leaves nothing behind that would have to be reset, and the
        # statement for it is a round trip after every transaction.
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
    # `close` waits for borrowed connections for ever; a frozen server must not hold our exit.
    try:
        async with asyncio.timeout(2):
            await pool.close()
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pool.terminate()
