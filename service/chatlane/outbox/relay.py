"""Publishes the outbox rows of this router: in order, again after failures, once they are committed.

What it promises: on ROUTED and OUTBOUND the messages of one session appear in the order of
their rows. Three things together keep it. All transactions of a process that write rows run one
after the other until their rows are queued here; the insert leaves a row to the sweep when an
older one of its session is not ours; and at most one publish of a session is unacknowledged.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.dead import bury
from chatlane.domain.effects import Effects
from chatlane.errors import StoreUnavailableError, TransientError
from chatlane.failpoints import RouterPoint, hit
from chatlane.nats.tasks import run_together
from chatlane.observability.logs import get_logger
from chatlane.outbox.publish_window import DEFAULT_WINDOW, Batch, Item, Pipeline, Publisher
from chatlane.store import dead_letters, outbox
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from random import Random
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.effects import Publication
    from chatlane.observability.metrics import Metrics
    from chatlane.store.outbox import OutboxRow

    Transaction = Callable[[], AbstractAsyncContextManager[PoolConnectionProxy]]

# A batch deletes what was published before it; only when none came for so long does the relay.
_IDLE: Final = timedelta(milliseconds=200)
# Rows of one stream beyond this stay in the table until there is room. A limit for each stream, not
# one for all: rows of a stream that is gone would take the room of all others.
DEFAULT_STREAM_BYTES: Final = 16 * 1024 * 1024
_DELETED_AT_ONCE: Final = 2000
_ADOPTED_AT_ONCE: Final = 500
_REREAD_AT_ONCE: Final = 1000
# Longer than any transaction of ours can hang in the server.
_DOUBT_SECONDS: Final = 300.0
_RETRY_PAUSE: Final = timedelta(milliseconds=500)
_REPORT_EVERY: Final = timedelta(seconds=1)

_log = get_logger("relay")


class OutboxWriter:
    """Writes outbox rows inside one transaction; see `Relay.ordered`.

    Args:
        router_id: Who publishes the rows.
        doubtful: As for `outbox.insert`.
        crowded: Streams whose rows are left to the sweep.
        take_published: Hands over ids of published rows.
    """

    def __init__(
        self,
        router_id: UUID,
        doubtful: Sequence[int],
        crowded: Collection[str],
        take_published: Callable[[int], list[int]],
    ) -> None:
        self._router_id = router_id
        self._doubtful = doubtful
        self._crowded = crowded
        self._take_published = take_published
        self.published: list[int] = []
        self.rows: list[OutboxRow] = []

    async def insert(
        self, connection: PoolConnectionProxy, publications: Sequence[Publication]
    ) -> None:
        """Write rows under the locks of their sessions, in the order given.

        Deletes what was published before in the same round trip. May be called more than
        once in the transaction.
        """
        published = self._take_published(_DELETED_AT_ONCE)
        self.published += published
        self.rows += await outbox.insert(
            connection,
            self._router_id,
            publications,
            published=published,
            doubtful=self._doubtful,
            left=self._crowded,
        )


class Relay:
    """The publishing half of a router.

    Args:
        publisher: Its futures end within a few seconds; on that rests the whole retry.
        transaction: Opens one.
        router_id: As in `routers`; new at every start of the process.
        metrics: Of this process.
        jitter: Chance for the spread of repeats.
        duplicate_window: For how long a stream recognises a message id.
        window: Publishes in flight for each stream.
        full_rows: How many rows may wait in memory and table for a stream that is full, before
            what leads to it is better left in its log.
        stream_bytes: How much may wait in memory for each stream; what is more waits in the table.
    """

    def __init__(
        self,
        publisher: Publisher,
        transaction: Transaction,
        router_id: UUID,
        *,
        metrics: Metrics,
        jitter: Random,
        duplicate_window: timedelta = timedelta(minutes=10),
        window: int = DEFAULT_WINDOW,
        full_rows: int = 0,
        stream_bytes: int = DEFAULT_STREAM_BYTES,
    ) -> None:
        self._transaction = transaction
        self._router_id = router_id
        self._metrics = metrics
        self._full_rows = full_rows
        self._left: dict[str, int] = {}
        self._stream_bytes = stream_bytes
        self._pipeline = Pipeline(
            publisher, stale_after=duplicate_window / 4, jitter=jitter, window=window
        )
        self._lock = asyncio.Lock()
        # Ids of rows whose transaction may or may not have been committed, until when.
        self._doubts: dict[int, float] = {}
        self._deleted_at = 0.0

    @property
    def backlog(self) -> int:
        """How many rows this process has committed and not yet published."""
        return self._pipeline.row_count

    @property
    def crowded_streams(self) -> frozenset[str]:
        """The streams whose new rows stay in the table for now, for want of memory for them."""
        return self._pipeline.streams_holding(self._stream_bytes)

    @property
    def full_streams(self) -> frozenset[str]:
        """The streams that have no room now."""
        return self._pipeline.full_streams

    @property
    def overfull_streams(self) -> frozenset[str]:
        """The full streams that so much waits for that what leads to them stays in its log."""
        return frozenset(
            stream
            for stream in self._pipeline.full_streams
            if self._pipeline.rows_of(stream) + self._left.get(stream, 0) >= self._full_rows
        )

    async def count_left(self) -> None:
        """Count what waits in the table for full streams.

        Raises:
            StoreUnavailableError: Try again later.
        """
        full = self._pipeline.full_streams
        if not full:
            self._left = {}
            return
        async with self._transaction() as connection:
            self._left = await outbox.count_left(connection, full, self._full_rows)

    def hurry(self) -> None:
        """Repeat failed publishes at once; for when the connection came back."""
        self._pipeline.hurry()

    async def run(self) -> None:
        """Publish until cancelled; rows that are not published by then stay in the table."""
        pipeline = self._pipeline
        await run_together(
            [
                ("publish", pipeline.run()),
                ("delete", self._tend(pipeline.some_acknowledged, self._delete_when_idle)),
                ("reread", self._tend(pipeline.some_stale, self._reread)),
                ("set aside", self._tend(pipeline.some_refused, self._set_aside)),
                ("report", self._report_regularly()),
            ]
        )

    @asynccontextmanager
    async def ordered(self) -> AsyncIterator[OutboxWriter]:
        """Hold back all other writers of this process while the block runs one transaction.

        The transaction begins and commits inside the block:

            async with relay.ordered() as outbox, store.transaction() as connection:
                ...
                await outbox.insert(connection, publications)

        When the block ends well, its rows are queued. When the database fails in it, nobody
        knows whether it was committed; its rows are adopted if they turn up in the table, and
        until that is settled newer rows of their sessions wait for the sweep.
        """
        async with self._lock:
            known_since = time.monotonic()
            writer = OutboxWriter(
                self._router_id, self._doubtful(), self.crowded_streams, self.take_acknowledged
            )
            try:
                yield writer
            except BaseException as error:
                self.restore_acknowledged(writer.published)
                self._doubt(writer.rows, error)
                raise
            if writer.rows:
                hit(RouterPoint.OUTBOX_COMMITTED)
            self._pipeline.enqueue(writer.rows, known_since)

    def _doubt(self, rows: Iterable[OutboxRow], error: BaseException) -> None:
        if isinstance(error, Exception) and not isinstance(error, StoreUnavailableError):
            # Raised by the block itself, before anything could have been committed.
            return
        until = time.monotonic() + _DOUBT_SECONDS
        self._doubts.update((row.id, until) for row in rows)

    def _doubtful(self) -> list[int]:
        if self._doubts:
            now = time.monotonic()
            self._doubts = {row_id: until for row_id, until in self._doubts.items() if until > now}
        return list(self._doubts)

    def enqueue(self, rows: Sequence[OutboxRow]) -> None:
        """Publish rows that a transaction in `ordered` has committed and did not hand to it."""
        self._pipeline.enqueue(rows, time.monotonic())

    def take_acknowledged(self, limit: int) -> list[int]:
        """Hand over ids of published rows, for deletion in a transaction of the caller's."""
        self._deleted_at = time.monotonic()
        return self._pipeline.take_acknowledged(limit)

    def restore_acknowledged(self, ids: Iterable[int]) -> None:
        """Take back ids whose deletion was not committed, as far as known."""
        self._pipeline.restore_acknowledged(ids)

    async def adopt_orphans(self) -> int:
        """Take over rows that nobody publishes, until none is left that there is memory for.

        Returns:
            How many were taken.

        Raises:
            StoreUnavailableError: Try again later.
        """
        adopted = 0
        streams = frozenset(map(str, StreamName))
        while streams := streams - self.crowded_streams:
            by_stream = Counter(row.stream for row in await self._adopt_some(streams))
            adopted += by_stream.total()
            streams = frozenset(its for its in by_stream if by_stream[its] >= _ADOPTED_AT_ONCE)
        if adopted:
            self._metrics.record_adopted_rows(adopted)
            _log.info("outbox_rows_adopted", count=adopted)
        return adopted

    async def _adopt_some(self, streams: Collection[str]) -> list[OutboxRow]:
        async with self._lock:
            known_since = time.monotonic()
            rows: list[OutboxRow] = []
            try:
                async with self._transaction() as connection:
                    rows = await outbox.adopt(
                        connection, self._router_id, streams, _ADOPTED_AT_ONCE, self._doubtful()
                    )
            except BaseException as error:
                self._doubt(rows, error)
                raise
            if rows:
                hit(RouterPoint.ADOPTED)
            for row in rows:
                self._doubts.pop(row.id, None)
            self._pipeline.enqueue(rows, known_since)
        return rows

    async def drain(self, timeout: timedelta) -> bool:  # noqa: ASYNC109 - a graceful end has one
        """Publish what is queued, for so long at most, and delete what was published.

        For a graceful stop: nothing writes rows any more, and `run` still runs. What is left
        waits in the table for another router's sweep.

        Returns:
            Whether everything was published.
        """
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._pipeline.is_empty.wait()
        except TimeoutError:
            _log.warning("outbox_left_behind", count=self.backlog)
        try:
            while self._pipeline.acknowledged_count:
                await self._delete_acknowledged()
        except TransientError as error:
            _log.warning("outbox_not_cleared", reason=str(error))
        self._report()
        return self.backlog == 0

    async def _tend(self, has_work: asyncio.Event, work: Callable[[], Awaitable[None]]) -> None:
        """Do a piece of work whenever there is some; a failed one is done again."""
        while True:
            await has_work.wait()
            try:
                await work()
            except TransientError as error:
                _log.warning("relay_held_up", reason=str(error))
                await asyncio.sleep(_RETRY_PAUSE.total_seconds())
            except Exception:  # noqa: BLE001 - logged, and tried again
                _log.exception("relay_failed")
                await asyncio.sleep(_RETRY_PAUSE.total_seconds())

    async def _delete_when_idle(self) -> None:
        await asyncio.sleep(_IDLE.total_seconds())
        is_idle = time.monotonic() - self._deleted_at >= _IDLE.total_seconds()
        if is_idle or self._pipeline.acknowledged_count > _DELETED_AT_ONCE:
            await self._delete_acknowledged()

    async def _delete_acknowledged(self) -> None:
        ids = self._pipeline.take_acknowledged(_DELETED_AT_ONCE)
        try:
            async with self._transaction() as connection:
                await outbox.delete(connection, ids)
            hit(RouterPoint.DELETED)
        except BaseException:
            self._pipeline.restore_acknowledged(ids)
            raise

    async def _reread(self) -> None:
        """Drop what another router has taken over while we were away; publish the rest."""
        heads = self._pipeline.take_stale(_REREAD_AT_ONCE)
        room = max(1, _REREAD_AT_ONCE // max(1, len(heads)))
        behind = [item for head in heads for item in self._pipeline.behind(head, room)]
        known_since = time.monotonic()
        try:
            ours = await self._read_ours([*heads, *behind])
        except BaseException:
            self._pipeline.put_back_stale(heads)
            raise
        for item in behind:
            if item.row.id in ours:
                item.batch = Batch(known_since, 1)
        self._pipeline.resume((item for item in heads if item.row.id in ours), known_since)
        taken_over = [item for item in heads if item.row.id not in ours]
        for item in taken_over:
            self._pipeline.let_go(item)
        if taken_over:
            _log.warning("outbox_rows_taken_over", count=len(taken_over))

    async def _read_ours(self, items: Sequence[Item]) -> set[int]:
        async with self._transaction() as connection:
            return await outbox.reread(connection, self._router_id, [item.row.id for item in items])

    async def _set_aside(self) -> None:
        item, reason = self._pipeline.refused[0]
        await self._bury(item.row, reason)
        self._pipeline.refused.popleft()
        if not self._pipeline.refused:
            self._pipeline.some_refused.clear()
        self._pipeline.let_go(item)

    async def _bury(self, row: OutboxRow, reason: DeadReason) -> None:
        effects = Effects()
        bury(
            effects,
            stage=Stage.OUTBOX,
            reason=reason,
            at=row.created_at,
            trigger=f"{row.stream}:{row.message_id}".encode(),
            body=row.payload,
            detail=f"{row.stream}: {len(row.payload)} bytes",
            subject=row.subject,
            session_id=row.session_id,
        )
        async with self.ordered() as writer, self._transaction() as connection:
            await dead_letters.insert(connection, effects.dead)
            await writer.insert(connection, effects.publications)
            await outbox.delete(connection, [row.id])
        self._metrics.record_decisions(effects.counts)
        _log.error(
            "message_dead_lettered",
            stage=Stage.OUTBOX,
            reason=reason,
            stream=row.stream,
            session_id=row.session_id,
            size_bytes=len(row.payload),
        )

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_EVERY.total_seconds())
            self._report()

    def _report(self) -> None:
        self._metrics.record_outbox_backlog(self.backlog)
        for stream, (published, repeated) in self._pipeline.take_counts().items():
            self._metrics.record_published(stream, published)
            if repeated:
                self._metrics.record_repeated_publish(stream, repeated)
        for stream, count in self._pipeline.take_dropped().items():
            _log.warning("announcements_dropped", stream=stream, count=count, reason="stream_full")
        for seconds in self._pipeline.take_times():
            self._metrics.record_publish_time(timedelta(seconds=seconds))
