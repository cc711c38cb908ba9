"""Compares database and streams now and then, repairs what is safe to repair, reports the rest.

Nothing here is needed while all parts do what they should: whatever is found was left behind by
a bug, by a person, or by a server that lost something.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from chatlane.domain.effects import Effects
from chatlane.domain.inconsistencies import Inconsistency
from chatlane.domain.log import LOGS
from chatlane.domain.turns.lifecycle import open_turn
from chatlane.errors import TransientError
from chatlane.jobs import Job
from chatlane.nats.log_shares import NOT_PARTITIONED
from chatlane.nats.topology import find_partition_count
from chatlane.observability import metrics as its
from chatlane.observability.logs import get_logger
from chatlane.reconciliation import reconciliation_sql
from chatlane.store.conversations import sessions
from chatlane.store.logs import partitions
from chatlane_schemas.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.unit_of_work import Writer
    from chatlane.domain.log import LogName, LogPosition, PartitionId
    from chatlane.nats.jetstream import StreamState
    from chatlane.observability.metrics import Metrics
    from chatlane.reconciliation.backlogs import Backlog
    from chatlane.reconciliation.reconciliation_sql import Round
    from chatlane.reconciliation.stream_gap_repair import LostMessages
    from chatlane_schemas.streams import DurableSpec

    Transaction = Callable[[], AbstractAsyncContextManager[PoolConnectionProxy]]

# Everything here is dealt with in seconds as long as the servers are there.
PATIENCE: Final = timedelta(seconds=60)
_LOOK: Final = timedelta(seconds=10)
# Three looks of one router, or fewer of several, and what jitter takes off them.
_EVERY: Final = timedelta(seconds=25)

_log = get_logger("reconciling")


class Logs(Protocol):
    """The logs as a comparison sees them."""

    async def get_state(self, log: LogName) -> StreamState:
        """Return how far a log goes."""
        ...

    async def find_stored_after(self, partition: PartitionId, sequence: int) -> datetime | None:
        """Return when the first message of a partition after a sequence was stored."""
        ...


class Contents(Protocol):
    """What streams hold, as a comparison sees it."""

    async def count(self, stream: StreamName, subject: str) -> int:
        """Return how many messages a stream holds under subjects that a filter takes."""
        ...


class Durables(Protocol):
    """The durables as a comparison sees them."""

    async def find(self, durable: DurableSpec) -> Backlog | None:
        """Return what a durable has before it, or None when there is no such durable."""
        ...


class Reconciler:
    """Compares, repairs, reports; any number of routers may, and one at a time does.

    Args:
        logs: Both logs.
        durables: Asked whether notifications are before workers.
        contents: Asked for what no partition has.
        lost_messages: Compares the streams that routers write to.
        transaction: Opens one.
        writer: For turns that have to be opened.
        metrics: Where the findings are shown, by every router.
        declared_durables: Those of TURNS are asked.
        patience: What is younger is not looked at.
        every: Pause between two comparisons of the whole service.

    Attributes:
        found: What the last comparison found, by whichever router.
    """

    def __init__(
        self,
        logs: Logs,
        durables: Durables,
        transaction: Transaction,
        writer: Writer,
        metrics: Metrics,
        *,
        contents: Contents,
        lost_messages: LostMessages,
        declared_durables: Iterable[DurableSpec],
        patience: timedelta = PATIENCE,
        every: timedelta = _EVERY,
    ) -> None:
        self._logs = logs
        self._durables = durables
        self._contents = contents
        self._lost_messages = lost_messages
        self._transaction = transaction
        self._writer = writer
        self._metrics = metrics
        self._agents = [one for one in declared_durables if one.stream is StreamName.TURNS]
        self._patience = patience
        self._every = every
        self.found: Mapping[str, int] = {}

    def jobs(self) -> tuple[Job, ...]:
        """Return what to do how often."""
        return (Job("reconciliation", _LOOK, self.run),)

    async def run(self) -> None:
        """Compare when it is time, and show what the last comparison found.

        Raises:
            TransientError: Next time.
        """
        async with self._transaction() as connection:
            begun = await reconciliation_sql.begin(connection, self._every)
        if begun is not None:
            await self._compare(begun)
        async with self._transaction() as connection:
            self.found = await reconciliation_sql.read_found(connection)
        self._metrics.show(
            its.INCONSISTENCIES, {(kind,): self.found.get(kind, 0) for kind in Inconsistency}
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
        found += await self._compare_logs(positions)
        found += await self._compare_streams()
        self._report(found)
        await self._announce(silent)
        await self._open_turns(stranded, begun.looked_at)
        async with self._transaction() as connection:
            await reconciliation_sql.end(connection, replace(walked, found=+found))

    async def _quiet_agents(self) -> list[str]:
        """Return the agents that have nothing before them that a worker could take up."""
        backlogs = {one.name: await self._durables.find(one) for one in self._agents}
        return [name for name, backlog in backlogs.items() if backlog and backlog.unread == 0]

    async def _compare_streams(self) -> Counter[str]:
        try:
            return await self._lost_messages.compare()
        except TransientError as error:
            # Nothing is marked, so it is found the next time; the rest need not wait for it.
            _log.warning("sweep_postponed", task="lost messages", reason=str(error))
            return Counter()

    async def _compare_logs(self, positions: Mapping[PartitionId, LogPosition]) -> Counter[str]:
        found: Counter[str] = Counter()
        for log in LOGS:
            of_log = [(its, position) for its, position in positions.items() if its.log == log]
            # Read after the positions: a log never ends before a cursor that was committed.
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
        is_old = stored_at is not None and state.told_at - stored_at > self._patience
        return Inconsistency.LOG_UNREAD if is_old else None

    def _report(self, found: Mapping[str, int]) -> None:
        for kind, count in found.items():
            if count:
                _log.error("inconsistency_found", kind=kind, count=count)

    async def _announce(self, silent: Sequence[UUID]) -> None:
        """Have the workers told of turns that none of them can know of."""
        if silent:
            async with self._transaction() as connection:
                hurried = await reconciliation_sql.hurry(connection, silent)
            self._metrics.record_reconciled(Inconsistency.TURN_UNANNOUNCED, hurried)

    async def _open_turns(self, stranded: Sequence[UUID], at: datetime) -> None:
        """Give sessions in which messages wait for nothing a turn."""
        if not stranded:
            return
        effects = Effects()
        async with self._writer.writing() as writing:
            locked = await sessions.lock_free(writing.connection, stranded)
            # What an ended session left behind is for a person to look at.
            live = [one.id for one in locked.values() if one.ended_at is None]
            opened = await reconciliation_sql.confirm_stranded(writing.connection, live)
            for one in opened:
                trigger = one.message_id.bytes + at.isoformat().encode()
                open_turn(locked[one.session_id], one.stored_at, trigger, effects)
            await writing.write(effects, sessions_of=[locked[one.session_id] for one in opened])
        self._metrics.record_reconciled(Inconsistency.MESSAGES_STRANDED, len(opened))
