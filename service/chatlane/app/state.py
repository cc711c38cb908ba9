"""The state of a router, and the checks of its health."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from chatlane.domain.counts import Inconsistency
from chatlane.nats.event_storage import EventStorage
from chatlane.nats.tasks import end_task
from chatlane.nats.topology import LOG_STREAMS
from chatlane.observability.health import Heartbeat, Probes
from chatlane.observability.logs import get_logger
from chatlane.postgres.pool import probe_write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from chatlane.config.settings import Settings
    from chatlane.domain.catalog import Catalog
    from chatlane.ingest.batch_committer import Batches
    from chatlane.ingest.intake import Intake
    from chatlane.ingest.ownership import Ownership
    from chatlane.ingest.share_notices import ShareNotices
    from chatlane.nats.connection import Bus
    from chatlane.observability.metrics import Metrics
    from chatlane.outbox.relay import Relay
    from chatlane.postgres.pool import Store
    from chatlane.reconciliation.gauges import GaugeCollector
    from chatlane.reconciliation.reconciler import Reconciler
    from chatlane.reconciliation.topology_drift import DriftWatch
    from chatlane_client.transport.secured import Refusal

VERSION: Final = version("chatlane")

# A reader that could not be opened for this long counts as not moving.
_READER_PATIENCE: Final = timedelta(seconds=10)
# Long enough to be seen on a dashboard; the counter and the log keep the event.
_REGRESSION_SHOWN_FOR: Final = timedelta(hours=1)

_log = get_logger("app")


@dataclass(slots=True)
class App:
    """A router, from the moment its health endpoint answers.

    Attributes:
        http_port: The port that serves health and metrics.
        has_ended: Set when the router cannot continue: a part failed, or NATS closed the connection
            for good. The process supervisor is expected to start a new process.
    """

    settings: Settings
    catalog: Catalog
    store: Store
    metrics: Metrics
    router_id: UUID = field(default_factory=uuid4)
    http_port: int = 0
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_stopping: bool = False
    bus: Bus | None = None
    intake: Intake | None = None
    relay: Relay | None = None
    survey: GaugeCollector | None = None
    reconciler: Reconciler | None = None
    drift: DriftWatch | None = None
    share_notices: ShareNotices | None = None
    ownership: Ownership | None = None
    batches: Batches | None = None
    regressed_at: float | None = None
    event_storage: EventStorage = field(default_factory=EventStorage)

    @property
    def stop_patience(self) -> timedelta:
        """Longest wait for running work; at most one lease when the router has failed."""
        router = self.settings.router
        if self.has_ended.is_set():
            return min(router.lease, router.stop_timeout)
        return router.stop_timeout

    @asynccontextmanager
    async def running(self, name: str, part: Coroutine[None, None, None]) -> AsyncIterator[None]:
        """Run a part for the length of the block; if it ends by itself, the router ends."""
        task = asyncio.create_task(part, name=name)
        task.add_done_callback(self._part_ended)
        try:
            yield
        finally:
            await end_task(task)

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (self.is_stopping and task.exception() is None):
            return
        _log.critical("router_part_failed", part=task.get_name(), exc_info=task.exception())
        self.has_ended.set()

    def note_regression(self) -> None:
        """Record that the database has lost transactions that it had confirmed."""
        self.regressed_at = asyncio.get_running_loop().time()
        self.metrics.database_regressions.inc()
        _log.critical("database_regressed", router=str(self.router_id))
        if self.batches is not None:
            self.batches.expect_forgotten_claims()

    def count_refusal(self, refusal: Refusal) -> None:
        """Count an operation that NATS did not permit this router."""
        self.metrics.nats_refused.labels(refusal.what).inc()

    def probes(self, heartbeat: Heartbeat) -> Probes:
        """Return the checks behind the health routes."""
        return Probes(
            write=self._write,
            is_bus_connected=lambda: self.bus is not None and self.bus.is_connected,
            is_reader_moving=self._is_reader_moving,
            heartbeat=heartbeat,
            complaints=self._complaints,
            notices=lambda: self.share_notices.notices if self.share_notices else (),
            streams=self._streams,
            timeout=self.settings.http.probe_timeout,
        )

    async def _write(self) -> None:
        async with self.store.transaction() as connection:
            await probe_write(connection, self.router_id)

    def _complaints(self) -> list[str]:
        if self.survey is None or self.reconciler is None or self.drift is None:
            return []
        is_old = self.survey.oldest_dead_letter > self.settings.dead_letters.degraded_after
        # Several streams in one state are one complaint; `streams` names them.
        states = sorted({f"stream_{state}" for state in self._streams().values()})
        return [
            *(["dead_letters"] if is_old else []),
            *states,
            *(["account_shared"] if self.survey.shared_accounts else []),
            *(["row_locked"] if self.batches and self.batches.has_held_up else []),
            *(["database_regressed"] if self._has_regressed() else []),
            # Caused by one account; the notices name it.
            *(kind for kind in self.reconciler.found if kind != Inconsistency.UNPARTITIONED),
            *self.drift.complaints,
        ]

    def _has_regressed(self) -> bool:
        if self.regressed_at is None:
            return False
        now = asyncio.get_running_loop().time()
        return now - self.regressed_at < _REGRESSION_SHOWN_FOR.total_seconds()

    def _streams(self) -> dict[str, str]:
        if self.survey is None or self.relay is None:
            return {}
        full = self.survey.full_streams | self.relay.full_streams
        missing = self.survey.missing_streams
        return dict.fromkeys(sorted(full), "full") | dict.fromkeys(sorted(missing), "missing")

    def _is_reader_moving(self) -> bool:
        if self.intake is None or self.ownership is None or self.survey is None:
            return False
        # When a log is missing, the router gives its partitions up, so no stalled reader would be
        # left to report.
        if not self.ownership.can_read or self.survey.missing_streams & set(LOG_STREAMS.values()):
            return False
        now = asyncio.get_running_loop().time()
        patience = _READER_PATIENCE.total_seconds()
        return all(feed.unreadable_for(now) < patience for feed in self.intake.feeds)
