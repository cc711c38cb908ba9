"""Run decisions in one transaction, and notify the relay and listeners after the commit."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from chatlane.decisions.limits.agent_shares import withhold
from chatlane.domain.counts import Inconsistency
from chatlane.domain.sessions.session_handoff import tell_first_turn
from chatlane.observability.logs import get_logger
from chatlane.privacy import erasure_list_sql
from chatlane.store import (
    dead_letters,
    deliveries,
    pending_messages,
    questions,
    routed_changes,
    turns,
)
from chatlane.store.addressing import dedupe_marks, lanes
from chatlane.store.conversations import sessions, titles
from chatlane.store.history import edits, expiry, messages
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.results import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
    from datetime import datetime, timedelta
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.limits.dead_letter_limits import DeadLetterLimits
    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Lane, Session
    from chatlane.observability.metrics import Metrics
    from chatlane.outbox.relay import OutboxWriter, Relay
    from chatlane.postgres.pool import Store

    Tell = Callable[[str, bytes], Awaitable[None]]


_log = get_logger("unit_of_work")


@dataclass(slots=True)
class UnitOfWork:
    """A transaction in progress.

    Attributes:
        connection: Connection for reads and locks; writes go through `write`.
        laps: Seconds by stage, for the stages for which `lap` was called.
        crowding: Agents whose messages to workers become dead letters.
        touched: The sessions that were written, by id.
    """

    connection: PoolConnectionProxy
    outbox: OutboxWriter
    lap_began: float
    dead_letter_limits: DeadLetterLimits | None = None
    crowding: Collection[str] = ()
    effects: list[Effects] = field(default_factory=list, init=False)
    touched: dict[UUID, Session] = field(default_factory=dict, init=False)
    laps: dict[str, float] = field(default_factory=dict, init=False)

    def lap(self, stage: str) -> None:
        """Add the time since the previous lap, or since the transaction was requested."""
        now = monotonic()
        self.laps[stage] = self.laps.get(stage, 0.0) + now - self.lap_began
        self.lap_began = now

    async def write(
        self,
        effects: Effects,
        *,
        lanes_of: Iterable[Lane] = (),
        sessions_of: Iterable[Session] = (),
    ) -> None:
        """Write all decisions, in the order in which all transactions lock tables.

        Raises:
            SupersededError: Another router decided about one of the lanes first.
        """
        connection = self.connection
        withheld = withhold(effects, self.crowding) if self.crowding else []
        written = list(sessions_of)
        deleted = _place_deleted(effects, written)
        _note_messages(effects, written)
        self.touched.update((session.id, session) for session in written)
        await lanes.write(connection, lanes_of)
        await sessions.insert(connection, (session for session in written if session.is_new))
        await sessions.update(connection, (session for session in written if not session.is_new))
        await sessions.add_usage(connection, effects.used)
        await titles.write(connection, effects.titles)
        await deliveries.insert(connection, effects.new_deliveries)
        await deliveries.write(connection, effects.deliveries.values())
        await deliveries.insert_pieces(connection, effects.delivered_pieces)
        await turns.update(connection, effects.changed_turns)
        await turns.insert(connection, effects.new_turns)
        await questions.change(connection, effects.question_changes.values())
        await pending_messages.insert(connection, effects.waiting)
        await edits.change_waiting(connection, effects.waiting_changes)
        await dedupe_marks.insert(connection, effects.seen)
        if effects.former_seen:
            await dedupe_marks.insert_new(connection, effects.former_seen)
        await dedupe_marks.resume(connection, effects.resumed)
        await edits.keep_early(connection, effects.early, effects.early_over)
        await edits.delete_waiting(connection, deleted)
        await messages.insert(connection, effects.messages)
        await expiry.insert(connection, effects.expiring)
        await messages.mark_unanswered(connection, effects.unanswered)
        await messages.give_up(connection, withheld)
        await messages.reopen(connection, effects.answered_after_all)
        await edits.change_rows(connection, effects.row_changes, effects.revisions)
        await routed_changes.note(connection, effects.routed_changes)
        await messages.keep_late(connection, effects.late)
        if effects.dead and self.dead_letter_limits is not None:
            await self.dead_letter_limits.apply(connection, effects)
        await dead_letters.insert(connection, effects.dead)
        await erasure_list_sql.note_messages(connection, effects.erased)
        await self.outbox.insert(connection, effects.publications)
        self.effects.append(effects)


def _place_deleted(effects: Effects, locked: Iterable[Session]) -> list[tuple[UUID, int, int]]:
    if not effects.deleted_waiting:
        return []
    by_id = {session.id: session for session in locked}
    deleted = []
    for session_id, arrival in effects.deleted_waiting:
        session = by_id[session_id]
        if session.next_seq == 1:
            tell_first_turn(session)
        deleted.append((session_id, arrival, session.take_seq()))
    return deleted


def _note_messages(effects: Effects, locked: Iterable[Session]) -> None:
    """Note in the sessions when their newest rows were written, except those of tools."""
    newest: dict[UUID, datetime] = {}
    for row in effects.messages:
        if row.role != Role.TOOL:
            before = newest.get(row.session_id, row.created_at)
            newest[row.session_id] = max(before, row.created_at)
    if not newest:
        return
    for session in locked:
        if (at := newest.get(session.id)) is not None:
            session.last_message_at = max(at, session.last_message_at or at)


@dataclass(slots=True)
class UnitOfWorkFactory:
    """Open the transactions of a router that may publish.

    They run one after the other from their first insert into the outbox until the relay has
    their rows: the ids of the outbox are the publish order.

    The callbacks run after each commit. They carry nothing that is not in the database as well, so
    without them everything still happens, only later.

    Attributes:
        tell: Publishes a message to current subscribers, and fails silently.
        written: Called with the sessions that have new rows.
        schedule_within: Called with the time until the next debounced turn is due.
        touched: Called with the sessions that were written, by id.
        dead_letter_limits: Limits the dead letters of one owner; without it all are kept.
        routed_changed: Called when messages of stream agents were edited or deleted.
        find_crowding: Returns the agents that get nothing more in ROUTED.
    """

    store: Store
    relay: Relay
    metrics: Metrics
    tell: Tell | None = None
    written: Callable[[set[UUID]], None] | None = None
    schedule_within: Callable[[timedelta], None] | None = None
    touched: Callable[[Mapping[UUID, Session]], None] | None = None
    dead_letter_limits: DeadLetterLimits | None = None
    routed_changed: Callable[[], None] | None = None
    find_crowding: Callable[[], Collection[str]] = tuple

    def notify_written(self, sessions: set[UUID]) -> None:
        """Announce sessions that have new rows in committed transactions."""
        if self.written is not None:
            self.written(sessions)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[UnitOfWork]:
        """Run the block in one transaction, and publish what it wrote after the commit."""
        asked_at = monotonic()
        async with self.relay.ordered() as outbox, self.store.transaction() as connection:
            unit_of_work = UnitOfWork(
                connection, outbox, asked_at, self.dead_letter_limits, self.find_crowding()
            )
            yield unit_of_work
        if unit_of_work.laps:
            unit_of_work.lap("commit")
            for stage, seconds in unit_of_work.laps.items():
                self.metrics.stage_seconds.labels(stage).observe(seconds)
        if self.touched is not None and unit_of_work.touched:
            self.touched(unit_of_work.touched)
        for effects in unit_of_work.effects:
            self.metrics.record_decisions(effects.counts)
            if effects.messages:
                self.notify_written({row.session_id for row in effects.messages})
            self._report(effects)
            if self.routed_changed is not None and effects.routed_changes:
                self.routed_changed()
            if self.schedule_within is not None and effects.next_due is not None:
                self.schedule_within(effects.next_due)
            if self.tell is not None:
                for control in effects.controls:
                    await self.tell(control.subject, control.payload)

    def _report(self, effects: Effects) -> None:
        for letter in effects.dead:
            if letter.reason == DeadReason.MESSAGE_ID_REUSED:
                _log.warning(
                    "message_id_reused",
                    partition=letter.partition,
                    seq=letter.sequence,
                    session_id=letter.session_id,
                )
        for session_key in effects.silenced:
            _log.warning("bot_silenced", session_key=session_key)
        for session_key in effects.repaired_lanes:
            _log.error("lane_of_another_repaired", session_key=session_key)
            self.metrics.reconciled.labels(Inconsistency.LANE_OF_ANOTHER).inc()
