"""The parts of a router: what each is made from, and in which order they run and end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from chatlane.api.broker import open_api
from chatlane.api.endpoint import RequestHandler
from chatlane.api.handlers import every_handler
from chatlane.api.operators.service_state import StreamReads
from chatlane.api.routes import build_router
from chatlane.api.turns import TurnHandlers
from chatlane.app.periodic_jobs import periodic_jobs
from chatlane.app.state import VERSION
from chatlane.connections import bus_options, declared_topology
from chatlane.decisions.claim_recovery import InboundProgress
from chatlane.decisions.limits.dead_letter_limits import DeadLetterLimits
from chatlane.decisions.unit_of_work import UnitOfWorkFactory
from chatlane.domain.limits.shares import declared_owners
from chatlane.importer.exports.uploads import ImportLimits
from chatlane.ingest.batch_committer import Batches
from chatlane.ingest.idle_partitions import IdleCheck
from chatlane.ingest.intake import Intake
from chatlane.ingest.ownership import Ownership
from chatlane.ingest.partition_reader import record_lost_range
from chatlane.jobs import WakeupTimer
from chatlane.maintenance import MaintenanceLoop
from chatlane.nats.jetstream import JetStream
from chatlane.nats.log_access import LogAccess
from chatlane.nats.routed_slots import RoutedSlots
from chatlane.outbox.publisher import Publisher, open_publisher
from chatlane.outbox.relay import Relay
from chatlane.postgres import blockers
from chatlane.privacy.stream_erasure import StreamErasure
from chatlane.reconciliation.routed_changes import RoutedChanges
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane.search.indexer import SearchFilling
from chatlane.store.audit import ReadNotes
from chatlane.store.conversations.session_reads import SessionReads
from chatlane.turns.claims import ClaimService
from chatlane.turns.leases import Deadlines
from chatlane.turns.session_updates import Updates
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from datetime import datetime

    from chatlane.app.state import App
    from chatlane.nats.connection import Bus
    from chatlane.postgres.blockers import Blocker
    from chatlane.postgres.pool import Store

_JITTER: Final = SystemRandom()


@dataclass(frozen=True, slots=True)
class _Timers:
    """Timers that run a job before its next sweep.

    Attributes:
        turns: Deadlines of turns.
        orphans: Outbox rows of another router.
        routed_changes: Changes of messages that no stream worker has received.
    """

    turns: WakeupTimer = field(default_factory=WakeupTimer)
    orphans: WakeupTimer = field(default_factory=WakeupTimer)
    routed_changes: WakeupTimer = field(default_factory=WakeupTimer)


@asynccontextmanager
async def open_parts(app: App, bus: Bus, began_at: datetime) -> AsyncIterator[None]:
    """Run all parts; at the end release the partitions, publish what is left, answer claims."""
    router = app.settings.router
    transaction = app.store.transaction
    timers = _Timers()
    async with open_publisher(bus, app.settings.nats.publish_timeout) as publisher:
        app.relay = relay = _relay(app, publisher)
        bus.listen(reconnected=relay.retry_now)
        filling = SearchFilling(transaction, app.metrics)
        updates = Updates(publisher.tell)
        writer = UnitOfWorkFactory(
            app.store,
            relay,
            app.metrics,
            tell=publisher.tell,
            written=filling.written,
            schedule_within=timers.turns.schedule_within,
            touched=updates.note,
            dead_letter_limits=DeadLetterLimits(
                letters=app.settings.dead_letters.most_per_hour,
                body_bytes=int(app.settings.dead_letters.most_bytes_per_hour),
                owners=declared_owners(app.catalog),
            ),
            routed_changed=partial(timers.routed_changes.schedule_within, timedelta(0)),
        )
        session_service = ClaimService(app.store, app.catalog.agents, publisher.tell)
        forget_answers = session_service.forget_answers
        bus.listen(disconnected=forget_answers, reconnected=forget_answers)
        access = LogAccess(bus, router.partitions, buffer_bytes=router.buffer_bytes)
        app.intake = intake = Intake(
            router=app.router_id,
            lease=router.lease,
            access=access,
            transaction=transaction,
            on_truncated=record_lost_range,
            metrics=app.metrics,
            jitter=_JITTER,
        )
        app.batches = batches = _batches(app, intake, relay, access, writer, began_at=began_at)
        app.ownership = ownership = _ownership(app, bus, intake, access, timers.orphans)
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
        jobs = periodic_jobs(app, bus, writer, relay, intake, deadlines=deadlines)
        maintenance_loop = MaintenanceLoop((*jobs, *filling.jobs(), routed_changes.job()), _JITTER)
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
                    app.running("alarm", timers.turns.run(deadlines.sweep)),
                    app.running("rescue", timers.orphans.run(relay.adopt_orphans)),
                    app.running("routed changes", timers.routed_changes.run(routed_changes.settle)),
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


def _relay(app: App, publisher: Publisher) -> Relay:
    return Relay(
        publisher,
        app.store.transaction,
        app.router_id,
        metrics=app.metrics,
        jitter=_JITTER,
        duplicate_window=app.settings.streams.duplicate_window,
        full_rows=app.settings.router.outbox_rows,
        is_unstored=app.event_storage.lacks,
        tell=publisher.tell,
    )


def _batches(
    app: App,
    intake: Intake,
    relay: Relay,
    access: LogAccess,
    writer: UnitOfWorkFactory,
    *,
    began_at: datetime,
) -> Batches:
    router = app.settings.router
    return Batches(
        intake,
        writer,
        app.catalog,
        app.metrics,
        router_id=app.router_id,
        lease=router.lease,
        slots=router.slots,
        max_messages=router.batch_messages,
        linger=router.batch_linger,
        jitter=_JITTER,
        full_streams=lambda: relay.overfull_streams,
        inbound_is_read=InboundProgress(access, app.store.transaction).is_read,
        erasure_key=app.settings.erasure_key(),
        began_at=began_at,
        find_blocker=partial(_find_blocker, app.store),
    )


def _ownership(
    app: App, bus: Bus, intake: Intake, access: LogAccess, orphans: WakeupTimer
) -> Ownership:
    router = app.settings.router
    return Ownership(
        router=app.router_id,
        version=VERSION,
        partition_count=router.partitions,
        holder=intake,
        transaction=app.store.transaction,
        is_log_reachable=lambda: access.is_reachable,
        # Publish the rows of the previous owner first; the periodic sweep would run up to 750
        # ms later.
        on_taken_over=lambda: orphans.schedule_within(timedelta(0)),
        on_unreadable=bus.move_on,
        on_database_regressed=app.note_regression,
        lease=router.lease,
        renew_interval=router.renew_interval,
        poll_interval=router.poll_interval,
    )


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
    logs = LogAccess(bus, router.partitions)
    handlers = every_handler(
        app.store,
        writer,
        app.catalog,
        router.slots,
        request_handler,
        find_newest=logs.find_newest_of_chat,
        streams=StreamReads(
            logs.find_lags,
            StreamContents(bus.client).find_backlog,
            declared_topology(app.settings).durables,
        ),
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
