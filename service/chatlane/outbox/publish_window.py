"""Publish rows with many in flight, but never two of one session on one stream.

The module does not use the database. It puts rows aside for the relay that it cannot decide alone:
rows that it has held for too long, and rows that no stream will ever accept. It never awaits per
row, so thousands of rows a second cost little more than the publishes themselves.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Final, Protocol

from chatlane.errors import (
    OversizedMessageError,
    PermanentError,
    StreamFullError,
    TransientError,
)
from chatlane.failpoints import RouterPoint, hit
from chatlane.observability.logs import get_logger
from chatlane.store.outbox import ORDERED_STREAMS
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta
    from random import Random
    from uuid import UUID

    from chatlane.domain.log import Trace
    from chatlane.outbox.publisher import Ack
    from chatlane.store.outbox import OutboxRow

# A larger window does not make the server faster.
DEFAULT_WINDOW: Final = 256
# Measured memory of a row in addition to its payload.
_ROW_BYTES: Final = 1000
# The pump yields to the event loop after so many publishes, so that acknowledgements get handled. The
# publishes between are one write to the socket, which costs as much as dozens of them.
_YIELD_EVERY: Final = 128
_FIRST_DELAY_SECONDS: Final = 0.05
_LONGEST_DELAY_SECONDS: Final = 2.0
# The database also holds the full content of these messages. If the stream is full, they are
# dropped: kept, they would take the memory that all other messages need.
_DISPENSABLE: Final = frozenset({StreamName.DEAD})
# An error of an unknown class is a bug: retry the publish, but only so many times.
_MOST_UNKNOWN_ERRORS: Final = 5

_log = get_logger("relay")

Key = tuple["UUID", str]


class Publisher(Protocol):
    """Interface to the bus that a pipeline needs."""

    async def publish(
        self, subject: str, payload: bytes, message_id: str, trace: Trace | None = None
    ) -> asyncio.Future[Ack]:
        """Send one message; the future ends within a short, fixed time with an ack or an error.

        Raises (here or in the future):
            TransientError: It is unknown whether it was stored; repeat with the same id.
            PermanentError: No stream will ever accept this message.
        """
        ...


@dataclass(slots=True, eq=False)
class Batch:
    """Rows that were committed together.

    Attributes:
        known_since: Monotonic time at which the database last confirmed that we own them.
        unpublished: Number of rows that are not acknowledged yet.
    """

    known_since: float
    unpublished: int


@dataclass(slots=True, eq=False)
class Item:
    """One row that is to be published, and its publish attempts."""

    row: OutboxRow
    key: Key | None
    batch: Batch
    attempts: int = 0


@dataclass(slots=True)
class _StreamQueue:
    """Rows of one stream. Each stream has its own window, so a full stream delays no other.

    Attributes:
        in_flight: Publishes without an answer, and failed ones that wait for their next attempt.
            This bounds the load on a stream that rejects messages.
        is_full: True if the last answer of the stream was that it is full.
        held: Number of rows in memory, including those queued behind others of their session.
        held_bytes: Memory of these rows.
        dropped: Number of rows that were dropped because the stream was full.
    """

    ready: deque[Item] = field(default_factory=deque)
    in_flight: int = 0
    held: int = 0
    held_bytes: int = 0
    is_full: bool = False
    published: int = 0
    repeated: int = 0
    dropped: int = 0


class Pipeline:
    """The rows in memory and the publish state of each.

    Args:
        publisher: Sends the rows.
        stale_after: If the database has not confirmed a row for so long, another router may have
            published it, and the duplicate window of the stream may have passed since.
        window: Publishes in flight for each stream.
        jitter: Spreads retries, so that routers do not retry at the same time.
        is_unstored: Returns whether no stream stores a subject. Rows that were written before are
            published and then dropped.
    """

    def __init__(
        self,
        publisher: Publisher,
        *,
        stale_after: timedelta,
        jitter: Random,
        window: int = DEFAULT_WINDOW,
        is_unstored: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._publisher = publisher
        self._is_unstored = is_unstored
        self._stale_after_seconds = stale_after.total_seconds()
        self._window = window
        self._jitter = jitter
        self._outlets: dict[str, _StreamQueue] = {}
        # Holds a key while one of its rows is being published; the value queues the rows behind it.
        self._lines: dict[Key, deque[Item] | None] = {}
        self._later: list[tuple[float, int, Item]] = []
        self._tie = count()
        self._wakeup = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._acknowledged: list[int] = []
        self._times: list[float] = []
        self.some_acknowledged = asyncio.Event()
        self.stale: list[Item] = []
        self.some_stale = asyncio.Event()
        self.refused: deque[tuple[Item, DeadReason]] = deque()
        self.some_refused = asyncio.Event()
        self.is_empty = asyncio.Event()
        self.is_empty.set()
        self.row_count = 0

    def enqueue(self, rows: Sequence[OutboxRow], known_since: float) -> None:
        """Queue rows in the order of their ids.

        Args:
            rows: Committed rows that this router owns.
            known_since: Monotonic time from before they were read or written.
        """
        if not rows:
            return
        batch = Batch(known_since, len(rows))
        for row in rows:
            is_ordered = row.session_id is not None and row.stream in ORDERED_STREAMS
            key = (row.session_id, row.stream) if is_ordered and row.session_id else None
            item = Item(row, key, batch)
            self._place(item)
            outlet = self._outlet(item)
            outlet.held += 1
            outlet.held_bytes += len(row.payload) + _ROW_BYTES
        self.row_count += len(rows)
        self.is_empty.clear()
        self._wakeup.set()

    def _place(self, item: Item) -> None:
        key = item.key
        if key is None:
            self._outlet(item).ready.append(item)
        elif key not in self._lines:
            self._lines[key] = None
            self._outlet(item).ready.append(item)
        elif (line := self._lines[key]) is None:
            self._lines[key] = deque((item,))
        else:
            line.append(item)

    def _outlet(self, item: Item) -> _StreamQueue:
        stream = item.row.stream
        outlet = self._outlets.get(stream)
        if outlet is None:
            outlet = self._outlets[stream] = _StreamQueue()
        return outlet

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            self._move_due()
            for outlet in list(self._outlets.values()):
                await self._pump(outlet)

    async def _pump(self, outlet: _StreamQueue) -> None:
        # Refill half a window at a time. Otherwise each acknowledgement releases one publish, and
        # each publish is a separate write to the socket.
        if outlet.in_flight > self._window // 2:
            return
        for sent in count(1):
            if not outlet.ready or outlet.in_flight >= self._window:
                return
            item = outlet.ready.popleft()
            hit(RouterPoint.PUBLISHING)
            # The last thing before the publish: a process that froze until now finds out here.
            if time.monotonic() - item.batch.known_since > self._stale_after_seconds:
                self.stale.append(item)
                self.some_stale.set()
                continue
            outlet.in_flight += 1
            await self._publish(item, outlet)
            if sent % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def _publish(self, item: Item, outlet: _StreamQueue) -> None:
        row = item.row
        try:
            acknowledgement = await self._publisher.publish(
                row.subject, row.payload, row.message_id, row.trace
            )
        except Exception as error:  # noqa: BLE001 - a bug must not lose a row
            self._failed(item, outlet, error)
        else:
            hit(RouterPoint.PUBLISHED)
            acknowledgement.add_done_callback(partial(self._ended, item, outlet))

    def _ended(self, item: Item, outlet: _StreamQueue, future: asyncio.Future[Ack]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            self._failed(item, outlet, error)
            return
        hit(RouterPoint.ACKNOWLEDGED)
        outlet.in_flight -= 1
        outlet.is_full = False
        outlet.published += 1
        self._done(item)

    def _done(self, item: Item) -> None:
        """Mark a row as acknowledged, so that the relay deletes it."""
        if not self._acknowledged:
            self.some_acknowledged.set()
        self._acknowledged.append(item.row.id)
        item.batch.unpublished -= 1
        if item.batch.unpublished == 0:
            self._times.append(time.monotonic() - item.batch.known_since)
        self.release(item)

    def release(self, item: Item) -> None:
        """Drop a row from memory and release the next row of its session."""
        self.row_count -= 1
        outlet = self._outlet(item)
        outlet.held -= 1
        outlet.held_bytes -= len(item.row.payload) + _ROW_BYTES
        if self.row_count == 0:
            self.is_empty.set()
        if item.key is not None:
            line = self._lines[item.key]
            if line:
                self._outlet(item).ready.append(line.popleft())
            else:
                del self._lines[item.key]
        self._wakeup.set()

    def _failed(self, item: Item, outlet: _StreamQueue, error: BaseException) -> None:
        item.attempts += 1
        if isinstance(error, PermanentError) or self._is_hopeless(item, error):
            outlet.in_flight -= 1
            self._refuse(item, error)
            self._wakeup.set()
            return
        if isinstance(error, StreamFullError) and item.row.stream in _DISPENSABLE:
            outlet.in_flight -= 1
            outlet.dropped += 1
            self._done(item)
            return
        if self._is_unstored(item.row.subject):
            outlet.in_flight -= 1
            self._done(item)
            return
        outlet.repeated += 1
        outlet.is_full = isinstance(error, StreamFullError)
        delay = min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2 ** min(item.attempts - 1, 10))
        due = time.monotonic() + delay * self._jitter.uniform(0.5, 1)
        heapq.heappush(self._later, (due, next(self._tie), item))
        if self._later[0][2] is item:
            self._set_alarm()

    def _is_hopeless(self, item: Item, error: BaseException) -> bool:
        if isinstance(error, TransientError | asyncio.CancelledError):
            return False
        _log.error("publish_failed", stream=item.row.stream, exc_info=error)
        return item.attempts >= _MOST_UNKNOWN_ERRORS

    def _refuse(self, item: Item, error: BaseException) -> None:
        is_oversized = isinstance(error, OversizedMessageError)
        reason = DeadReason.OVERSIZED_OUTBOUND if is_oversized else DeadReason.INTERNAL_ERROR
        self.refused.append((item, reason))
        self.some_refused.set()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None
        if self._later:
            delay = max(0.0, self._later[0][0] - time.monotonic())
            self._alarm = asyncio.get_running_loop().call_later(delay, self._wakeup.set)

    def _move_due(self) -> None:
        """Put failed rows whose retry is due at the front of their queues."""
        now = time.monotonic()
        due: list[Item] = []
        while self._later and self._later[0][0] <= now:
            due.append(heapq.heappop(self._later)[2])
        for item in reversed(due):
            outlet = self._outlet(item)
            outlet.in_flight -= 1
            outlet.ready.appendleft(item)
        self._set_alarm()

    def retry_now(self) -> None:
        """Retry failed rows now instead of at their due time, because the server is back."""
        self._later = [(0.0, tie, item) for _, tie, item in self._later]
        heapq.heapify(self._later)
        self._wakeup.set()

    def take_acknowledged(self, limit: int) -> list[int]:
        """Return and remove ids of published rows for deletion."""
        taken, self._acknowledged = self._acknowledged[:limit], self._acknowledged[limit:]
        if not self._acknowledged:
            self.some_acknowledged.clear()
        return taken

    def restore_acknowledged(self, ids: Iterable[int]) -> None:
        """Put back ids whose rows were not deleted."""
        self._acknowledged.extend(ids)
        if self._acknowledged:
            self.some_acknowledged.set()

    @property
    def acknowledged_count(self) -> int:
        """Return the number of published rows that are still in the table."""
        return len(self._acknowledged)

    def take_stale(self, limit: int) -> list[Item]:
        """Return and remove rows whose owner has to be read from the database again."""
        taken, self.stale = self.stale[:limit], self.stale[limit:]
        if not self.stale:
            self.some_stale.clear()
        return taken

    def put_back_stale(self, items: Iterable[Item]) -> None:
        """Put back rows that could not be read again now."""
        self.stale.extend(items)
        self.some_stale.set()

    def behind(self, item: Item, limit: int) -> list[Item]:
        """Return the rows that are queued behind a row of the same session and stream."""
        line = self._lines[item.key] if item.key is not None else None
        return list(islice(line, limit)) if line else []

    def resume(self, items: Iterable[Item], known_since: float) -> None:
        """Queue stale rows again after the database confirmed that this router owns them."""
        for item in items:
            item.batch = Batch(known_since, 1)
            self._outlet(item).ready.append(item)
        self._wakeup.set()

    @property
    def full_streams(self) -> frozenset[str]:
        """Return the streams that reject new messages because they are full and have rows waiting."""
        return frozenset(
            stream
            for stream, outlet in self._outlets.items()
            if outlet.is_full and outlet.in_flight
        )

    def streams_holding(self, max_bytes: int) -> frozenset[str]:
        """Return the streams whose rows take more memory than `max_bytes`."""
        return frozenset(
            stream for stream, outlet in self._outlets.items() if outlet.held_bytes > max_bytes
        )

    def rows_of(self, stream: str) -> int:
        """Return the number of rows of a stream in memory."""
        outlet = self._outlets.get(stream)
        return outlet.held if outlet else 0

    def take_counts(self) -> dict[str, tuple[int, int]]:
        """Return, by stream, the numbers of acknowledged and repeated rows since the last call."""
        counts = {
            stream: (outlet.published, outlet.repeated)
            for stream, outlet in self._outlets.items()
            if outlet.published or outlet.repeated
        }
        for stream in counts:
            self._outlets[stream].published = self._outlets[stream].repeated = 0
        return counts

    def take_dropped(self) -> dict[str, int]:
        """Return, by stream, the number of rows dropped since the last call for lack of room."""
        dropped = {
            stream: outlet.dropped for stream, outlet in self._outlets.items() if outlet.dropped
        }
        for stream in dropped:
            self._outlets[stream].dropped = 0
        return dropped

    def take_times(self) -> list[float]:
        """Return the seconds to the last acknowledgement of each batch since the last call."""
        taken, self._times = self._times, []
        return taken
