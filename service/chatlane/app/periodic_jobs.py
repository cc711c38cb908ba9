"""The periodic jobs of a router."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from chatlane.connections import declared_topology
from chatlane.domain.limits.shares import declared_owners_of_streams
from chatlane.ingest.log_purge import LogRetention
from chatlane.ingest.log_trimmer import LogTrimmer
from chatlane.ingest.share_notices import ShareNotices
from chatlane.jobs import Job
from chatlane.maintenance import TableMaintenance
from chatlane.nats.advisories import AdvisoryQueue
from chatlane.nats.jetstream import JetStream
from chatlane.nats.log_access import LogAccess
from chatlane.nats.log_shares import LogShares
from chatlane.outbox.undeliverable import UndeliverableMessages
from chatlane.privacy.erasure_list import ErasedMessageCleaner, deleted_of_log
from chatlane.privacy.stream_erasure import StreamErasure
from chatlane.reconciliation.gauges import GaugeCollector
from chatlane.reconciliation.reconciler import GRACE_PERIOD, Reconciler
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane.reconciliation.stream_gap_repair import LostMessages
from chatlane.reconciliation.topology_drift import DriftWatch
from chatlane.turns.message_expiry import MessageExpiry
from chatlane.turns.timed_resets import TimedEnds

if TYPE_CHECKING:
    from chatlane.app.state import App
    from chatlane.decisions.unit_of_work import UnitOfWorkFactory
    from chatlane.ingest.intake import Intake
    from chatlane.nats.connection import Bus
    from chatlane.outbox.relay import Relay
    from chatlane.turns.leases import Deadlines


def periodic_jobs(
    app: App,
    bus: Bus,
    writer: UnitOfWorkFactory,
    relay: Relay,
    intake: Intake,
    *,
    deadlines: Deadlines,
) -> tuple[Job, ...]:
    """Return all jobs but those of the search index; their gauges become parts of the app."""
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
        LogShares(bus.client, app.settings.router.slots),
        transaction,
        app.metrics,
        owners=declared_owners_of_streams(app.catalog),
        trim_above=app.settings.streams.trim_above,
        has_other_agents=len(app.catalog.agents) > 1,
    )
    writer.find_crowding = lambda: trimmer.crowding
    app.share_notices = notices = ShareNotices(
        transaction,
        contents,
        lambda: reconciler.found,
        declared_owners_of_streams(app.catalog),
        lambda: trimmer.crowding,
    )
    shares = (*trimmer.jobs(), *notices.jobs())
    left = Job("outbox of full streams", timedelta(seconds=1), relay.count_left)
    watches = (left, *survey.jobs(), *reconciler.jobs(), *drift.jobs(), *shares)
    return (*routine, *watches, *ends.jobs(), *expired.jobs(), *cleaner.jobs())
