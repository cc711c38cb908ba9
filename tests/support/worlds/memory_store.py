"""A store without a database: the statements about partitions and routers, on dictionaries.

Transactions as Postgres runs them: what one has written others see once it is committed, who
wants a locked row waits for it or skips it, and what is rolled back was never there. The clock is
that of the event loop. Passes the suite that the real store passes (tests/conformance).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from typing_extensions import override

from chatlane.store.logs import partitions, routers
from tests.support.worlds.small_router import NOTED_SQL

# One round trip to the database.
_LATENCY_SECONDS: Final = 0.0005

Key = tuple[str, Any]


class Row(dict[str, Any]):
    """A row by column names, or by their numbers."""

    @override
    def __getitem__(self, column: str | int) -> Any:  # a value of any type
        return (
            list(self.values())[column] if isinstance(column, int) else super().__getitem__(column)
        )


@dataclass(slots=True)
class Partition:
    """A row of `partitions`; times in seconds of the loop."""

    log: str
    id: int
    owner: UUID | None = None
    epoch: int = 0
    lease_until: float | None = None
    cursor: int = 0
    cursor_at: datetime | None = None
    generation: str | None = None
    dirty: int = 0
    suspect_seq: int | None = None
    suspect_count: int = 0


@dataclass(slots=True)
class MemoryDatabase:
    """What is committed, and who has locked what."""

    rows: dict[Key, Any] = field(default_factory=dict)
    noted: list[tuple[int, int, str, UUID]] = field(default_factory=list)
    locks: dict[Key, "Transaction"] = field(default_factory=dict)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def now(self) -> float:
        """Return the time by the clock of the database."""
        return asyncio.get_running_loop().time()


class Transaction:
    """One transaction: what it has written so far, and the rows it has locked."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database
        self.written: dict[Key, Any] = {}
        self.noted: list[tuple[int, int, str, UUID]] = []

    def find(self, key: Key) -> Any:  # noqa: ANN401 # a row of any table
        """Return a copy of a row as this transaction sees it now."""
        return copy(self.written.get(key) or self.database.rows.get(key))

    def table(self, name: str) -> Iterator[Any]:
        """Yield copies of all rows of a table, in the order of their keys."""
        keys = {key for key in (*self.database.rows, *self.written) if key[0] == name}
        yield from (self.find(key) for key in sorted(keys))

    async def lock(self, key: Key) -> Any:  # noqa: ANN401 # a row of any table
        """Wait for a row, lock it and return it as it is then."""
        while not self.is_free(key):
            self.database.released.clear()
            await self.database.released.wait()
        self.database.locks[key] = self
        return self.find(key)

    def is_free(self, key: Key) -> bool:
        """Return whether nobody else has locked a row."""
        return self.database.locks.get(key, self) is self

    def put(self, key: Key, row: object) -> None:
        """Write a row."""
        self.written[key] = row

    def commit(self) -> None:
        """Let everybody see what was written."""
        self.database.rows.update(self.written)
        self.database.noted.extend(self.noted)
        self.release()

    def release(self) -> None:
        """Unlock all rows."""
        locks = self.database.locks
        for key in [key for key, holder in locks.items() if holder is self]:
            del locks[key]
        self.database.released.set()


class MemoryConnection:
    """Runs the statements that it knows; any other is a KeyError."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def fetch(self, query: str, *arguments: Any) -> list[Row]:  # noqa: ANN401
        await asyncio.sleep(_LATENCY_SECONDS)
        rows = await _STATEMENTS[query](self._transaction, *arguments)
        return list(rows)

    async def fetchval(self, query: str, *arguments: Any) -> Any:  # noqa: ANN401
        rows = await self.fetch(query, *arguments)
        return rows[0][0] if rows else None

    async def execute(self, query: str, *arguments: Any) -> str:  # noqa: ANN401
        return f"UPDATE {len(await self.fetch(query, *arguments))}"

    async def executemany(self, query: str, rows: Iterable[tuple[int, int, str, UUID]]) -> None:
        """Take the notes of a `SmallRouter`, the only rows that are written so."""
        assert query.startswith("INSERT INTO noted")
        await asyncio.sleep(_LATENCY_SECONDS)
        self._transaction.noted.extend(rows)


class MemoryStore:
    """Opens transactions on a database that several of these share."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MemoryConnection]:
        """Commit at the end of the block, or roll back."""
        transaction = Transaction(self.database)
        try:
            yield MemoryConnection(transaction)
            await asyncio.sleep(_LATENCY_SECONDS)
        except BaseException:
            transaction.release()
            raise
        transaction.commit()


