"""Sample the database, the streams and the partitions periodically, and set the gauges."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from chatlane.jobs import Job
from chatlane.observability.logs import get_logger
from chatlane.observability.metrics import show
from chatlane.postgres.stored_values import UNKNOWN_VALUES
from chatlane.reconciliation import reconciliation_sql
from chatlane.store import dead_letters
from chatlane_schemas.dead import Cause, cause_of
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from chatlane.ingest.partition_reader import PartitionFeed
    from chatlane.observability.metrics import Metrics
    from chatlane.postgres.pool import Transaction
    from chatlane.reconciliation.stream_contents import StreamContents
    from chatlane.store.dead_letters import Tally
    from chatlane_schemas.topology.streams import DurableSpec, StreamSpec

# A caller that waits for an answer needs to know within seconds that a stream is missing.
_LOOK_FOR_STREAMS: Final = timedelta(seconds=2)
# A large message finds no room before a stream is full to its last byte.
_HARDLY_ANY_ROOM: Final = 0.95

_log = get_logger("survey")


class GaugeCollector:
    """Sets the gauges. Every router shows the same service figures, so take their maximum.

    Args:
        streams: Source of backlogs and stream sizes.
        transaction: Opens a transaction.
        feeds: Returns the readers of the partitions that this router holds.
        metrics: Holds the gauges.
        declared_streams: Streams whose size and age are shown.
        declared_durables: Durables whose backlog is shown.
        lease: Duration of a partition lease.

    Attributes:
        oldest_dead_letter: Age of the oldest dead letter at the last sample; zero without one.
        full_streams: Streams that were nearly full at the last sample and reject new messages.
        missing_streams: Streams that did not exist at the last sample.
        shared_accounts: Durables of accounts from which several adapters read at the last two
            samples. Each account should have one adapter.
    """

    def __init__(
        self,
        streams: StreamContents,
        transaction: Transaction,
        feeds: Callable[[], Sequence[PartitionFeed]],
        metrics: Metrics,
        *,
        declared_streams: Iterable[StreamSpec],
        declared_durables: Iterable[DurableSpec],
        lease: timedelta,
    ) -> None:
        self._streams = streams
        self._transaction = transaction
        self._feeds = feeds
        self._metrics = metrics
        self._declared_streams = tuple(declared_streams)
        self._declared_durables = tuple(declared_durables)
        self._lease = lease
        self.oldest_dead_letter = timedelta(0)
        self.full_streams: frozenset[str] = frozenset()
        self.missing_streams: frozenset[str] = frozenset()
        self.shared_accounts: frozenset[str] = frozenset()
        self._seen_shared: frozenset[str] = frozenset()
        self._clock_ahead = timedelta(0)

    def jobs(self) -> tuple[Job, ...]:
        """Return the periodic jobs."""
        return (
            Job("partition figures", timedelta(seconds=1), self.look_at_partitions),
            Job("database figures", timedelta(seconds=10), self.look_at_database),
            Job("stream figures", timedelta(seconds=20), self.look_at_streams),
            Job("missing streams", _LOOK_FOR_STREAMS, self.look_for_streams),
        )

    async def look_at_partitions(self) -> None:
        """Set the lag of each partition that this router reads, and the time left of its leases."""
        now = datetime.now(UTC) - self._clock_ahead
        loop_now = asyncio.get_running_loop().time()
        lags: dict[tuple[str, ...], float] = {}
        left: dict[tuple[str, ...], float] = {}
        for feed in self._feeds():
            log = feed.partition.log
            lags[log, str(feed.partition.number)] = feed.lag(now, loop_now).total_seconds()
            lease_left = self._lease.total_seconds() - (loop_now - feed.renewed_at)
            left[(log,)] = min(lease_left, left.get((log,), lease_left))
        show(self._metrics.partition_lag, lags)
        show(self._metrics.lease_left, left)

    async def look_at_database(self) -> None:
        """Set the gauges of turns, partitions, dead letters and the outbox of the service.

        Raises:
            StoreUnavailableError: The next run repeats it.
        """
        async with self._transaction() as connection:
            figures = await reconciliation_sql.sample(connection)
            tallies = await dead_letters.tally(connection)
        self._show_dead_letters(tallies)
        show(
            self._metrics.turns,
            {(turns.agent, turns.state): turns.number for turns in figures.turns},
        )
        show(
            self._metrics.oldest_ready,
            {
                (turns.agent,): turns.oldest_seconds
                for turns in figures.turns
                if turns.state == "ready"
            },
        )
        show(self._metrics.unowned, {(log,): n for log, n in figures.unowned.items()})
        show(self._metrics.partitions, {(log,): n for log, n in figures.partitions.items()})
        self._metrics.outbox_oldest.set(figures.outbox_oldest_seconds)
        show(
            self._metrics.stored_values_unknown,
            {(name,): n for name, n in UNKNOWN_VALUES.counts.items()},
        )

    def _show_dead_letters(self, tallies: Sequence[Tally]) -> None:
        kept: dict[tuple[str, ...], float] = {}
        oldest: dict[tuple[str, ...], float] = {}
        for tally in tallies:
            cause = cause_of(tally.reason)
            kept[cause, tally.reason] = tally.number
            oldest[(cause,)] = max(tally.oldest_seconds, oldest.get((cause,), 0.0))
        show(self._metrics.dead_letters_kept, kept)
        show(self._metrics.dead_letter_oldest, oldest)
        # A sender over its limit gets a notice; an operator has nothing to repair.
        ages = (age for (cause,), age in oldest.items() if cause != Cause.SENDER)
        self.oldest_dead_letter = timedelta(seconds=max(ages, default=0.0))

    async def look_for_streams(self) -> None:
        """Find the declared streams that do not exist.

        Raises:
            BusUnavailableError: The next run repeats it.
        """
        states = {
            spec.name: await self._streams.find_state(spec.name) for spec in self._declared_streams
        }
        for state in filter(None, states.values()):
            # Messages get their times from the server's clock; a router's clock may be minutes off.
            self._clock_ahead = datetime.now(UTC) - state.answered_at
        missing = frozenset(name for name, state in states.items() if state is None)
        for stream in sorted(missing - self.missing_streams):
            _log.error("stream_missing", stream=stream)
        for restored in sorted(self.missing_streams - missing):
            _log.info("stream_back", stream=restored)
        self.missing_streams = missing

    async def look_at_streams(self) -> None:
        """Set the gauges of unread messages and of stream sizes.

        Raises:
            BusUnavailableError: The next run repeats it.
        """
        shared: set[str] = set()
        unread: dict[tuple[str, ...], float] = defaultdict(float)
        oldest: dict[tuple[str, ...], float] = defaultdict(float)
        for durable in self._declared_durables:
            backlog = await self._streams.find_backlog(durable)
            if backlog is None:
                continue
            if durable.stream is StreamName.OUTBOUND and backlog.waiting > 1:
                shared.add(durable.name)
            labels = (durable.stream, reader_of(durable))
            unread[labels] += backlog.unread
            oldest[labels] = max(oldest[labels], backlog.age.total_seconds())
        sizes = {
            spec.name: await self._streams.find_size(spec.name) for spec in self._declared_streams
        }
        self.full_streams = frozenset(
            spec.name
            for spec in self._declared_streams
            if spec.discard == "new" and (sizes[spec.name] or 0) > _HARDLY_ANY_ROOM * spec.max_bytes
        )
        self._note_shared(frozenset(shared))
        show(self._metrics.unread, unread)
        show(self._metrics.oldest_unread, oldest)
        show(
            self._metrics.stream_bytes,
            {(name,): size for name, size in sizes.items() if size is not None},
        )
        show(
            self._metrics.stream_limit,
            {(spec.name,): spec.max_bytes for spec in self._declared_streams},
        )
        show(
            self._metrics.stream_keeps,
            {
                (spec.name,): spec.max_age.total_seconds()
                for spec in self._declared_streams
                if spec.max_age is not None
            },
        )

    def _note_shared(self, shared: frozenset[str]) -> None:
        """Report an account as shared after two samples in a row; one may be an adapter restart."""
        found = shared & self._seen_shared
        for durable in sorted(found - self.shared_accounts):
            _log.error("account_shared", durable=durable)
        self._seen_shared, self.shared_accounts = shared, found


def reader_of(durable: DurableSpec) -> str:
    """Return the name of a durable's reader; all slots of an agent are one reader."""
    return durable.name.rpartition("-")[0] if durable.stream is StreamName.ROUTED else durable.name
