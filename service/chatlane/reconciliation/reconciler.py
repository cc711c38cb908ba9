"""Compare database and streams periodically, repair what is safe to repair, and report the rest.

In normal operation there is nothing to repair. Every finding comes from a bug, from a manual
change, or from a server that lost data.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.counts import Inconsistency
from chatlane.domain.effects import Effects
from chatlane.domain.log import LOGS
from chatlane.domain.turns.lifecycle import open_turn
from chatlane.errors import TransientError
from chatlane.jobs import Job
from chatlane.nats.log_shares import NOT_PARTITIONED
from chatlane.nats.topology import find_partition_count
from chatlane.observability.logs import get_logger
from chatlane.observability.metrics import show
from chatlane.reconciliation import reconciliation_sql
from chatlane.store.conversations import sessions
from chatlane.store.logs import partitions
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.decisions.unit_of_work import UnitOfWorkFactory
    from chatlane.domain.log import LogPosition, PartitionId
    from chatlane.nats.jetstream import StreamState
    from chatlane.nats.log_access import LogAccess
    from chatlane.observability.metrics import Metrics
    from chatlane.postgres.pool import Transaction
    from chatlane.reconciliation.reconciliation_sql import Round
    from chatlane.reconciliation.stream_contents import StreamContents
    from chatlane.reconciliation.stream_gap_repair import LostMessages
    from chatlane_schemas.topology.streams import DurableSpec

# While the servers are available, the service handles everything checked here within seconds.
GRACE_PERIOD: Final = timedelta(seconds=60)
_LOOK: Final = timedelta(seconds=10)
# Three checks of one router, or fewer of several, less the jitter.
_EVERY: Final = timedelta(seconds=25)

_log = get_logger("reconciling")


class Reconciler:
    """Compares, repairs and reports; several routers may run it, and one at a time compares.

    Args:
        logs: Both logs.
        contents: Streams and durables.
        lost_messages: Compares the streams that routers write to.
        transaction: Opens a transaction.
        writer: Opens the transactions that open turns.
        metrics: Shows the findings; every router shows them.
        declared_durables: The declared durables; of those on TURNS, the backlog is checked as well.
        patience: Rows and messages that are younger are not checked.
        every: Pause between two comparisons of the whole service.

    Attributes:
        found: Findings of the last comparison, by any router.
    """

    def __init__(
        self,
        logs: LogAccess,
        transaction: Transaction,
        writer: UnitOfWorkFactory,
        metrics: Metrics,
        *,
        contents: StreamContents,
        lost_messages: LostMessages,
        declared_durables: Iterable[DurableSpec],
        patience: timedelta = GRACE_PERIOD,
        every: timedelta = _EVERY,
    ) -> None:
        self._logs = logs
        self._contents = contents
        self._lost_messages = lost_messages
        self._transaction = transaction
        self._writer = writer
        self._metrics = metrics
        self._durables = tuple(declared_durables)
        self._agents = [durable for durable in self._durables if durable.stream is StreamName.TURNS]
        self._patience = patience
        self._every = every
        self.found: Mapping[str, int] = {}

    def jobs(self) -> tuple[Job, ...]:
        """Return the periodic jobs."""
        return (Job("reconciliation", _LOOK, self.run),)

    async def run(self) -> None:
        """Compare if a comparison is due, and show the findings of the last one.

        Raises:
            TransientError: The next run repeats it.
        """
        async with self._transaction() as connection:
            begun = await reconciliation_sql.begin(connection, self._every)
        if begun is not None:
            await self._compare(begun)
        async with self._transaction() as connection:
            self.found = await reconciliation_sql.read_found(connection)
        show(
            self._metrics.inconsistencies,
            {(kind,): self.found.get(kind, 0) for kind in Inconsistency},
        )

    async def _compare(self, begun: Round) -> None:
        quiet = await self._quiet_agents()
        found: Counter[str] = Counter()
        async with self._transaction() as connection:
            found[Inconsistency.OUTBOX_UNPUBLISHED] = await reconciliation_sql.count_unpublished(
                connection, self._patience
            )
            found[Inconsistency.TURN_OVERDUE] = await reconciliation_sql.count_overdue(
                connection, self._patience
            )
            silent = await reconciliation_sql.find_unannounced(
                connection, quiet, self._patience / 2
            )
            stranded, walked = await reconciliation_sql.find_stranded(
                connection, begun, self._patience
            )
            walked = await reconciliation_sql.count_lanes_astray(
                connection, walked, Inconsistency.LANE_ASTRAY
            )
            positions = await partitions.positions(connection)
        found[Inconsistency.LANE_ASTRAY] = walked.found[Inconsistency.LANE_ASTRAY]
        found[Inconsistency.TURN_UNANNOUNCED] = len(silent)
        found[Inconsistency.MESSAGES_STRANDED] = len(stranded)
        found[Inconsistency.UNPARTITIONED] = await self._contents.count(
            StreamName.INBOUND, NOT_PARTITIONED
        )
        for durable in self._durables:
            found[Inconsistency.DURABLE_AHEAD] += await self._contents.is_ahead(durable)
        found += await self._compare_logs(positions)
        found += await self._compare_streams()
        self._report(found)
        await self._announce(silent)
        await self._open_turns(stranded, begun.looked_at)
        async with self._transaction() as connection:
            await reconciliation_sql.end(connection, replace(walked, found=+found))

    async def _quiet_agents(self) -> list[str]:
        """Return the agents without an unread notification that a worker could claim."""
        backlogs = {
            durable.name: await self._contents.find_backlog(durable) for durable in self._agents
        }
        return [name for name, backlog in backlogs.items() if backlog and backlog.unread == 0]

    async def _compare_streams(self) -> Counter[str]:
        try:
            return await self._lost_messages.compare()
        except TransientError as error:
            # No mark was written, so the next comparison finds the same. Continue with the rest.
            _log.warning("sweep_postponed", task="lost messages", reason=str(error))
            return Counter()

    async def _compare_logs(self, positions: Mapping[PartitionId, LogPosition]) -> Counter[str]:
        found: Counter[str] = Counter()
        for log in LOGS:
            of_log = [
                (partition, position)
                for partition, position in positions.items()
                if partition.log == log
            ]
            # Read the state after the positions: a log never ends before a committed cursor.
            state = await self._logs.get_state(log)
            stream_count = find_partition_count(state.config)
            found[Inconsistency.PARTITION_COUNT] += stream_count != len(of_log)
            for partition, position in of_log:
                found[await self._judge(partition, position, state) or ""] += 1
        del found[""]
        return found

    async def _judge(
        self, partition: PartitionId, position: LogPosition, state: StreamState
    ) -> Inconsistency | None:
        if position.generation is None:
            return None
        if position.generation != state.generation or position.cursor > state.last_sequence:
            return Inconsistency.CURSOR_AHEAD
        if position.cursor == state.last_sequence:
            return None
        stored_at = await self._logs.find_stored_after(partition, position.cursor)
        is_old = stored_at is not None and state.answered_at - stored_at > self._patience
        return Inconsistency.LOG_UNREAD if is_old else None

    def _report(self, found: Mapping[str, int]) -> None:
        for kind, count in found.items():
            if count:
                _log.error("inconsistency_found", kind=kind, count=count)

    async def _announce(self, silent: Sequence[UUID]) -> None:
        """Make turns due whose notification is lost, so that the sweep announces them."""
        if silent:
            async with self._transaction() as connection:
                hurried = await reconciliation_sql.hurry(connection, silent)
            self._metrics.reconciled.labels(Inconsistency.TURN_UNANNOUNCED).inc(hurried)

    async def _open_turns(self, stranded: Sequence[UUID], at: datetime) -> None:
        if not stranded:
            return
        effects = Effects()
        async with self._writer.begin() as unit_of_work:
            locked = await sessions.lock_free(unit_of_work.connection, stranded)
            # An operator has to inspect messages that wait in an ended session.
            live = [session.id for session in locked.values() if session.ended_at is None]
            opened = await reconciliation_sql.confirm_stranded(unit_of_work.connection, live)
            for oldest in opened:
                trigger = oldest.message_id.bytes + at.isoformat().encode()
                open_turn(locked[oldest.session_id], oldest.stored_at, trigger, effects)
            await unit_of_work.write(
                effects, sessions_of=[locked[oldest.session_id] for oldest in opened]
            )
        self._metrics.reconciled.labels(Inconsistency.MESSAGES_STRANDED).inc(len(opened))