async def _ensure(tx: Transaction, log: str, count: int) -> list[Row]:
    if not any(row.log == log for row in tx.table("partitions")):
        for number in range(count):
            tx.put(("partitions", (log, number)), Partition(log, number))
    return []


async def _count(tx: Transaction, log: str) -> list[Row]:
    return [Row(count=sum(row.log == log for row in tx.table("partitions")))]


async def _holdings(tx: Transaction) -> list[Row]:
    now = tx.database.now()
    return [
        Row(
            log=row.log,
            id=row.id,
            owner=row.owner,
            epoch=row.epoch,
            lease_seconds=None if row.lease_until is None else row.lease_until - now,
            cursor=row.cursor,
        )
        for row in tx.table("partitions")
    ]


async def _claim_free(  # noqa: PLR0917 # as the statement has them
    tx: Transaction, me: UUID, log: str, held: list[int], limit: int, lease: timedelta
) -> list[Row]:
    now = tx.database.now()
    claimed: list[Row] = []
    for seen in tx.table("partitions"):
        key = ("partitions", (seen.log, seen.id))
        has_ended = seen.lease_until is not None and seen.lease_until < now
        is_wanted = seen.log == log and seen.id not in held and len(claimed) < limit
        if not (is_wanted and (seen.owner in {None, me} or has_ended) and tx.is_free(key)):
            continue
        row = await tx.lock(key)
        had_owner = row.owner is not None and row.owner != me
        row.owner, row.epoch, row.lease_until = me, row.epoch + 1, now + lease.total_seconds()
        row.dirty += had_owner
        tx.put(key, row)
        names = ("log", "id", "epoch", "cursor", "cursor_at", "generation", "dirty")
        its = {name: getattr(row, name) for name in names}
        claimed.append(Row(its, had_owner=had_owner))
    return claimed


async def _mine(
    tx: Transaction, me: UUID, wanted: Iterable[tuple[Any, ...]], *, skips_locked: bool = False
) -> AsyncIterator[tuple[Key, Partition, tuple[Any, ...]]]:
    """Lock those of the wanted rows that are this router's, in order."""
    for log, number, *rest in sorted(wanted):
        key = ("partitions", (log, number))
        if skips_locked and not tx.is_free(key):
            continue
        row = await tx.lock(key)
        if row is not None and row.owner == me:
            yield key, row, tuple(rest)


def _ids(rows: Iterable[Partition]) -> list[Row]:
    return [Row(log=row.log, id=row.id) for row in rows]


async def _renew_idle(  # noqa: PLR0917 # as the statement has them
    tx: Transaction,
    me: UUID,
    logs: list[str],
    ids: list[int],
    epochs: list[int],
    caught_up: list[bool],
    lease: timedelta,
) -> list[Row]:
    renewed: list[Partition] = []
    wanted = zip(logs, ids, epochs, caught_up, strict=True)
    async for key, row, (epoch, is_caught_up) in _mine(tx, me, wanted, skips_locked=True):
        if row.epoch == epoch:
            row.lease_until = tx.database.now() + lease.total_seconds()
            row.dirty = 0 if is_caught_up else row.dirty
            tx.put(key, row)
            renewed.append(row)
    return _ids(renewed)


