"""Stores that die at a chosen statement, and tables that refuse a row once."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from chatlane.postgres.pool import Store

_STATEMENTS = frozenset({"execute", "executemany", "fetch", "fetchrow", "fetchval"})


class KilledError(Exception):
    """The process is gone; nothing it wanted to do afterwards happens."""


class DyingStore:
    """Lets a process die at one of its statements: before it, before the commit or after it.

    Args:
        survives: How many steps go well; a commit is two, asked for and answered.
    """

    def __init__(self, store: "Store", survives: int) -> None:
        self._store = store
        self._survives = survives
        self.steps = 0

    @property
    def is_dead(self) -> bool:
        """Whether it came to the step it does not survive."""
        return self.steps > self._survives

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["PoolConnectionProxy"]:
        """Run the block in a transaction of the store, as far as it lives."""
        async with self._store.transaction() as connection:
            yield _DyingConnection(connection, self.step)  # type: ignore[misc]
            self.step()
        self.step()

    def step(self) -> None:
        """Take the next step, or die."""
        self.steps += 1
        if self.is_dead:
            raise KilledError


class _DyingConnection:
    def __init__(self, connection: "PoolConnectionProxy", step: Callable[[], None]) -> None:
        self._connection = connection
        self._step = step

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a connection has
        found = getattr(self._connection, name)
        if name not in _STATEMENTS:
            return found

        def counted(*arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:  # noqa: ANN401
            self._step()
            answer: Coroutine[Any, Any, Any] = found(*arguments, **named)
            return answer

        return counted


async def refuse_once(store: "Store", table: str) -> None:
    """Make the database refuse the next row of a table, and only that one."""
    async with store.transaction() as connection:
        # A sequence counts on although the transaction that asked it is rolled back.
        await connection.execute(f"CREATE SEQUENCE refusals_{table}")
        # As the owner of both, because nobody else has a right on a sequence of a test.
        await connection.execute(
            f"CREATE FUNCTION refuse_{table}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
            " AS $$ BEGIN"
            f" IF nextval('refusals_{table}') = 1 THEN RAISE EXCEPTION 'refused'; END IF;"
            " RETURN NEW; END $$"
        )
        await connection.execute(
            f"CREATE TRIGGER refuse BEFORE INSERT ON {table}"
            f" FOR EACH ROW EXECUTE FUNCTION refuse_{table}()"
        )
