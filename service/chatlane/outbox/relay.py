"""Publish the committed outbox rows of this router in order, and retry after failures.

The relay guarantees that the messages of one session appear on ROUTED and OUTBOUND in the order of
their rows. Three rules ensure this:

- All transactions of a process that write rows run one after the other until the relay has queued
  their rows.
- The insert leaves a row to the sweep if this router does not own an older row of its session.
- At most one publish of a session is unacknowledged.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.dead_letters import add_dead_letter
from chatlane.domain.effects import Effects
from chatlane.errors import StoreUnavailableError, TransientError
from chatlane.failpoints import RouterPoint, hit
from chatlane.nats.tasks import run_together
from chatlane.observability.logs import get_logger
from chatlane.outbox.publish_window import DEFAULT_WINDOW, Batch, Item, Pipeline, Publisher
from chatlane.store import dead_letters, outbox
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
    from random import Random
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.effects import Publication
    from chatlane.observability.metrics import Metrics
    from chatlane.postgres.pool import Transaction
    from chatlane.store.outbox import OutboxRow

    Tell = Callable[[str, bytes, str], Awaitable[None]]

# A batch deletes rows that were published before it. The relay deletes them only if no batch came
# for so long.
_IDLE: Final = timedelta(milliseconds=200)
# Rows of one stream above this limit stay in the table until there is room. The limit is per
# stream: otherwise the rows of a missing stream would take the memory of all others.
DEFAULT_STREAM_BYTES: Final = 16 * 1024 * 1024
_DELETED_AT_ONCE: Final = 2000
_ADOPTED_AT_ONCE: Final = 500
_REREAD_AT_ONCE: Final = 1000
# Longer than any of our transactions can hang in the server.
_DOUBT_SECONDS: Final = 300.0
_RETRY_PAUSE: Final = timedelta(milliseconds=500)
_REPORT_EVERY: Final = timedelta(seconds=1)

_log = get_logger("relay")


class OutboxWriter:
    """Writes outbox rows inside one transaction; see `Relay.ordered`.

    Args:
        router_id: The router that publishes the rows.
        doubtful: As for `outbox.insert`.
        crowded: Streams whose rows are left to the sweep.
        take_published: Returns and removes ids of published rows.
        is_unstored: Returns whether no stream stores a subject.

    Attributes:
        rows: The rows that this router publishes.
        unstored: What no stream stores; it gets no row.
    """

    def __init__(
        self,
        router_id: UUID,
        doubtful: Sequence[int],
        crowded: Collection[str],
        take_published: Callable[[int], list[int]],
        is_unstored: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._is_unstored = is_unstored
        self._router_id = router_id
        self._doubtful = doubtful
        self._crowded = crowded
        self._take_published = take_published
        self.published: list[int] = []
        self.rows: list[OutboxRow] = []
        self.unstored: list[Publication] = []

    async def insert(
        self, connection: PoolConnectionProxy, publications: Sequence[Publication]
    ) -> None:
        """Write rows under the locks of their sessions, in the given order.

        The same round trip deletes rows that were published before. The method may be called more
        than once in the transaction.
        """
        unstored = [row for row in publications if self._is_unstored(row.subject)]
        if unstored:
            self.unstored += unstored
            publications = [row for row in publications if not self._is_unstored(row.subject)]
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
        publisher: Its futures end within a few seconds; all retries depend on that.
        transaction: Opens a transaction.
        router_id: Id in `routers`; new at every start of the process.
        metrics: Metrics of this process.
        jitter: Random source that spreads retries.
        duplicate_window: How long a stream recognises a message id.
        window: Publishes in flight for each stream.
        full_rows: Number of rows, in memory and table, that may wait for a full stream before the
            router stops reading the messages that lead to it from the log.
        stream_bytes: Bytes that may wait in memory for each stream; further rows stay in the table.
        is_unstored: Returns whether no stream stores a subject.
        tell: Publishes to current subscribers what no stream stores, and fails silently.
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
        is_unstored: Callable[[str], bool] = lambda _: False,
        tell: Tell | None = None,
    ) -> None:
        self._is_unstored = is_unstored
        self._tell = tell
        self._transaction = transaction
        self._router_id = router_id
        self._metrics = metrics
        self._full_rows = full_rows
        self._left: dict[str, int] = {}
        self._stream_bytes = stream_bytes
        self._pipeline = Pipeline(
            publisher,
            stale_after=duplicate_window / 4,
            jitter=jitter,
            window=window,
            is_unstored=is_unstored,
        )
        self._lock = asyncio.Lock()
        # Ids of rows whose transaction may or may not have committed, with the end of the doubt.
        self._uncertain: dict[int, float] = {}
        self._deleted_at = 0.0

    @property
    def backlog(self) -> int:
        """Return the number of rows that this process has committed and not yet published."""
        return self._pipeline.row_count

    @property
    def crowded_streams(self) -> frozenset[str]:
        """Return the streams whose new rows stay in the table, because their memory is used up."""
        return self._pipeline.streams_holding(self._stream_bytes)

    @property
    def full_streams(self) -> frozenset[str]:
        """Return the streams that are full now."""
        return self._pipeline.full_streams

    @property
    def overfull_streams(self) -> frozenset[str]:
        """Return the full streams with so many waiting rows that their log is held back."""
        return frozenset(
            stream
            for stream in self._pipeline.full_streams
            if self._pipeline.rows_of(stream) + self._left.get(stream, 0) >= self._full_rows
        )

    async def count_left(self) -> None:
        """Count the rows that wait in the table for full streams.

        Raises:
            StoreUnavailableError: Try again later.
        """
        full = self._pipeline.full_streams
        if not full:
            self._left = {}
            return
        async with self._transaction() as connection:
            self._left = await outbox.count_left(connection, full, self._full_rows)

    def retry_now(self) -> None:
        """Retry failed publishes at once, for example after a reconnect."""
        self._pipeline.retry_now()

    async def run(self) -> None:
        """Publish until cancelled; unpublished rows stay in the table."""
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
        """Block all other writers of this process while the block runs one transaction.

        The transaction begins and commits inside the block:

            async with relay.ordered() as outbox, store.transaction() as connection:
                ...
                await outbox.insert(connection, publications)

        If the block succeeds, the relay queues its rows. If the database fails in it, the outcome
        of the commit is unknown. The relay then adopts the rows if they turn up in the table, and
        newer rows of their sessions wait for the sweep until that is settled.
        """
        async with self._lock:
            known_since = time.monotonic()
            writer = OutboxWriter(
                self._router_id,
                self._doubtful(),
                self.crowded_streams,
                self.take_acknowledged,
                self._is_unstored,
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
            if self._tell is not None:
                for row in writer.unstored:
                    await self._tell(row.subject, row.payload, row.message_id)

    def _doubt(self, rows: Iterable[OutboxRow], error: BaseException) -> None:
        if isinstance(error, Exception) and not isinstance(error, StoreUnavailableError):
            # The block itself raised this, before anything could have been committed.
            return
        until = time.monotonic() + _DOUBT_SECONDS
        self._uncertain.update((row.id, until) for row in rows)

    def _doubtful(self) -> list[int]:
        if self._uncertain:
            now = time.monotonic()
            self._uncertain = {
                row_id: until for row_id, until in self._uncertain.items() if until > now
            }
        return list(self._uncertain)

    def enqueue(self, rows: Sequence[OutboxRow]) -> None:
        """Queue rows that a transaction in `ordered` committed without passing them to its writer."""
        self._pipeline.enqueue(rows, time.monotonic())

    def take_acknowledged(self, limit: int) -> list[int]:
        """Return and remove ids of published rows, which the caller deletes in its transaction."""
        self._deleted_at = time.monotonic()
        return self._pipeline.take_acknowledged(limit)

    def restore_acknowledged(self, ids: Iterable[int]) -> None:
        """Put back ids whose deletion was not committed, or may not have been."""
        self._pipeline.restore_acknowledged(ids)

    async def adopt_orphans(self) -> int:
        """Adopt rows that no router publishes, as far as memory permits.

        Returns:
            The number of adopted rows.

        Raises:
            StoreUnavailableError: Try again later.
        """
        adopted = 0
        streams = frozenset(map(str, StreamName))
        while streams := streams - self.crowded_streams:
            by_stream = Counter(row.stream for row in await self._adopt_some(streams))
            adopted += by_stream.total()
            streams = frozenset(
                stream for stream in by_stream if by_stream[stream] >= _ADOPTED_AT_ONCE
            )
        if adopted:
            self._metrics.swept.inc(adopted)
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
                self._uncertain.pop(row.id, None)
            self._pipeline.enqueue(rows, known_since)
        return rows

    async def drain(self, timeout: timedelta) -> bool:  # noqa: ASYNC109 - a graceful end has one
        """Publish the queued rows within a timeout, and delete the published ones.

        This is for a graceful stop: all writers have stopped and `run` still runs. The remaining
        rows wait in the table for the sweep of another router.

        Returns:
            True if everything was published.
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
        """Run a job whenever there is work for it; retry it after a failure."""
        while True:
            await has_work.wait()
            try:
                await work()
            except TransientError as error:
                _log.warning("relay_held_up", reason=str(error))
                await asyncio.sleep(_RETRY_PAUSE.total_seconds())
            except Exception:  # noqa: BLE001 - logged and retried
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
        """Drop stale rows that another router has adopted meanwhile; publish the rest."""
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
            self._pipeline.release(item)
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
        self._pipeline.release(item)

    async def _bury(self, row: OutboxRow, reason: DeadReason) -> None:
        effects = Effects()
        add_dead_letter(
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
        self._metrics.outbox_backlog.set(self.backlog)
        for stream, (published, repeated) in self._pipeline.take_counts().items():
            self._metrics.published.labels(stream).inc(published)
            if repeated:
                self._metrics.publish_repeats.labels(stream).inc(repeated)
        for stream, count in self._pipeline.take_dropped().items():
            _log.warning("announcements_dropped", stream=stream, count=count, reason="stream_full")
        for seconds in self._pipeline.take_times():
            self._metrics.publish_seconds.observe(seconds)