async def _hand_back(tx: Transaction, me: UUID, logs: list[str], ids: list[int]) -> list[Row]:
    given: list[Partition] = []
    async for key, row, _ in _mine(tx, me, zip(logs, ids, strict=True)):
        row.owner = row.lease_until = None
        tx.put(key, row)
        given.append(row)
    return _ids(given)


async def _advance(tx: Transaction, me: UUID, *its: Any) -> list[Row]:  # noqa: ANN401
    *arrays, lease = its
    moved: list[Partition] = []
    wanted = zip(*arrays, strict=True)
    async for key, row, (epoch, cursor_from, cursor_to, stored_at) in _mine(tx, me, wanted):
        if (row.epoch, row.cursor) == (epoch, cursor_from):
            row.cursor, row.cursor_at = cursor_to, stored_at
            row.lease_until = tx.database.now() + lease.total_seconds()
            row.dirty, row.suspect_seq, row.suspect_count = 0, None, 0
            tx.put(key, row)
            moved.append(row)
    return _ids(moved)


async def _rewind(  # noqa: PLR0917 # as the statement has them
    tx: Transaction, log: str, number: int, me: UUID, epoch: int, cursor: int, generation: str
) -> list[Row]:
    async for key, row, _ in _mine(tx, me, [(log, number)]):
        if row.epoch == epoch:
            row.cursor, row.cursor_at, row.generation = cursor, None, generation
            row.epoch, row.suspect_seq, row.suspect_count = epoch + 1, None, 0
            tx.put(key, row)
            return [Row(epoch=row.epoch)]
    return []


async def _suspect(  # noqa: PLR0917 # as the statement has them
    tx: Transaction, log: str, number: int, me: UUID, epoch: int, sequence: int, lease: timedelta
) -> list[Row]:
    async for key, row, _ in _mine(tx, me, [(log, number)]):
        if row.epoch == epoch:
            row.suspect_count = row.suspect_count + 1 if row.suspect_seq == sequence else 1
            row.suspect_seq = sequence
            row.lease_until = tx.database.now() + lease.total_seconds()
            tx.put(key, row)
            return [Row(suspect_count=row.suspect_count)]
    return []


@dataclass(slots=True)
class Router:
    """A row of `routers`."""

    id: UUID
    seen_until: float


async def _heartbeat(tx: Transaction, me: UUID, _version: str, lease: timedelta) -> list[Row]:
    before = await tx.lock(("routers", me))
    written = tx.database.now() + lease.total_seconds()
    tx.put(("routers", me), Router(me, written))
    return [Row(seen_until=written, found=before.seen_until if before else None)]


async def _live(tx: Transaction) -> list[Row]:
    now = tx.database.now()
    return [
        Row(id=row.id, seconds_left=row.seen_until - now)
        for row in tx.table("routers")
        if row.seen_until > now
    ]


async def _withdraw(tx: Transaction, me: UUID) -> list[Row]:
    row = await tx.lock(("routers", me))
    if row is not None and row.seen_until > tx.database.now():
        tx.put(("routers", me), Router(me, tx.database.now()))
    return []


async def _noted(tx: Transaction) -> list[Row]:
    return [Row(partition=its[0], body=its[2]) for its in tx.database.noted]


_STATEMENTS: Final[dict[str, Callable[..., Any]]] = {
    partitions.ENSURE_SQL: _ensure,
    partitions.COUNT_SQL: _count,
    partitions.HOLDINGS_SQL: _holdings,
    partitions.CLAIM_FREE_SQL: _claim_free,
    partitions.RENEW_IDLE_SQL: _renew_idle,
    partitions.HAND_BACK_SQL: _hand_back,
    partitions.ADVANCE_SQL: _advance,
    partitions.REWIND_SQL: _rewind,
    partitions.SUSPECT_SQL: _suspect,
    routers.HEARTBEAT_SQL: _heartbeat,
    routers.LIVE_SQL: _live,
    routers.WITHDRAW_SQL: _withdraw,
    NOTED_SQL: _noted,
}
