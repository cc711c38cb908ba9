"""The composition root: open all parts of a router in order, and close them again.

Only this module, `connections` and the command line read the settings.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from random import SystemRandom
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from chatlane.api.broker import open_api
from chatlane.api.endpoint import RequestHandler
from chatlane.api.handlers import every_handler
from chatlane.api.routes import build_router
from chatlane.api.turns import TurnHandlers
from chatlane.connections import bus_options, declared_topology, store_of
from chatlane.decisions.claim_recovery import InboundProgress
from chatlane.decisions.limits.dead_letter_limits import DeadLetterLimits
from chatlane.decisions.unit_of_work import UnitOfWorkFactory
from chatlane.domain.counts import Inconsistency
from chatlane.domain.limits.shares import declared_owners, declared_owners_of_streams
from chatlane.domain.log import LOGS
from chatlane.errors import SchemaMismatchError, TransientError
from chatlane.garbage import collect_rarely
from chatlane.importer.exports.uploads import ImportLimits
from chatlane.ingest.batch_committer import Batches
from chatlane.ingest.idle_partitions import IdleCheck
from chatlane.ingest.intake import Intake
from chatlane.ingest.log_purge import LogRetention
from chatlane.ingest.log_trimmer import LogTrimmer
from chatlane.ingest.ownership import Ownership
from chatlane.ingest.partition_reader import record_lost_range
from chatlane.ingest.share_notices import ShareNotices
from chatlane.jobs import Job, WakeupTimer
from chatlane.maintenance import SEEN_AHEAD, MaintenanceLoop, TableMaintenance
from chatlane.nats import topology
from chatlane.nats.advisories import AdvisoryQueue
from chatlane.nats.connection import open_bus
from chatlane.nats.event_storage import EventStorage
from chatlane.nats.jetstream import JetStream
from chatlane.nats.log_access import LogAccess
from chatlane.nats.log_shares import LogShares
from chatlane.nats.routed_slots import RoutedSlots
from chatlane.nats.tasks import end_task
from chatlane.nats.topology import LOG_STREAMS
from chatlane.observability.health import Heartbeat, Probes, build_asgi, open_http
from chatlane.observability.logs import get_logger
from chatlane.observability.metrics import Metrics
from chatlane.observability.tracing import sending_traces
from chatlane.outbox.publisher import open_publisher
from chatlane.outbox.relay import Relay
from chatlane.outbox.undeliverable import UndeliverableMessages
from chatlane.postgres import blockers
from chatlane.postgres.migrations import verify_schema
from chatlane.postgres.pool import probe_write
from chatlane.privacy.erasure_list import ErasedMessageCleaner, deleted_of_log, require_keys
from chatlane.privacy.stream_erasure import StreamErasure
from chatlane.reconciliation.gauges import GaugeCollector
from chatlane.reconciliation.reconciler import GRACE_PERIOD, Reconciler
from chatlane.reconciliation.routed_changes import RoutedChanges
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane.reconciliation.stream_gap_repair import LostMessages
from chatlane.reconciliation.topology_drift import DriftWatch
from chatlane.search.indexer import SearchFilling
from chatlane.store.addressing import dedupe_marks
from chatlane.store.audit import ReadNotes
from chatlane.store.conversations.session_reads import SessionReads
from chatlane.store.logs import partitions
from chatlane.turns.claims import ClaimService
from chatlane.turns.leases import Deadlines
from chatlane.turns.message_expiry import MessageExpiry
from chatlane.turns.session_updates import Updates
from chatlane.turns.timed_resets import TimedEnds
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from datetime import datetime

    from chatlane.config.settings import Settings
    from chatlane.connections import Topology
    from chatlane.domain.catalog import Catalog
    from chatlane.nats.connection import Bus
    from chatlane.postgres.blockers import Blocker
    from chatlane.postgres.pool import Store
    from chatlane_client.transport.secured import Refusal

VERSION: Final = version("chatlane")

_START_PAUSE: Final = timedelta(milliseconds=500)
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


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[App]:
    """Serve health for the length of the block; `route` does the work.

    Raises:
        SettingsError: No platform is declared.
        OSError: The port for health is taken.
    """
    metrics = Metrics(VERSION)
    heartbeat = Heartbeat(metrics)
    async with store_of(settings) as store:
        app = App(settings, settings.catalog(), store, metrics)
        asgi = build_asgi(metrics, app.probes(heartbeat))
        async with (
            open_http(asgi, settings.http.host, settings.http.port) as app.http_port,
            app.running("heartbeat", heartbeat.run()),
        ):
            yield app


async def run(settings: Settings) -> int:
    """Run a router until SIGTERM or SIGINT; return the exit code of the process."""
    collect_rarely()
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    with sending_traces(settings.tracing.endpoint, VERSION):
        return await _run(settings, stop)


async def _run(settings: Settings, stop: asyncio.Event) -> int:
    async with open_app(settings) as app:
        routing = asyncio.create_task(route(app, stop), name="route")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait({routing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not routing.done() and app.intake is None:
            # Still waiting for its dependencies, so there is nothing to hand back.
            await end_task(routing)
        else:
            await routing
    return 1 if app.has_ended.is_set() else 0


async def route(app: App, stop: asyncio.Event) -> None:
    """Wait for the dependencies, then route until `stop` is set or the router has ended.

    Raises:
        SchemaMismatchError: Database or streams differ from what this release works with.
        BusUnavailableError: NATS refuses the connection.
    """
    options = bus_options(app.settings, "chatlane-router")
    async with open_bus(options, app.count_refusal) as app.bus:
        _show_connection(app.metrics, app.bus)
        began_at = await _until_dependencies_are_there(app, JetStream(app.bus.client))
        async with _open_parts(app, app.bus, began_at):
            _log.info("router_started", router=str(app.router_id), port=app.http_port)
            waits = [stop.wait(), app.has_ended.wait(), app.bus.closed.wait()]
            tasks = [asyncio.create_task(wait) for wait in waits]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            if app.bus.closed.is_set():
                app.has_ended.set()
            app.is_stopping = True
            _log.info("router_stopping", router=str(app.router_id))
    _log.info("router_stopped", router=str(app.router_id))


def _show_connection(metrics: Metrics, bus: Bus) -> None:
    def reconnected() -> None:
        metrics.nats_connected.set(1)
        metrics.nats_reconnects.inc()

    metrics.nats_connected.set(int(bus.is_connected))
    bus.listen(
        disconnected=lambda: metrics.nats_connected.set(0),
        reconnected=reconnected,
    )


async def _until_dependencies_are_there(app: App, jetstream: JetStream) -> datetime:
    """Wait until Postgres and NATS are available and as this release needs them.

    Returns:
        The current time, by the clock of the logs.
    """
    declared = declared_topology(app.settings)
    while True:
        try:
            return await _verify(app, jetstream, declared)
        except TransientError as error:
            _log.warning("dependencies_awaited", reason=str(error))
            await asyncio.sleep(_START_PAUSE.total_seconds() * SystemRandom().uniform(0.5, 1))


async def _verify(app: App, jetstream: JetStream, declared: Topology) -> datetime:
    async with app.store.transaction() as connection:
        await verify_schema(connection)
        await require_keys(connection, app.settings.erasure_key())
    streams, durables = declared.streams, declared.durables
    if differences := await topology.verify(jetstream, streams, durables, is_starting=True):
        raise SchemaMismatchError(tuple(differences))
    await app.event_storage.look(jetstream)
    for log in LOGS:
        async with app.store.transaction() as connection:
            await partitions.ensure(connection, log, app.settings.router.partitions)
    async with app.store.transaction() as connection:
        await dedupe_marks.create_partitions(connection, SEEN_AHEAD)
    return (await jetstream.get_stream(LOG_STREAMS["inbound"])).told_at


@asynccontextmanager
async def _open_parts(app: App, bus: Bus, began_at: datetime) -> AsyncIterator[None]:
    """Run all parts; at the end release the partitions, publish what is left, answer claims."""
    router = app.settings.router
    jitter = SystemRandom()
    transaction = app.store.transaction
    async with open_publisher(bus, app.settings.nats.publish_timeout) as publisher:
        app.relay = relay = Relay(
            publisher,
            transaction,
            app.router_id,
            metrics=app.metrics,
            jitter=jitter,
            duplicate_window=app.settings.streams.duplicate_window,
            full_rows=router.outbox_rows,
            is_unstored=app.event_storage.lacks,
            tell=publisher.tell,
        )
        bus.listen(reconnected=relay.retry_now)
        filling = SearchFilling(transaction, app.metrics)
        wakeup = WakeupTimer()
        rescue = WakeupTimer()
        routed_change = WakeupTimer()
        updates = Updates(publisher.tell)
        writer = UnitOfWorkFactory(
            app.store,
            relay,
            app.metrics,
            tell=publisher.tell,
            written=filling.written,
            schedule_within=wakeup.schedule_within,
            touched=updates.note,
            dead_letter_limits=DeadLetterLimits(
                letters=app.settings.dead_letters.most_per_hour,
                body_bytes=int(app.settings.dead_letters.most_bytes_per_hour),
                owners=declared_owners(app.catalog),
            ),
            routed_changed=partial(routed_change.schedule_within, timedelta(0)),
        )
        session_service = ClaimService(app.store, app.catalog.agents, publisher.tell)
        access = LogAccess(bus, router.partitions, buffer_bytes=router.buffer_bytes)
        app.intake = intake = Intake(
            router=app.router_id,
            lease=router.lease,
            access=access,
            transaction=transaction,
            on_truncated=record_lost_range,
            metrics=app.metrics,
            jitter=jitter,
        )
        app.batches = batches = Batches(
            intake,
            writer,
            app.catalog,
            app.metrics,
            router_id=app.router_id,
            lease=router.lease,
            slots=router.slots,
            max_messages=router.batch_messages,
            linger=router.batch_linger,
            jitter=jitter,
            full_streams=lambda: relay.overfull_streams,
            inbound_is_read=InboundProgress(access, transaction).is_read,
            erasure_key=app.settings.erasure_key(),
            began_at=began_at,
            find_blocker=partial(_find_blocker, app.store),
        )

        def database_regressed() -> None:
            app.note_regression()
            batches.expect_forgotten_claims()

        app.ownership = ownership = Ownership(
            router=app.router_id,
            version=VERSION,
            partition_count=router.partitions,
            holder=intake,
            transaction=transaction,
            is_log_reachable=lambda: access.is_reachable,
            # Publish the rows of the previous owner first; the periodic sweep would run up to 750
            # ms later.
            on_taken_over=lambda: rescue.schedule_within(timedelta(0)),
            on_unreadable=bus.move_on,
            on_database_regressed=database_regressed,
            lease=router.lease,
            renew_interval=router.renew_interval,
            poll_interval=router.poll_interval,
        )
        idle = IdleCheck(
            router=app.router_id,
            lease=router.lease,
            intake=intake,
            access=access,
            transaction=transaction,
        )
        deadlines = Deadlines(app.store, writer, app.catalog, _unread(JetStream(bus.client)))
        routed_changes = RoutedChanges(
            RoutedSlots(bus.client),
            StreamContents(bus.client),
            StreamErasure(bus.client),
            transaction,
            writer,
            agents=app.catalog.agents,
            slot_count=router.slots,
        )
        jobs = _jobs(app, bus, writer, relay, intake, deadlines=deadlines)
        maintenance_loop = MaintenanceLoop((*jobs, *filling.jobs(), routed_changes.job()), jitter)
        async with (
            app.running("relay", relay.run()),
            app.running("claims", session_service.run()),
            app.running("updates", updates.run()),
            _request_handler(app, bus, session_service, writer),
        ):
            try:
                async with (
                    app.running("batches", batches.run()),
                    app.running("idle check", idle.run()),
                    app.running("sweeper", maintenance_loop.run()),
                    app.running("alarm", wakeup.run(deadlines.sweep)),
                    app.running("rescue", rescue.run(relay.adopt_orphans)),
                    app.running("routed changes", routed_change.run(routed_changes.settle)),
                    app.running("ownership", ownership.run()),
                ):
                    try:
                        yield
                    finally:
                        # After this, this router reads and decides nothing.
                        await ownership.stop(app.stop_patience)
            finally:
                await relay.drain(app.stop_patience)
                await intake.close()


def _jobs(
    app: App,
    bus: Bus,
    writer: UnitOfWorkFactory,
    relay: Relay,
    intake: Intake,
    *,
    deadlines: Deadlines,
) -> tuple[Job, ...]:
    transaction = app.store.transaction
    undeliverable = UndeliverableMessages(AdvisoryQueue(bus.client), transaction, app.metrics)
    logs = LogAccess(bus, app.settings.router.partitions)
    retention = LogRetention(logs, transaction, app.settings.streams.replay_window)
    declared = declared_topology(app.settings)
    contents = StreamContents(bus.client)
    app.survey = survey = GaugeCollector(
        contents,
        transaction,
        lambda: intake.feeds,
        app.metrics,
        declared_streams=declared.streams,
        declared_durables=declared.durables,
        lease=app.settings.router.lease,
    )
    app.reconciler = reconciler = Reconciler(
        logs,
        transaction,
        writer,
        app.metrics,
        contents=contents,
        lost_messages=LostMessages(
            contents,
            transaction,
            writer,
            app.metrics,
            agents=app.catalog.agents,
            slots=app.settings.router.slots,
            patience=GRACE_PERIOD,
        ),
        declared_durables=declared.durables,
    )
    jetstream = JetStream(bus.client)

    async def find_differences() -> list[str]:
        streams, durables = declared.streams, declared.durables
        differences = await app.event_storage.compare(jetstream, streams, durables)
        if not app.event_storage.has_turn_events:
            # Drop what was written before this was known.
            relay.retry_now()
        return differences

    app.drift = drift = DriftWatch(
        find_differences,
        logs,
        app.metrics,
        app.settings.streams.replay_window,
        partial(deleted_of_log, transaction),
    )
    cleaner = ErasedMessageCleaner(
        transaction, StreamErasure(bus.client), app.router_id, app.settings.erasure_key()
    )
    tables = TableMaintenance(
        transaction, app.settings.streams.replay_window, app.settings.dead_letters.keep
    )
    routine = (
        Job("orphans", timedelta(milliseconds=500), relay.adopt_orphans),
        Job("turns", timedelta(milliseconds=500), deadlines.sweep),
        Job("undeliverable", timedelta(seconds=1), undeliverable.collect),
        Job("logs", timedelta(minutes=5), retention.keep),
        *tables.jobs(),
    )
    expired = MessageExpiry(app.store, writer)
    ends = TimedEnds(app.store, writer, app.catalog, lambda: logs.get_state("inbound"))
    trimmer = LogTrimmer(
        LogShares(bus.client),
        transaction,
        app.metrics,
        owners=declared_owners_of_streams(app.catalog),
        trim_above=app.settings.streams.trim_above,
    )
    app.share_notices = notices = ShareNotices(
        transaction, contents, lambda: reconciler.found, declared_owners_of_streams(app.catalog)
    )
    shares = (*trimmer.jobs(), *notices.jobs())
    left = Job("outbox of full streams", timedelta(seconds=1), relay.count_left)
    watches = (left, *survey.jobs(), *reconciler.jobs(), *drift.jobs(), *shares)
    return (*routine, *watches, *ends.jobs(), *expired.jobs(), *cleaner.jobs())


@asynccontextmanager
async def _request_handler(
    app: App, bus: Bus, session_service: ClaimService, writer: UnitOfWorkFactory
) -> AsyncIterator[None]:
    request_handler = RequestHandler(
        app.metrics,
        lambda: bus.client.max_payload,
        SessionReads(app.store).agent_of,
        ReadNotes(app.store).note,
        app.catalog.people_of,
    )
    turns = [
        TurnHandlers(agent.name, session_service, request_handler, app.metrics)
        for agent in app.catalog.agents.values()
        if agent.delivery == "turns"
    ]
    router = app.settings.router
    imports = app.settings.imports
    handlers = every_handler(
        app.store,
        writer,
        app.catalog,
        router.slots,
        request_handler,
        find_newest=LogAccess(bus, router.partitions).find_newest_of_chat,
        import_limits=ImportLimits(imports.most_messages, imports.most_bytes),
    )
    routes = build_router(handlers)
    options = bus_options(app.settings, "chatlane-router")

    def closed() -> None:
        if not app.is_stopping:
            app.has_ended.set()

    async with open_api(options, routes, turns, on_closed=closed, on_refused=app.count_refusal):
        yield


async def _find_blocker(store: Store, pid: int) -> Blocker | None:
    async with store.transaction() as connection:
        return await blockers.find(connection, pid)


def _unread(jetstream: JetStream) -> Callable[[str], Awaitable[int]]:

    async def unread(agent: str) -> int:
        info = await jetstream.find(f"CONSUMER.INFO.{StreamName.TURNS}.{agent}")
        return int(info["num_pending"]) if info else 0

    return unread
